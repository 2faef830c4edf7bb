"""Python's exchange with the CUDA driver: attributes, entry points, arguments, tensor maps."""
