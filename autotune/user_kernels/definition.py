"""The definition of a user kernel: source, parameters, constraints and geometry, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value
from autotune.records.kernel_record import Geometry, KernelSource
from autotune.user_kernels.expressions import settled
from autotune.user_kernels.geometry import (
    Divisor,
    Extents,
    SharedBytes,
    block_extents,
    geometry_of,
    grid_extents,
)
from autotune.user_kernels.source import (
    Compilation,
    check_options,
    header_folder,
    instance_form,
    read_files,
)
from autotune.user_kernels.space import (
    Constraints,
    LegalSpace,
    Predicate,
    checked_constraints,
    checked_parameters,
    legal_space,
    results_of,
)


@dataclass(frozen=True)
class UserKernel:
    """A user's definition of a kernel, checked.

    Attributes:
        source: the CUDA C++ source with its headers, and how an instance is compiled.
        includes: folders to search for headers that the source does not hold.
        parameters: the values of each parameter, in the order of enumeration.
        constraints: predicates that the values have to fulfil, by a short reason.
        grid: blocks along x, y and z, or a function that returns them.
        block: threads along x, y and z, or a function that returns them.
        shared: bytes of dynamic shared memory, or a function that returns them.
    """

    source: KernelSource
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    constraints: Mapping[str, Predicate]
    grid: Extents
    block: Extents
    shared: SharedBytes

    @property
    def name(self) -> str:
        """The name of the kernel in C++, such as `filters::blur`."""
        return self.source.name

    @property
    def family(self) -> str:
        """The family of its configurations: the name without namespaces."""
        return self.name.rpartition("::")[2]

    def geometry(self, config: Config) -> Geometry:
        """The launch geometry of a configuration.

        Raises:
            UsageError: if the grid, the block or the shared memory is not a size, or its function
                fails.
        """
        return geometry_of(self.grid, self.block, self.shared, config)

    @cached_property
    def space(self) -> LegalSpace:
        """The combinations that fulfil all constraints.

        Raises:
            UsageError: if a constraint fails, or there are too many.
        """
        return legal_space(self.family, self.parameters, self.constraints)

    @cached_property
    def geometries(self) -> tuple[NDArray[np.intp], list[Geometry]]:
        """The index of the geometry of each legal configuration, and the geometries.

        Raises:
            UsageError: as `space` and `geometry`.
        """
        return results_of(self.geometry, self.space.configs)

    @property
    def size(self) -> int:
        """The number of combinations."""
        return prod(map(len, self.parameters.values()))

    def combinations(self) -> Iterator[Config]:
        """All combinations of the values; the last parameter varies fastest."""
        names = tuple(self.parameters)
        for values in product(*self.parameters.values()):
            yield Config(self.family, tuple(zip(names, values, strict=True)))


def define_kernel(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    constraints: Constraints | None,
    grid: Extents | None,
    block: Extents | None,
    shared: SharedBytes,
    problem_size: Extents | None = None,
    grid_div: Sequence[Divisor] | None = None,
    compile: Compilation | None = None,
) -> UserKernel:
    """The kernel that the arguments of `tune_kernel` define.

    Raises:
        UsageError: for an invalid name, parameter, constraint, option or folder, a file that cannot
            be read, or more configurations than a search can enumerate.
    """
    values, compile = checked_parameters(parameters), compile or Compilation()
    require_list("include", compile.include)
    plain, form = instance_form(name, tuple(values), compile.defines)
    folders = [header_folder(folder) for folder in compile.include]
    read = read_files(source, plain, folders)
    threads = block_extents(settled("block", block, values), values)
    own = [source.resolve().parent] if isinstance(source, Path) else []
    try:
        options = check_options(compile.options, values)
        checked = KernelSource(plain, form, *read, compile.defines, options)
    except ValueError as error:
        raise UsageError(f"{error}; rename the file, or change the kernel's name") from error
    return UserKernel(
        source=checked,
        includes=(*own, *folders),
        parameters=values,
        constraints=checked_constraints(constraints, values),
        grid=grid_extents(
            settled("grid", grid, values),
            settled("problem_size", problem_size, values),
            grid_div,
            threads,
            values,
        ),
        block=threads,
        shared=settled("shared", shared, values),
    )
