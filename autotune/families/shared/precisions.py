"""The precisions that the families serve."""

CUDA_CORES = ("f32", "tf32", "tf32x3")
"""What families with IEEE fp32 products serve: all that is stored as fp32."""
TENSOR_CORES = ("tf32", "tf32x3", "f16", "bf16")
"""What families on tensor cores serve."""
