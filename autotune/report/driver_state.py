"""What the CUDA driver says of itself and of its GPUs, without starting anything else."""

from __future__ import annotations

from typing import Any


def driver_version() -> int:
    """The CUDA version that the driver supports, as 1000 major + 10 minor.

    Raises:
        ImportError: without `cuda.bindings`.
        RuntimeError: without a driver.
    """
    from cuda.bindings import driver

    return int(_call(driver.cuDriverGetVersion()))


def gpus() -> list[tuple[str, str]]:
    """Name and architecture of each GPU, at least one.

    Raises:
        ImportError: without `cuda.bindings`.
        RuntimeError: without a driver, or one that finds no GPU.
    """
    from cuda.bindings import driver

    _call(driver.cuInit(0))
    attribute = driver.CUdevice_attribute
    major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    minor = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    listed = []
    for index in range(_call(driver.cuDeviceGetCount())):
        device = _call(driver.cuDeviceGet(index))
        name = _call(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode()
        version = [_call(driver.cuDeviceGetAttribute(part, device)) for part in (major, minor)]
        listed.append((name, f"sm_{version[0]}{version[1]}"))
    return listed


def _call(result: tuple[Any, ...]) -> Any:
    """The value of a driver call, which comes after its status.

    Raises:
        RuntimeError: for any status but success.
    """
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"the driver says {status.name}")
    return values[0] if values else None
