"""The launch geometry of a user kernel's configuration, and why a device may reject it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, SupportsIndex

from autotune.candidates.legality import Rejection
from autotune.device import Device
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.records.kernel_record import Geometry

ParameterValues = Mapping[str, Any]
"""The value of each parameter: a whole number, a float or a word."""
Extent = SupportsIndex | Sequence[SupportsIndex]
"""A size along x, along x and y, or along x, y and z."""
Extents = Extent | Callable[[ParameterValues], Extent]
"""The size of a grid or block, or a function that returns it."""
SharedBytes = SupportsIndex | Callable[[ParameterValues], SupportsIndex]
"""Bytes of dynamic shared memory, or a function that returns them."""

# CUDA programming guide, technical specifications, compute capability 3.0 and newer.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_THREADS = (1024, 1024, 64)


def geometry_of(grid: Extents, block: Extents, shared: SharedBytes, config: Config) -> Geometry:
    """The geometry of a configuration.

    Raises:
        UsageError: if one of the three is not a size, or its function fails.
    """
    return Geometry(
        _extents("grid", grid, config),
        _extents("block", block, config),
        _size("shared", evaluate("shared", shared, config), config),
    )


def evaluate(name: str, setting: object, config: Config) -> object:
    """The value of a setting for a configuration: the result of a function, or a constant.

    Args:
        name: its name in messages.
        setting: a function of the parameters, or a constant.
        config: the configuration.

    Raises:
        UsageError: if the function fails.
    """
    if not callable(setting):
        return setting
    try:
        return setting(MappingProxyType(config.values))
    except Exception as error:
        parameters = ", ".join(config.values) or "no parameters"
        raise UsageError(
            f"{name} fails for {config}: {type(error).__name__}: {error}; it is called with a "
            f"mapping from {parameters} to their values"
        ) from error


def rejection(geometry: Geometry, device: Device) -> Rejection | None:
    """Why a device cannot launch a geometry, with the numbers; None if nothing speaks against it
    before compilation."""
    grid, block = geometry.grid, geometry.block
    if detail := _beyond(grid, MOST_BLOCKS, "blocks"):
        return Rejection("grid", detail)
    if (threads := prod(block)) > device.threads_per_block:
        limit = f"{device.name} allows {device.threads_per_block}"
        return Rejection("threads", f"{_times(block)} are {threads} threads a block, {limit}")
    if detail := _beyond(block, MOST_THREADS, "threads"):
        return Rejection("block", detail)
    if not 0 <= geometry.shared <= device.shared_per_block_optin:
        limit = f"{device.name} allows 0 to {device.shared_per_block_optin}"
        return Rejection("shared memory", f"needs {geometry.shared} bytes a block, {limit}")
    return None


def _beyond(sizes: tuple[int, int, int], limits: tuple[int, int, int], unit: str) -> str | None:
    if all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
        return None
    return f"{_times(sizes)} {unit}, CUDA allows 1 to {_times(limits)}"


def _times(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _extents(name: str, extents: Extents, config: Config) -> tuple[int, int, int]:
    value = evaluate(name, extents, config)
    sizes = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not 1 <= len(sizes) <= 3:
        raise UsageError(
            f"{name} of {config} is {value!r}; give a whole number, or 2 or 3 of them along x, y "
            "and z"
        )
    x, y, z = *(_size(name, size, config) for size in sizes), *(1,) * (3 - len(sizes))
    return x, y, z


def _size(name: str, size: object, config: Config) -> int:
    if not isinstance(size, SupportsIndex):
        raise UsageError(
            f"{name} of {config} has {size!r}; give whole numbers (`//` makes them, `/` does not)"
        )
    return index(size)
