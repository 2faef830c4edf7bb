"""The CUDA driver, its GPUs, and the libraries through which tuning calls it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from autotune import settings


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


def session_library() -> tuple[str | None, str]:
    """The library that tuning calls the driver through, and why it is not PyCUDA; None and the
    reason if there is none.

    Raises:
        UsageError: if `AUTOTUNE_SESSION` names another.
    """
    wanted = settings.session()
    fault = "AUTOTUNE_SESSION asks for it" if wanted == "bindings" else pycuda_fault()
    if wanted == "pycuda" and fault:
        return None, f"{fault}, and AUTOTUNE_SESSION asks for it"
    if not fault:
        return f"PyCUDA {metadata.version('pycuda')}", ""
    try:
        return f"cuda.bindings {metadata.version('cuda-bindings')}", fault
    except metadata.PackageNotFoundError:
        return None, "cuda.bindings is not installed"


def pycuda_fault() -> str | None:
    """Why PyCUDA cannot be used; None if it can."""
    if find_spec("pycuda") is None:
        return "PyCUDA is not installed"
    # In a separate process: a broken build may take its importer down.
    command = [sys.executable, "-c", "import pycuda.driver"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"PyCUDA does not import: {lines[-1]}"
