"""The definition of a user kernel: source, parameters, constraints and geometry, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value
from autotune.families.plan import Template
from autotune.records.kernel_record import (
    LAUNCH_MACROS,
    CompilerName,
    Geometry,
    KernelSource,
    KernelStep,
)
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
    Enumeration,
    LegalSpace,
    Predicate,
    checked_constraints,
    checked_parameters,
    results_of,
)
from autotune.user_kernels.steps import Computed, Step, varying


@dataclass(frozen=True)
class UserKernel:
    """A user's definition of a kernel, or of several that run in order, checked.

    Attributes:
        source: the CUDA C++ source with its headers, and how an instance of the first kernel is
            compiled.
        includes: folders to search for headers that the source does not hold.
        parameters: the values of each parameter, in the order of enumeration.
        constraints: predicates that the values have to fulfil, by a short reason.
        steps: the kernels in their order.
        sizes: the grid, the block and the bytes of dynamic shared memory of each of them.
        text: a function that returns the text of a configuration, which `source` then lacks.
        any_compiler: whether nvcc may compile it where NVRTC cannot.
    """

    source: KernelSource
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    constraints: Mapping[str, Predicate]
    steps: tuple[KernelStep, ...]
    sizes: tuple[tuple[Extents, Extents, SharedBytes], ...]
    text: Callable[[ParameterValues], str] | None = None
    any_compiler: bool = False

    @property
    def name(self) -> str:
        """The name of the first kernel in C++, such as `filters::blur`."""
        return self.source.name

    @property
    def family(self) -> str:
        """The family of its configurations: the name without namespaces."""
        return self.name.rpartition("::")[2]

    @property
    def recorded(self) -> tuple[KernelStep, ...]:
        """The steps as a record keeps them; none for one plain kernel that takes all arguments."""
        plain = (KernelStep(self.source.name, self.source.form),)
        return () if self.steps == plain else self.steps

    def geometry(self, config: Config) -> tuple[Geometry, ...]:
        """The launch geometries of a configuration, one for each step.

        Raises:
            UsageError: if a grid, a block or the shared memory is not a size, or its function
                fails.
        """
        return tuple(geometry_of(*sizes, config) for sizes in self.sizes)

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

    def template(self, config: Config, place: int = 0) -> Template:
        """The template instance of a configuration, of the step at a place.

        Raises:
            UsageError: as `at` and `geometry`.
        """
        source = self.at(config).source
        geometry = self.geometry(config)[place] if source.launch_macros else None
        return self.steps[place].of(source).template(config, geometry)

    @cached_property
    def space(self) -> LegalSpace:
        """The combinations that fulfil all constraints.

        Raises:
            UsageError: if a constraint fails, or there are too many.
        """
        return Enumeration(self.family, self.parameters, self.constraints).space()

    @property
    def first(self) -> Config:
        """The first configuration that fulfils the constraints.

        Raises:
            UsageError: as `space`, or if there is none.
        """
        if not self.space.configs:
            raise UsageError("no combination of the parameters fulfils the constraints")
        first: Config = self.space.configs[0]
        return first

    @cached_property
    def geometries(self) -> tuple[NDArray[np.intp], list[tuple[Geometry, ...]]]:
        """The index of the geometries of each legal configuration, and those of the steps.

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


