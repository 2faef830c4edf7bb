"""Measuring on a GPU through PyCUDA, which is imported only when a session opens."""

from __future__ import annotations

from autotune.gpu.runner import GpuRunner, open_kernel_runner, open_runner
from autotune.gpu.session import count, probe

__all__ = ["GpuRunner", "count", "open_kernel_runner", "open_runner", "probe"]
