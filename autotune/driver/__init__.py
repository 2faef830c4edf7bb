"""What Python hands to the CUDA driver: attributes, entry points, arguments, tensor maps."""
