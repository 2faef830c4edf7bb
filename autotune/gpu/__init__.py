"""Measuring on a GPU through PyCUDA or `cuda.bindings`, imported only when a session opens."""

from __future__ import annotations

from autotune.gpu.probing import count, probe
from autotune.gpu.runner import GpuRunner, open_kernel_runner, open_runner

__all__ = ["GpuRunner", "count", "open_kernel_runner", "open_runner", "probe"]
