"""Which array library an array is from.

No library is imported here: an array can only come from one that the caller has imported, so each
is taken from `sys.modules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from autotune.errors import ArrayError
from autotune.problem.vendor import obstacle
from autotune.runtime.frameworks.base import Framework
from autotune.runtime.frameworks.interfaces import (
    CudaArrayInterface,
    DLPack,
    PyCuda,
    dlpack_ordinal,
)
from autotune.runtime.frameworks.libraries import CuPy, Torch


def framework_of(array: Any, name: str, ordinal: Callable[[int], int | None]) -> Framework:
    """The library that an array is from.

    Args:
        array: anything.
        name: its name in messages.
        ordinal: gives the device that holds an address.

    Raises:
        ArrayError: if it is not an array on a GPU, or a tensor without its elements in its memory.
    """
    if _is_instance(array, "torch", "Tensor"):
        torch = sys.modules["torch"]
        if (reason := obstacle(torch, array)) is not None:
            raise ArrayError(f"{name} {reason}")
        return Torch(torch)
    if _is_instance(array, "cupy", "ndarray"):
        return CuPy(sys.modules["cupy"])
    if _is_instance(array, "pycuda.gpuarray", "GPUArray"):
        return PyCuda(sys.modules["pycuda.gpuarray"], ordinal)
    if hasattr(array, "__cuda_array_interface__"):
        return CudaArrayInterface(ordinal)
    if hasattr(array, "__dlpack_device__") and dlpack_ordinal(array) is not None:
        return DLPack()
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    raise ArrayError(
        f"{name} is a {kind}, which is not on a CUDA device; give an array of PyTorch, CuPy, "
        "PyCUDA or another with __cuda_array_interface__ or DLPack"
    )


def _is_instance(array: Any, module: str, kind: str) -> bool:
    """Whether an array is of a class of a module, which may not be imported."""
    return isinstance(array, getattr(sys.modules.get(module), kind, ()))
