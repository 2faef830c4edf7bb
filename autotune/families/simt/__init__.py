"""Register-tiled fp32 kernels on CUDA cores."""
