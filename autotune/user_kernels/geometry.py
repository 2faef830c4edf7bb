"""How a configuration of a user's kernel is launched, and what a device has against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from types import MappingProxyType
from typing import SupportsIndex

from autotune.candidates.space import Rejection
from autotune.device import Device
from autotune.errors import UsageError
from autotune.families.config import Config

ParameterValues = Mapping[str, int]
"""The value of each parameter."""
Extent = SupportsIndex | Sequence[SupportsIndex]
"""Along x, along x and y, or along x, y and z."""
Extents = Extent | Callable[[ParameterValues], Extent]
SharedBytes = SupportsIndex | Callable[[ParameterValues], SupportsIndex]

# CUDA programming guide, technical specifications: of compute capability 3.0 and newer.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_THREADS = (1024, 1024, 64)


@dataclass(frozen=True)
class Geometry:
    """Blocks of a grid and threads of a block along x, y and z; dynamic shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


def geometry_of(grid: Extents, block: Extents, shared: SharedBytes, config: Config) -> Geometry:
    """The geometry that a configuration asks for.

    Raises:
        UsageError: if one of the three is no size, or fails.
    """
    return Geometry(
        _extents("grid", grid, config),
        _extents("block", block, config),
        _size("shared", evaluate("shared", shared, config), config),
    )


def evaluate(what: str, given: object, config: Config) -> object:
    """What a function of the parameters returns, or the constant that stands in its place.

    Raises:
        UsageError: if the function fails.
    """
    if not callable(given):
        return given
    try:
        return given(MappingProxyType(config.values))
    except Exception as error:
        names = ", ".join(config.values) or "no parameters"
        raise UsageError(
            f"{what} fails for {config}: {type(error).__name__}: {error}; it is called with a "
            f"mapping from {names} to whole numbers"
        ) from error


def rejection(geometry: Geometry, device: Device) -> Rejection | None:
    """Why a device cannot launch it, with the numbers; None if it can, as far as is known before
    compilation."""
    grid, block = geometry.grid, geometry.block
    if detail := _beyond(grid, MOST_BLOCKS, "blocks"):
        return Rejection("grid", detail)
    if (threads := prod(block)) > device.threads_per_block:
        most = f"{device.name} allows {device.threads_per_block}"
        return Rejection("threads", f"{_times(block)} are {threads} threads a block, {most}")
    if detail := _beyond(block, MOST_THREADS, "threads"):
        return Rejection("block", detail)
    if not 0 <= geometry.shared <= device.shared_per_block_optin:
        most = f"{device.name} allows 0 to {device.shared_per_block_optin}"
        return Rejection("shared memory", f"needs {geometry.shared} bytes a block, {most}")
    return None


def _beyond(sizes: tuple[int, int, int], most: tuple[int, int, int], what: str) -> str | None:
    if all(1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
        return None
    return f"{_times(sizes)} {what}, CUDA allows 1 to {_times(most)}"


def _times(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _extents(what: str, given: Extents, config: Config) -> tuple[int, int, int]:
    found = evaluate(what, given, config)
    sizes = list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    if not 1 <= len(sizes) <= 3:
        raise UsageError(
            f"{what} of {config} is {found!r}; give a whole number, or 2 or 3 of them along x, y "
            "and z"
        )
    x, y, z = *(_size(what, size, config) for size in sizes), *(1,) * (3 - len(sizes))
    return x, y, z


def _size(what: str, size: object, config: Config) -> int:
    if not isinstance(size, SupportsIndex):
        raise UsageError(
            f"{what} of {config} has {size!r}; give whole numbers (`//` makes them, `/` does not)"
        )
    return index(size)
