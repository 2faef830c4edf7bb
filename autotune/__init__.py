"""autotune: an occupancy and tile-size autotuner for CUDA matrix multiplication.

    autotune.tune(4096, 4096, 4096)            searches the fastest kernel and records it
    autotune.best(4096, 4096, 4096)            the record
    autotune.matmul(a, b)                      runs it on PyTorch, CuPy or PyCUDA arrays
    autotune.tune_kernel(source, name, ...)    tunes a CUDA kernel of yours
    autotune.kernel_occupancy(source, ...)     what its configurations occupy; needs no GPU
    autotune.device.find("h100")               limits of a GPU
    autotune.occupancy.occupancy(device, ...)  resident blocks of a kernel

Importing the package imports nothing else; each name is imported where it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune import device, errors, occupancy, roofline
    from autotune.api import best, matmul, tune
    from autotune.config import Config
    from autotune.device import Device
    from autotune.kernels import best_kernel, kernel_occupancy, tune_kernel
    from autotune.problem import Problem
    from autotune.runtime import UntunedWarning, kernel
    from autotune.store import KernelRecord, Record

__version__ = "0.1.0"

__all__ = [
    "Config",
    "Device",
    "KernelRecord",
    "Problem",
    "Record",
    "UntunedWarning",
    "best",
    "best_kernel",
    "device",
    "errors",
    "kernel",
    "kernel_occupancy",
    "matmul",
    "occupancy",
    "roofline",
    "tune",
    "tune_kernel",
]

_HOMES = {
    "Config": "config",
    "Device": "device",
    "KernelRecord": "store",
    "Problem": "problem",
    "Record": "store",
    "UntunedWarning": "runtime",
    "best": "api",
    "best_kernel": "kernels",
    "kernel": "runtime",
    "kernel_occupancy": "kernels",
    "matmul": "api",
    "tune": "api",
    "tune_kernel": "kernels",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
