"""autotune: an occupancy and tile-size autotuner for CUDA matrix multiplication."""

__version__ = "0.1.0"
