"""The CUDA driver through `cuda.bindings`: initialised, and asked for its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.device import Device
from autotune.driver import attributes
from autotune.driver.clusters import with_clusters
from autotune.errors import MissingError

Call = Callable[..., Any]
"""Calls a function of the driver with arguments; returns its values, or raises if it fails."""


def initialised() -> Any:
    """`cuda.bindings.driver`, initialised.

    Raises:
        MissingError: if there is no `cuda.bindings`, no driver or no GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingError(
            f"cuda.bindings cannot be imported ({error}); install tile-autotune[cu13]"
        ) from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise MissingError(
            "no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver (580 or newer)"
        ) from error
    if status:
        raise MissingError(f"no usable GPU: cuInit gave {status.name}; nvidia-smi says more")
    return driver


def described(cuda: Any, call: Call, ordinal: int, *, enter: bool = False) -> Device:
    """The identity and limits of a GPU, which needs no context.

    Resident clusters are those that its driver stated, or states to a process with a context on it;
    to `enter` creates one. See `clusters.with_clusters`.
    """
    device = call(cuda.cuDeviceGet, ordinal)
    name = call(cuda.cuDeviceGetName, 256, device)
    kinds = cuda.CUdevice_attribute
    values = {
        name: int(
            call(cuda.cuDeviceGetAttribute, getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device)
        )
        for name in attributes.NAMES
    }
    memory = int(call(cuda.cuDeviceTotalMem, device))
    described = attributes.describe(name.partition(b"\0")[0].decode(), memory, values)
    return with_clusters(cuda, described, ordinal, enter=enter)


def worded(cuda: Any, status: Any) -> str:
    """A status of the driver in words."""
    result = cuda.CUresult(status)
    _, text = cuda.cuGetErrorString(result)
    return f"{result.name}: {(text or b'').decode()}"
