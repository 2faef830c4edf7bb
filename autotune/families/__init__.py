"""The kernel families, by name."""
