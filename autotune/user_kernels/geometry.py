"""The launch geometry of a user kernel's configuration, and why a device may reject it.

A grid is given, or follows from the size of a problem (`grid_extents`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, SupportsIndex

from autotune.device import Device
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.model.legality import Rejection
from autotune.problem.integers import ceil_div
from autotune.records.kernel_record import Geometry
from autotune.user_kernels.expressions import settled

ParameterValues = Mapping[str, Any]
"""The value of each parameter: a whole number, a float or a word."""

Extent = SupportsIndex | Sequence[SupportsIndex]
"""A size along x, along x and y, or along x, y and z."""

Extents = Extent | Callable[[ParameterValues], Extent] | str | Sequence[SupportsIndex | str]
"""The size of a grid or block, a function that returns it, or texts in the parameters."""

SharedBytes = SupportsIndex | Callable[[ParameterValues], SupportsIndex] | str
"""Bytes of dynamic shared memory, a function that returns them, or a text in the parameters."""

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
    """Why a device cannot launch a geometry, with the numbers; None if it may fit as far
    as is known before compilation."""
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
    try:
        return index(size)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(
            f"{name} of {config} has {size!r}; give whole numbers (`//` makes them, `/` does not)"
        ) from error


Factor = str | SupportsIndex

Divisor = Factor | Sequence[Factor] | Callable[[ParameterValues], SupportsIndex]
"""The extent of a block along an axis of the problem: a parameter or another text, a number, a
product of several, or a function of the parameters."""

BLOCK = ("block_size_x", "block_size_y", "block_size_z")
"""Parameters that are the threads of a block where nothing else says so."""


def block_extents(block: Extents | None, parameters: Collection[str]) -> Extents:
    """The threads of a block; None takes the parameters of `BLOCK`, and 1 for those that miss.

    Raises:
        UsageError: if there is neither.
    """
    if block is not None:
        return block
    if not set(BLOCK) & set(parameters):
        raise UsageError(
            "block is missing; give the threads of a block, or call parameters block_size_x, "
            "block_size_y and block_size_z"
        )
    return lambda values: tuple(values.get(name, 1) for name in BLOCK)


def grid_extents(
    grid: Extents | None,
    problem_size: Extents | None,
    grid_div: Sequence[Divisor | None] | None,
    block: Extents,
    parameters: Collection[str],
) -> Extents:
    """The blocks of a grid, as given or such that they cover a problem.

    Args:
        grid: the blocks, or None.
        problem_size: the size along each axis, or None.
        grid_div: what a block covers along each axis; for None and where an axis is missing, its
            threads (as `util.get_grid_dimensions` of Kernel Tuner 1.5).
        block: the threads of a block.
        parameters: the names of the parameters.

    Raises:
        UsageError: for neither or both of grid and problem_size, or an unknown parameter.
    """
    if (grid is None) == (problem_size is None):
        raise UsageError("give grid, or problem_size (with grid_div), and not both")
    if problem_size is None:
        if grid_div is not None:
            raise UsageError("grid_div divides problem_size; give that instead of grid")
        assert grid is not None
        return grid
    if isinstance(grid_div, str):
        raise UsageError(f"grid_div is {grid_div!r}; give a list with an entry for each axis")
    size = problem_size
    divisors = [None if each is None else _checked(each, parameters) for each in grid_div or ()]

    def covering(values: ParameterValues) -> tuple[int, ...]:
        sizes = _tuple(size(values) if callable(size) else size)
        threads = *_tuple(block(values) if callable(block) else block), 1, 1, 1
        return tuple(
            ceil_div(index(size), index(step) if by is None else _product(by, values))
            for size, by, step in zip(sizes, (*divisors, None, None, None), threads, strict=False)
        )

    return covering


def _checked(divisor: Divisor, parameters: Collection[str]) -> list[Any]:
    """The factors of a divisor: functions of the parameters and numbers."""
    several = isinstance(divisor, Sequence) and not isinstance(divisor, str)
    texts: Any = divisor if several else [divisor]
    factors = [settled("grid_div", text, parameters) for text in texts]
    for factor in factors:
        if not callable(factor) and not isinstance(factor, SupportsIndex):
            raise UsageError(f"grid_div has {factor!r}; give names of parameters or whole numbers")
    return factors


def _product(factors: Sequence[Any], values: ParameterValues) -> int:
    return prod(index(factor(values) if callable(factor) else factor) for factor in factors)


def _tuple(extent: Any) -> tuple[SupportsIndex, ...]:
    return tuple(extent) if isinstance(extent, Sequence) else (extent,)
