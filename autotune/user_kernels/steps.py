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

MOST_STEPS = 16


@dataclass(frozen=True)
class Step:
    """A kernel of the source, launched in order with others, cooperatively or as a reference.

        name=[autotune.Step("partial_sums", takes=[0, 2, 3]),
              autotune.Step("total", takes=[1, 2], grid=1)]

    All steps are timed together. What a step leaves out is that of `tune_kernel`.

    Attributes:
        name: the kernel, as `name` of `tune_kernel`.
        grid: its blocks.
        block: its threads.
        shared: its bytes of dynamic shared memory.
        takes: the positions in `arguments`, from 0, of those that it takes, in its order; None for
            all.
        cooperative: whether all blocks run at the same time, so that they can wait for each other
            (`cooperative_groups::this_grid().sync()`). A grid beyond that is rejected.
    """

    name: str
    grid: Extents | None = None
    block: Extents | None = None
    shared: SharedBytes | None = None
    takes: Sequence[int] | None = None
    cooperative: bool = False


@dataclass(frozen=True)
class Scratch:
    """An array argument that hands values from one kernel to the next; nobody checks its contents.

        arguments=[x, total, autotune.Scratch(lambda p: n // p["TILE"], "float32")]

    It holds NaN, in whole numbers -1, before each verified run.

    Attributes:
        shape: its number of elements, or its sizes; or a function of the parameters.
        dtype: the type of its elements, as NumPy has it.
    """

    shape: Extents
    dtype: Any

    @property
    def element(self) -> np.dtype[Any]:
        """The type of its elements.

        Raises:
            UsageError: if NumPy does not have it.
        """
        try:
            element: np.dtype[Any] = np.dtype(self.dtype)
        except TypeError as error:
            raise UsageError(f"dtype of Scratch is {self.dtype!r}; give a type of NumPy") from error
        return element

    def size(self, config: Config) -> int:
        """Its bytes in a configuration.

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
        dtype: its NumPy type, the same for all configurations.
    """

    place: int
    function: Callable[[ParameterValues], Any]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, place: int, function: Callable[[ParameterValues], Any], config: Config) -> Computed:
        """The number that a function returns, whose type is that of one configuration."""
        return cls(place, function, _number(place, function, config).dtype)

    def value(self, config: Config) -> np.generic:
        """Its value in a configuration.

        Raises:
            UsageError: for another type, or if its function fails.
        """
        number = _number(self.place, self.function, config)
        if number.dtype != self.dtype:
            raise UsageError(
                f"argument {self.place} is {number.dtype.name} for {config} and {self.dtype.name} "
                "for another configuration; return one type"
            )
        return number


def _number(place: int, function: Callable[[ParameterValues], Any], config: Config) -> np.generic:
    number = evaluate(f"argument {place}", function, config)
    if not isinstance(number, np.generic) or number.dtype.name not in SCALARS:
        raise UsageError(
            f"argument {place} is {number!r} for {config}; return a number with the type of the "
            "kernel's parameter, such as numpy.int32(n)"
        )
    if not np.isfinite(number):
        raise UsageError(f"argument {place} is {number!r} for {config}; return a finite number")
    return number


Varying = Scratch | Computed
"""An argument that depends on the configuration."""


def is_function(argument: object) -> bool:
    """Whether an argument is a function of the parameters, rather than an array or a number."""
    return callable(argument) and not hasattr(argument, "dtype")


def varying(arguments: Sequence[object]) -> Mapping[int, Varying]:
    """The arguments that depend on the configuration, by their positions."""
    return {
        place: argument
        for place, argument in enumerate(arguments)
        if isinstance(argument, Scratch | Computed)
    }


def in_configuration(arguments: Sequence[object], config: Config) -> list[Any]:
    """The arguments as a configuration takes them; scratch memory as an array of one element."""
    taken: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Scratch):
            argument = np.empty(1, argument.element)
        elif isinstance(argument, Computed):
            argument = argument.value(config)
        taken.append(argument)
    return taken


def checked_steps(name: str | Step | Sequence[str | Step]) -> tuple[Step, ...]:
    """The steps that `name` of `tune_kernel` gives.

    Raises:
        UsageError: for none, too many, or another thing than the names of kernels and steps.
    """
    named: Sequence[Any] = name if isinstance(name, list | tuple) else [name]
    steps = tuple(Step(step) if isinstance(step, str) else step for step in named)
    if not 1 <= len(steps) <= MOST_STEPS or not all(isinstance(step, Step) for step in steps):
        raise UsageError(
            f"name is {name!r}; give the name of the kernel, or 1 to {MOST_STEPS} autotune.Step "
            "that run in order"
        )
    return steps


def checked_places(step: Step) -> tuple[int, ...] | None:
    """The positions of the arguments that a step takes; None for all.

    Raises:
        UsageError: for what is not a list of positions.
    """
    if step.takes is None:
        return None
    places = step.takes
    if not isinstance(places, list | tuple | range) or not all(
        isinstance(place, SupportsIndex) and index(place) >= 0 for place in places
    ):
        raise UsageError(
            f"takes of {step.name} is {places!r}; give a list of positions in `arguments`, from 0"
        )
    return tuple(map(index, places))
