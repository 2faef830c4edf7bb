"""Grids that follow from the size of a problem, and blocks from the names of parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from operator import index
from typing import SupportsIndex, cast

from autotune.errors import UsageError
from autotune.problem.integers import ceil_div
from autotune.user_kernels.geometry import Extent, Extents, ParameterValues

Factor = str | SupportsIndex
Divisor = Factor | Sequence[Factor] | Callable[[ParameterValues], SupportsIndex]
"""The extent of a block along an axis of the problem: a parameter, a number, a product of several,
or a function of the parameters."""

AXES = "xyz"
BLOCK = tuple(f"block_size_{axis}" for axis in AXES)
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
    grid_div: Sequence[Divisor] | None,
    block: Extents,
    parameters: Collection[str],
) -> Extents:
    """The blocks of a grid, as given or such that they cover a problem.

    Args:
        grid: the blocks, or None.
        problem_size: the size along each axis, or None.
        grid_div: what a block covers along each axis; None is its threads.
        block: the threads of a block.
        parameters: the names of the parameters.

    Raises:
        UsageError: for neither or both of grid and problem_size, or an unknown parameter.
    """
    if (grid is None) == (problem_size is None):
        raise UsageError("give grid, or problem_size (with grid_div): one of both")
    if problem_size is None:
        if grid_div is not None:
            raise UsageError("grid_div divides problem_size; give that instead of grid")
        assert grid is not None
        return grid
    if isinstance(grid_div, str):
        raise UsageError(f"grid_div is {grid_div!r}; give a list with an entry for each axis")
    for divisor in grid_div or ():
        _check(divisor, parameters)
    size = problem_size

    def covering(values: ParameterValues) -> tuple[int, ...]:
        sizes = _tuple(size(values) if callable(size) else size)
        if grid_div is None:
            threads = _tuple(block(values) if callable(block) else block)
            covered = [index(extent) for extent in threads]
        else:
            covered = [_product(divisor, values) for divisor in grid_div]
        covered += [1] * (len(sizes) - len(covered))
        pairs = zip(sizes, covered, strict=False)
        return tuple(ceil_div(index(extent), step) for extent, step in pairs)

    return covering


def _check(divisor: Divisor, parameters: Collection[str]) -> None:
    if callable(divisor):
        return
    for factor in _factors(divisor):
        if isinstance(factor, str) and factor not in parameters:
            raise UsageError(
                f"grid_div names {factor!r}, which is no parameter; there are "
                f"{', '.join(parameters) or 'none'}"
            )
        if not isinstance(factor, str | SupportsIndex):
            raise UsageError(f"grid_div has {factor!r}; give names of parameters or whole numbers")


def _factors(divisor: Divisor) -> Sequence[Factor]:
    if isinstance(divisor, str) or not isinstance(divisor, Sequence):
        return (cast("Factor", divisor),)
    return divisor


def _product(divisor: Divisor, values: ParameterValues) -> int:
    if callable(divisor):
        return index(divisor(values))
    return prod(
        index(values[factor] if isinstance(factor, str) else factor) for factor in _factors(divisor)
    )


def _tuple(extent: Extent) -> tuple[SupportsIndex, ...]:
    return tuple(extent) if isinstance(extent, Sequence) else (extent,)
