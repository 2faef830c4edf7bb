"""What Python exchanges with the CUDA driver: attributes, entry points, arguments, tensor maps."""
