"""The public functions, each imported on first use by `autotune`."""