def steps_of(name: str | Step | Sequence[str | Step]) -> list[Step]:
    """The steps that `name` of `tune_kernel` gives; raises a `UsageError` for none."""
    named: Sequence[Any] = name if isinstance(name, list | tuple) else [name]
    steps = [Step(step) if isinstance(step, str) else step for step in named]
    if not steps or not all(isinstance(step, Step) for step in steps):
        raise UsageError(
            f"name is {name!r}; give the name of the kernel, or a list of autotune.Step"
        )
    return steps


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
    are not parameters."""
    mentioned = {word for _, text in read[1] if defines for word in _LAUNCH_MACRO.findall(text)}
    macros = (macro for macro in LAUNCH_MACROS if macro in mentioned and macro not in parameters)
    try:
        return KernelSource(name, form, *read, defines, options, compiler, tuple(macros))
    except ValueError as error:
        raise UsageError(f"{error}; rename the file, or change the kernel's name") from error


def define_kernel(
    source: Source,
    name: str | Step | Sequence[str | Step],
    parameters: Mapping[str, Sequence[Value]],
    *,
    constraints: Constraints | None,
    grid: Extents | None,
    block: Extents | None,
    shared: SharedBytes,
    problem_size: Extents | None = None,
    grid_div: Sequence[Divisor | None] | None = None,
    compile: Compilation | None = None,
) -> UserKernel:
    """The kernel that the arguments of `tune_kernel` define.

    Raises:
        UsageError: for an invalid name, parameter, constraint, option or folder, a file that cannot
            be read, or more configurations than a search can enumerate.
    """
    values, compile = checked_parameters(parameters), compile or Compilation()
    require_list("include", compile.include)
    steps = steps_of(name)
    forms = [instance_form(step.name, tuple(values), compile.defines) for step in steps]
    folders = [header_folder(folder) for folder in compile.include]
    text = source if callable(source) else None
    file, further = ("", ()) if callable(source) else check_source(source)
    read = read_files(file, forms[0][0], folders, further)
    own = [path.resolve().parent for path in (file, *further) if isinstance(path, Path)]
    options, compiler = check_options(compile.options, values), check_compiler(compile.compiler)
    sources = [_source(read, values, *form, compile.defines, options, compiler) for form in forms]

    def sizes(step: Step) -> tuple[Extents, Extents, SharedBytes]:
        of_call = grid, problem_size, grid_div
        extent, size, by = of_call if step.grid is None else (step.grid, None, None)
        extent, size = settled("grid", extent, values), settled("problem_size", size, values)
        threads = settled("block", block if step.block is None else step.block, values)
        threads = block_extents(threads, values)
        memory = settled("shared", shared if step.shared is None else step.shared, values)
        return grid_extents(extent, size, by, threads, values), threads, memory

    return UserKernel(
        source=sources[0],
        includes=tuple(dict.fromkeys((*own, *folders))),
        parameters=values,
        constraints=checked_constraints(constraints, values),
        steps=tuple(
            KernelStep(*form, step.places, bool(step.cooperative))
            for step, form in zip(steps, forms, strict=True)
        ),
        sizes=tuple(map(sizes, steps)),
        text=text,
        any_compiler=compile.compiler is None,
    )


def reference_kernel(kernel: UserKernel, step: Step, arguments: Sequence[object]) -> UserKernel:
    """The kernel of the same source that stands in for a reference, in a single configuration:
    macros have the first values of their parameters.

    Raises:
        UsageError: for a template argument, a geometry or an argument that depends on parameters.
    """
    plain, form = instance_form(step.name, tuple(kernel.parameters), True)
    grid, block, shared = step.grid, step.block, step.shared or 0
    wrong = f"the reference {step.name} is one kernel for all configurations, and"
    if kernel.text is not None:
        raise UsageError(f"{wrong} the source depends on the parameters; give a Python function")
    if "{" in form.replace("{{", ""):
        raise UsageError(f"{wrong} takes a tuned parameter; name a type or a number in its place")
    if (
        grid is None
        or block is None
        or any(callable(each) or isinstance(each, str) for each in (grid, block, shared))
    ):
        raise UsageError(f"{wrong} has no grid and block of its own; give numbers to its Step")
    own = KernelStep(plain, form, step.places, step.cooperative)
    for place in varying(arguments).keys() & {*own.taken(range(len(arguments)))}:
        raise UsageError(f"{wrong} takes argument {place}, which depends on it; give `takes`")
    firsts = {name: values[:1] for name, values in kernel.parameters.items()}
    parameters = firsts if kernel.source.defines else {}
    try:
        source = own.of(kernel.source)
    except ValueError as error:
        raise UsageError(f"reference: {error}") from error
    kernel = replace(kernel, source=source, parameters=parameters, constraints={})
    return replace(kernel, steps=(own,), sizes=((grid, block, shared),))


def checked_arguments(kernel: UserKernel, arguments: Sequence[Any]) -> list[Any]:
    """The arguments, functions of the parameters among them as `Computed`: their types are those
    of the first configuration that fulfils the constraints.

    Raises:
        UsageError: for a step that takes an argument which is not there, or a function that fails
            or returns another thing than a number of NumPy.
    """
    for step in kernel.steps:
        step.taken(arguments)
    typed = list(arguments)
    for place, argument in enumerate(arguments):
        if callable(argument) and not hasattr(argument, "dtype"):
            number = Computed(place, argument)
            typed[place] = replace(number, dtype=number.value(kernel.first).dtype)
    return typed
