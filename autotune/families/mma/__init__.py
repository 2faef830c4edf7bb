"""Tensor cores through registers (mma.sync)."""
