"""Addresses of functions of the CUDA driver, for calls through `ctypes`."""

from __future__ import annotations

from typing import Any

from autotune.errors import RunnerError


def entry_point(cuda: Any, name: str, since: int) -> int:
    """The address of a function of the driver.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.
        name: as `cuda.h` has it, without a version.
        since: the CUDA version that introduced this form of it, such as 12000.

    Raises:
        RunnerError: if the driver does not have it.
    """
    status, function, *_ = cuda.cuGetProcAddress(name.encode(), since, 0)
    if status or not function:
        raise RunnerError(
            f"the driver has no {name}; update it: it came with CUDA {since // 1000}."
            f"{since % 1000 // 10}"
        )
    return int(function)
