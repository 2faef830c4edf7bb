"""Kernels that run in order as one, and the arguments that depend on the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import SCALARS
from autotune.user_kernels.geometry import Extents, ParameterValues, SharedBytes, evaluate


@dataclass(frozen=True)
class Step:
    """A kernel of the source: one of several in order, a cooperative one, or a naive reference.

        name=[autotune.Step("partial_sums", takes=[0, 2]),
              autotune.Step("total", takes=[2, 1], grid=1)]

    All steps are verified and timed together. What a step leaves out is that of `tune_kernel`; a
    reference has a grid and a block of its own.

    Attributes:
        name: the kernel, as `name` of `tune_kernel`.
        grid: its blocks.
        block: its threads.
        shared: its bytes of dynamic shared memory.
        takes: the positions in `arguments`, from 0, of those that it takes, in its order; None for
            all.
        cooperative: whether all blocks run at the same time, so that they can wait for each other
            (`cooperative_groups::this_grid().sync()`). A grid too large for that is rejected.
    """

    name: str
    grid: Extents | None = None
    block: Extents | None = None
    shared: SharedBytes | None = None
    takes: Sequence[int] | None = None
    cooperative: bool = False

    @property
    def places(self) -> tuple[int, ...] | None:
        """`takes`, checked.

        Raises:
            UsageError: for what is not a list of positions.
        """
        if self.takes is None:
            return None
        if not all(isinstance(place, SupportsIndex) and index(place) >= 0 for place in self.takes):
            raise UsageError(
                f"takes of {self.name} is {self.takes!r}; give a list of positions in `arguments`, "
                "counted from 0"
            )
        return tuple(map(index, self.takes))


@dataclass(frozen=True)
class Scratch:
    """An array argument that hands values from one kernel to the next; nobody checks its contents.

        arguments=[x, total, autotune.Scratch(1024, "float32")]

    It holds NaN, in whole numbers -1, before each verified run.

    Attributes:
        shape: its number of elements, or its sizes; or a function of the parameters.
        dtype: the type of its elements, as NumPy has it.
    """

    shape: Extents
    dtype: Any

    @property
    def element(self) -> np.dtype[Any]:
        """The type of its elements."""
        element: np.dtype[Any] = np.dtype(self.dtype)
        return element

    def size(self, config: Config) -> int:
        """The bytes that a configuration needs.

        Raises:
            UsageError: if its shape is none, or its function fails.
        """
        shape = evaluate("shape of Scratch", self.shape, config)
        sizes: list[Any] = list(shape) if isinstance(shape, Sequence) else [shape]
        if not all(isinstance(size, SupportsIndex) and index(size) > 0 for size in sizes):
            raise UsageError(
                f"shape of Scratch is {shape!r} for {config}; give whole numbers above 0 (`//` "
                "makes them, `/` does not)"
            )
        return prod(map(index, sizes)) * self.element.itemsize


@dataclass(frozen=True)
class Computed:
    """A number that depends on the configuration.

    Attributes:
        place: its position among the arguments, from 0.
        function: a function of the parameters that returns it.
        dtype: its NumPy type, the same for all configurations; None if it is not known yet.
    """

    place: int
    function: Callable[[ParameterValues], Any]
    dtype: np.dtype[Any] | None = None

    def value(self, config: Config) -> np.generic:
        """The number of a configuration.

        Raises:
            UsageError: for anything but a finite number of the type, or if its function fails.
        """
        number = evaluate(f"argument {self.place}", self.function, config)
        if not isinstance(number, np.generic) or number.dtype.name not in SCALARS:
            raise UsageError(
                f"argument {self.place} is {number!r} for {config}; return a number with the type "
                "of the kernel's parameter, such as numpy.int32(n)"
            )
        if number.dtype != (self.dtype or number.dtype) or not np.isfinite(number):
            raise UsageError(
                f"argument {self.place} is {number!r} for {config}; return finite numbers of one "
                f"type for all configurations, such as {(self.dtype or number.dtype).name}"
            )
        return number


Varying = Scratch | Computed
"""An argument that depends on the configuration."""


def varying(arguments: Sequence[object]) -> Mapping[int, Varying]:
    """The arguments that depend on the configuration, by their positions."""
    return {place: each for place, each in enumerate(arguments) if isinstance(each, Varying)}


def for_reference(arguments: Sequence[object]) -> list[Any]:
    """The arguments that a reference gets: None for those that depend on the configuration."""
    return [None if isinstance(each, Varying) else each for each in arguments]


def in_configuration(arguments: Sequence[object], config: Config) -> list[Any]:
    """The arguments as a configuration gives them; scratch memory as an array of one element."""
    values = list(arguments)
    for place, argument in varying(arguments).items():
        if isinstance(argument, Scratch):
            values[place] = np.empty(1, argument.element)
        else:
            values[place] = argument.value(config)
    return values
