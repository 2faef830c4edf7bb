"""The GPUs that the driver shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.cuda import bindings
from autotune.device import Device
from autotune.errors import DeviceError


def probe(index: int = 0, *, enter: bool = False) -> Device:
    """The identity and limits of GPU `index`, as its driver states them; to `enter` it creates a
    context where only that tells its resident clusters.

    Raises:
        MissingError: if `cuda.bindings`, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
    """
    cuda = bindings.initialised()
    present = int(_call(cuda.cuDeviceGetCount))
    if not 0 <= index < present:
        raise DeviceError(f"no GPU {index}; the driver shows {present}, numbered from 0")
    return bindings.described(cuda, _call, index, enter=enter)


def count() -> int:
    """Number of GPUs that the driver shows.

    Raises:
        MissingError: if `cuda.bindings`, the driver or a GPU is missing.
    """
    return int(_call(bindings.initialised().cuDeviceGetCount))


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    status, *values = function(*arguments)
    if status:
        raise DeviceError(f"the driver does not describe the GPU: {function.__name__}: {status!r}")
    return values[0]
