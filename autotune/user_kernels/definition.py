"""The definition of a user kernel: source, parameters, constraints and geometry, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value
from autotune.families.plan import Template
from autotune.records.kernel_record import LAUNCH_MACROS, CompilerName, Geometry, KernelSource
from autotune.user_kernels.expressions import settled
from autotune.user_kernels.geometry import (
    Divisor,
    Extents,
    ParameterValues,
    SharedBytes,
    block_extents,
    evaluate,
    geometry_of,
    grid_extents,
)
from autotune.user_kernels.source import (
    Compilation,
    Source,
    Texts,
    check_compiler,
    check_options,
    check_source,
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
        text: a function that returns the text of a configuration, which `source` then lacks.
        any_compiler: whether nvcc may compile it where NVRTC cannot.
    """

    source: KernelSource
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    constraints: Mapping[str, Predicate]
    grid: Extents
    block: Extents
    shared: SharedBytes
    text: Callable[[ParameterValues], str] | None = None
    any_compiler: bool = False

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

    def at(self, config: Config) -> UserKernel:
        """The kernel with the source of a configuration.

        Raises:
            UsageError: if the function of the source fails, or returns another thing than text.
        """
        if self.text is None:
            return self
        text = evaluate("source", self.text, config)
        if not isinstance(text, str):
            raise UsageError(f"source of {config} is {text!r}; return CUDA C++ as text")
        own = self.source
        source = _source(
            read_files(text, own.name, self.includes),
            *(self.parameters, own.name, own.form, own.defines, own.options, own.compiler),
        )
        return replace(self, source=source, text=None)

    def config_of(self, template: Template) -> Config:
        """The configuration of a template instance."""
        return Config(self.family, cast("tuple[tuple[str, Value], ...]", template.arguments))

    def template(self, config: Config) -> Template:
        """The template instance of a configuration.

        Raises:
            UsageError: as `at` and `geometry`.
        """
        source = self.at(config).source
        return source.template(config, self.geometry(config) if source.launch_macros else None)

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


_LAUNCH_MACRO = re.compile(rf"\b(?:{'|'.join(LAUNCH_MACROS)})\b")


def _source(
    read: tuple[str, Texts, tuple[str, ...]],
    parameters: Mapping[str, object],
    name: str,
    form: str,
    defines: bool,
    options: tuple[str, ...],
    compiler: CompilerName,
) -> KernelSource:
    """The source of files that were read, with the macros of a launch that they mention and that
    are not parameters.

    Raises:
        UsageError: if it is no source.
    """
    mentioned = {word for _, text in read[1] if defines for word in _LAUNCH_MACRO.findall(text)}
    macros = (macro for macro in LAUNCH_MACROS if macro in mentioned and macro not in parameters)
    try:
        return KernelSource(name, form, *read, defines, options, compiler, tuple(macros))
    except ValueError as error:
        raise UsageError(f"{error}; rename the file, or change the kernel's name") from error


def define_kernel(
    source: Source,
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
    text = source if callable(source) else None
    file, further = ("", ()) if callable(source) else check_source(source)
    read = read_files(file, plain, folders, further)
    threads = block_extents(settled("block", block, values), values)
    own = [path.resolve().parent for path in (file, *further) if isinstance(path, Path)]
    options, compiler = check_options(compile.options, values), check_compiler(compile.compiler)
    return UserKernel(
        source=_source(read, values, plain, form, compile.defines, options, compiler),
        includes=tuple(dict.fromkeys((*own, *folders))),
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
        text=text,
        any_compiler=compile.compiler is None,
    )
