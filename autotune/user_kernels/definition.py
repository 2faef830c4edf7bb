"""The definition of a user kernel: source, parameters, constraints and geometry, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value
from autotune.records.kernel_record import Geometry, KernelSource, KernelStep
from autotune.user_kernels.geometry import (
    Divisor,
    Extents,
    SharedBytes,
    block_extents,
    evaluate,
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
from autotune.user_kernels.space import Predicate, checked_constraints, checked_parameters
from autotune.user_kernels.steps import Computed, Step, varying


@dataclass(frozen=True, kw_only=True)
class UserStep(KernelStep):
    """A kernel of the user and its geometry.

    Attributes:
        grid: blocks along x, y and z, or a function that returns them.
        block: threads along x, y and z, or a function that returns them.
        shared: bytes of dynamic shared memory, or a function that returns them.
    """

    grid: Extents
    block: Extents
    shared: SharedBytes


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
    """

    source: KernelSource
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    constraints: Mapping[str, Predicate]
    steps: tuple[UserStep, ...]

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
        steps = tuple(
            KernelStep(step.name, step.form, step.takes, step.cooperative) for step in self.steps
        )
        return () if steps == plain else steps

    def geometry(self, config: Config) -> tuple[Geometry, ...]:
        """The launch geometries of a configuration, one for each step.

        Raises:
            UsageError: if a grid, a block or the shared memory is not a size, or its function
                fails.
        """
        return tuple(geometry_of(step.grid, step.block, step.shared, config) for step in self.steps)

    def fulfils(self, config: Config) -> bool:
        """Whether a configuration fulfils all constraints; raises as `evaluate`."""
        return all(
            evaluate(f"constraint {reason!r}", predicate, config)
            for reason, predicate in self.constraints.items()
        )

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


def define_kernel(
    source: str | Path,
    name: str | Step | Sequence[str | Step],
    parameters: Mapping[str, Sequence[Value]],
    *,
    constraints: Mapping[str, Predicate] | None,
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
    read = read_files(source, forms[0][0], folders)
    own = [source.resolve().parent] if isinstance(source, Path) else []
    try:
        options = check_options(compile.options, values)
        sources = [
            KernelSource(plain, form, *read, compile.defines, options) for plain, form in forms
        ]
    except ValueError as error:
        raise UsageError(f"{error}; rename the file, or change the kernel's name") from error

    def user_step(step: Step, form: tuple[str, str]) -> UserStep:
        threads = block_extents(block if step.block is None else step.block, values)
        of_call = grid, problem_size, grid_div
        of_step = of_call if step.grid is None else (step.grid, None, None)
        return UserStep(
            *(*form, step.places, bool(step.cooperative)),
            grid=grid_extents(*of_step, threads, values),
            block=threads,
            shared=shared if step.shared is None else step.shared,
        )

    return UserKernel(
        source=sources[0],
        includes=(*own, *folders),
        parameters=values,
        constraints=checked_constraints(constraints or {}),
        steps=tuple(map(user_step, steps, forms)),
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
    if "{" in form.replace("{{", ""):
        raise UsageError(f"{wrong} takes a tuned parameter; name a type or a number in its place")
    if grid is None or block is None or any(map(callable, (grid, block, shared))):
        raise UsageError(f"{wrong} has no grid and block of its own; give numbers to its Step")
    places = range(len(arguments)) if step.places is None else step.places
    for place in varying(arguments).keys() & set(places):
        raise UsageError(f"{wrong} takes argument {place}, which depends on it; give `takes`")
    own = UserStep(
        *(plain, form, tuple(places), step.cooperative), grid=grid, block=block, shared=shared
    )
    firsts = {name: values[:1] for name, values in kernel.parameters.items()}
    parameters = firsts if kernel.source.defines else {}
    try:
        source = own.of(kernel.source)
    except ValueError as error:
        raise UsageError(f"reference: {error}") from error
    naive = replace(kernel, source=source, parameters=parameters, constraints={}, steps=(own,))
    checked_arguments(naive, arguments)
    return naive


def checked_arguments(kernel: UserKernel, arguments: Sequence[Any]) -> list[Any]:
    """The arguments, functions of the parameters among them as `Computed`: their types are those
    of the first configuration that fulfils the constraints.

    Raises:
        UsageError: for a step that takes an argument which is not there, or a function that fails
            or returns another thing than a number of NumPy.
    """
    for step in kernel.steps:
        if (last := max(step.takes or (), default=-1)) >= len(arguments):
            raise UsageError(
                f"{step.name} takes argument {last}; there are {len(arguments)}, counted from 0"
            )
    typed = list(arguments)
    for place, argument in enumerate(arguments):
        if callable(argument) and not hasattr(argument, "dtype"):
            first = next(filter(kernel.fulfils, kernel.combinations()), None)
            if first is None:
                raise UsageError("no combination of the parameters fulfils the constraints")
            number = Computed(place, argument)
            typed[place] = replace(number, dtype=number.value(first).dtype)
    return typed
