"""autotune: an occupancy and tile-size autotuner for CUDA matrix multiplication.

    autotune.tune(4096, 4096, 4096)            searches the fastest kernel and records it
    autotune.tune_range("1..512x4096x4096")    the same for all of many sizes
    autotune.best(4096, 4096, 4096)            the record
    autotune.choose(300, 4096, 4096)           what would run, tuned or not, and why
    autotune.matmul(a, b)                      runs it on PyTorch, CuPy or PyCUDA arrays
    autotune.kernel(4096, 4096, 4096)          the same for one shape, ready to launch
    autotune.warmup(["64x4096x4096", ...])     loads what a program will need
    autotune.export.write(shapes, folder)      a C library of recorded kernels
    autotune.torch.patch(model)                runs them in a PyTorch model
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
    from autotune import device, errors, export, occupancy
    from autotune import torch as torch
    from autotune.api.kernels import best_kernel, kernel_occupancy, tune_kernel
    from autotune.api.matmul import matmul
    from autotune.api.problems import best, choose, tune
    from autotune.api.ranges import tune_range
    from autotune.device import Device
    from autotune.families.config import Config
    from autotune.occupancy import roofline
    from autotune.problem import Problem
    from autotune.records import KernelRecord, Record
    from autotune.runtime import UntunedWarning, kernel, warmup
    from autotune.version import __version__ as __version__

__all__ = [
    "Config",
    "Device",
    "KernelRecord",
    "Problem",
    "Record",
    "UntunedWarning",
    "best",
    "best_kernel",
    "choose",
    "device",
    "errors",
    "export",
    "kernel",
    "kernel_occupancy",
    "matmul",
    "occupancy",
    "roofline",
    "tune",
    "tune_kernel",
    "tune_range",
    "warmup",
]

# The module that each name is taken from.
_HOMES = {
    "Config": "families.config",
    "Device": "device",
    "KernelRecord": "records",
    "Problem": "problem",
    "Record": "records",
    "UntunedWarning": "runtime",
    "__version__": "version",
    "best": "api.problems",
    "best_kernel": "api.kernels",
    "choose": "api.problems",
    "kernel": "runtime",
    "kernel_occupancy": "api.kernels",
    "matmul": "api.matmul",
    "tune": "api.problems",
    "tune_kernel": "api.kernels",
    "tune_range": "api.ranges",
    "warmup": "runtime",
}
# Names that are modules. `torch` is not in `__all__`, as PyTorch may not be installed.
_MODULES = {
    "device": "device",
    "errors": "errors",
    "export": "export",
    "occupancy": "occupancy",
    "roofline": "occupancy.roofline",
    "torch": "torch",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored, so that only the first use comes here.
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
