"""The textbook kernels: naive and tiled."""
