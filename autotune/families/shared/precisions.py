"""The precisions that the families serve."""

CUDA_CORES = ("f32", "tf32", "tf32x3")
"""Precisions of families with IEEE fp32 products: all that are stored as fp32."""
TENSOR_CORES = ("tf32", "tf32x3", "f16", "bf16")
"""Precisions of families on tensor cores."""
EIGHT_BITS = ("f8", "f8e5", "i8")
"""Precisions of 8-bit operands."""
