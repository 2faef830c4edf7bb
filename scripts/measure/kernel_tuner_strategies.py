"""Kernel Tuner's strategies on a recorded space, in its simulation mode.

`kernel_tuner` is in the dependency group `compare`; import this module only where it is needed.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import kernel_tuner
import kernel_tuner.util
import numpy as np
from constraint import Constraint
from kernel_tuner.accuracy import Tunable
from kernel_tuner.core import KernelSource
from kernel_tuner.interface import strategy_map
from kernel_tuner.observers import BenchmarkObserver
from kernel_tuner.searchspace import Searchspace

from autotune import settings
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.plan import Argument, Launch, Struct
from autotune.measure.measurement import Failure
from autotune.problem import Problem

sys.path.append(str(Path(__file__).resolve().parents[1] / "fit"))

from replay import Outcome, Space

STRATEGIES: tuple[str, ...] = tuple(strategy_map)

KERNEL, SIZE = "space", 1
FAMILY = "family"
# The value of a parameter that a configuration's family lacks; for a numeric parameter a number
# below all others, since Kernel Tuner computes differences.
ABSENT, NO_NUMBER = "absent", -1

Point = tuple[Value, ...]


@dataclass(frozen=True)
class Grid:
    """The configurations as points of one grid, in Kernel Tuner's terms.

    Attributes:
        values: of each parameter that varies, in rising order; the family is one if there are
            several.
        points: by configuration.
    """

    values: Mapping[str, list[Value]]
    points: Mapping[Config, Point]


@dataclass(frozen=True)
class StrategyRun:
    """The configurations a strategy tried, each once, and the seconds it took to choose."""

    configs: tuple[Config, ...]
    seconds: float


def search(
    space: Space, strategy: str, seed: int, evaluations: int, seen: Mapping[Config, Outcome]
) -> StrategyRun:
    """Runs a strategy until it has tried `evaluations` different configurations or gives up.

    Kernel Tuner gets the feasible configurations, failures marked as it marks them itself, and its
    defaults for everything else.
    """
    grid = grid_of(space.configs)
    seed_all(seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example, no parameter is a block size
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps(cache_of(grid, seen)))
        results, _ = kernel_tuner.tune_kernel(
            *(KERNEL, "", SIZE, [], dict(grid.values)),
            lang="C",
            restrictions=[feasible(space.configs)],
            cache=str(cache),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": evaluations},
            seed=seed,
            quiet=True,
        )
    configs = {point: config for config, point in grid.points.items()}
    tried = dict.fromkeys(
        configs[tuple(result[name] for name in grid.values)] for result in results
    )
    milliseconds = sum(result["strategy_time"] for result in results)
    return StrategyRun(tuple(tried), milliseconds / 1e3)


def seed_all(seed: int) -> None:
    """Seeds the global generators, which strategies use and Kernel Tuner does not seed."""
    random.seed(seed)
    np.random.seed(seed)


def grid_of(configs: Sequence[Config]) -> Grid:
    """The grid of configurations of any families, without parameters of a single value."""
    rows = [{FAMILY: config.family, **config.values} for config in configs]
    names = dict.fromkeys(name for values in rows for name in values)
    columns = {name: _column(name, rows) for name in names}
    varying = {name: column for name, column in columns.items() if len(set(column)) > 1}
    chosen = varying or dict([*columns.items()][-1:])
    points = zip(*chosen.values(), strict=True)
    return Grid(
        values={name: sorted(set(column), key=_rank) for name, column in chosen.items()},
        points=dict(zip(configs, points, strict=True)),
    )


def cache_of(grid: Grid, seen: Mapping[Config, Outcome]) -> dict[str, Any]:
    """The space as a cache file of Kernel Tuner, with times in milliseconds."""
    return {
        "device_name": "recorded",
        "kernel_name": KERNEL,
        "problem_size": SIZE,
        "tune_params_keys": list(grid.values),
        "tune_params": grid.values,
        "objective": "time",
        "cache": {
            ",".join(map(str, point)): {
                **dict(zip(grid.values, point, strict=True)),
                **_result(seen[config]),
            }
            for config, point in grid.points.items()
        },
    }


@lru_cache(1)
def feasible(configs: tuple[Config, ...]) -> Among:
    """The restriction to these configurations."""
    grid = grid_of(configs)
    return Among(tuple(grid.values), tuple(grid.points.values()))


class Among(Constraint):  # type: ignore[misc]
    """Accepts the beginning of any point, in whichever order parameters are assigned.

    A recorded space may have thousands of points among billions of combinations; a rule about whole
    points would be evaluated for all of these.
    """

    def __init__(self, names: tuple[str, ...], points: tuple[Point, ...]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._points = points
        self._beginnings: dict[tuple[str, ...], set[Point]] = {}

    def __deepcopy__(self, memo: object) -> Among:
        return self

    def __call__(
        self,
        _variables: object,
        _domains: object,
        assignments: Mapping[str, Value],
        *_: object,
        **__: object,
    ) -> bool:
        """Whether any point has the values assigned so far."""
        names = tuple(assignments)
        if names not in self._beginnings:
            places = [self._places[name] for name in names]
            self._beginnings[names] = {tuple(point[at] for at in places) for point in self._points}
        return tuple(assignments.values()) in self._beginnings[names]


def _column(name: str, rows: Sequence[Mapping[str, Value]]) -> list[Value]:
    distinct = {values[name] for values in rows if name in values}
    if all(isinstance(value, int) for value in distinct):
        return [values.get(name, min(NO_NUMBER, *distinct)) for values in rows]
    return [str(values.get(name, ABSENT)) for values in rows]


def _rank(value: Value) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, str(value))


def _result(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Failure):
        failed = "CompilationFailedConfig" if outcome.stage == "compile" else "RuntimeFailedConfig"
        return {"__error__": failed}
    return {"time": outcome.time_us / 1e3}


SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "i32": np.int32,
    "i64": np.int64,
    "f32": np.float32,
    "pointer": np.uint64,
}

C_TYPES = {"i32": "int", "i64": "long long", "f32": "float", "pointer": "void*"}
_KERNEL = re.compile(r"__global__ void (__launch_bounds__\([^{]*\))\s+(\w+)\(([^{]*)\) \{\n")
_STRUCT = re.compile(r"const __grid_constant__ (\w+(?:<[^>]*>)?) \w+")

Params = Mapping[str, Value]


@dataclass(frozen=True)
class Kernel:
    """The single-launch configurations of one kernel, in Kernel Tuner's terms."""

    problem: Problem
    configs: tuple[Config, ...]

    @cached_property
    def grid(self) -> Grid:
        """The parameters that vary, and each configuration as a point."""
        return grid_of(self.configs)

    @cached_property
    def _configs(self) -> dict[tuple[Value, ...], Config]:
        return {point: config for config, point in self.grid.points.items()}

    def config(self, params: Params) -> Config:
        """The configuration with these parameters; further keys are ignored."""
        return self._configs[tuple(params[name] for name in self.grid.values)]

    def launch(self, params: Params) -> Launch:
        """The only launch of a configuration."""
        (launch,) = registry.plan(self.config(params), self.problem).launches
        return launch

    def blocks(self, params: Params) -> tuple[int, int, int]:
        """Blocks of the grid."""
        return self.launch(params).grid

    def shared(self, params: Params) -> int:
        """Bytes of dynamic shared memory."""
        return self.launch(params).shared

    @property
    def name(self) -> str:
        """The template instance, of the class that `source` ends with."""
        return self.launch(self._first).template.expression

    def source(self, params: Params) -> str:
        """The kernel's source, followed by the template arguments of a configuration."""
        launch = self.launch(params)
        text = (settings.source_dir() / launch.template.source).read_text(encoding="utf-8")
        return f"{_with_members(text, launch)}\n{launch.template.declaration}"

    def arguments(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The kernel's arguments, one by one; `arrays` holds `a`, `b` and `c`."""
        supplied = _supplied(self.problem) | dict(arrays)
        each = [self.launch(params).cells for params in self._all]
        return [
            self._argument(place, column, supplied)
            for place, column in enumerate(zip(*each, strict=True))
        ]

    def _argument(self, place: int, column: Sequence[Argument], supplied: Mapping[str, Any]) -> Any:
        values = {argument: _value(argument, supplied) for argument in dict.fromkeys(column)}
        if len(values) == 1:
            return values[column[0]]
        return Tunable(lambda params: self.launch(params).cells[place], values)

    @property
    def _first(self) -> Params:
        return next(iter(self._all))

    @property
    def _all(self) -> Iterator[Params]:
        names = tuple(self.grid.values)
        return (dict(zip(names, point, strict=True)) for point in self.grid.points.values())


def tune(
    kernel: Kernel,
    arguments: Sequence[Any],
    *,
    language: str,
    strategy: str,
    seconds: float,
    seed: int,
    cache: Path,
) -> None:
    """Runs Kernel Tuner with a time limit.

    Args:
        kernel: the kernel to tune.
        arguments: the arguments of the kernel.
        language: the backend.
        strategy: the search strategy.
        seconds: the time limit.
        seed: random seed.
        cache: the file for its measurements.
    """
    seed_all(seed)
    with threads_of(kernel):
        kernel_tuner.tune_kernel(
            kernel.name,
            kernel.source,
            kernel.blocks,
            arguments,
            dict(kernel.grid.values),
            grid_div_x=[],
            grid_div_y=[],
            grid_div_z=[],
            restrictions=[feasible(kernel.configs)],
            lang=language,
            defines={},
            smem_args={"size": kernel.shared},
            compiler_options=["--std=c++17", f"-I{settings.source_dir() / 'include'}"],
            observers=[OptIn(kernel)],
            strategy=strategy,
            strategy_options={"time_limit": seconds},
            cache=str(cache),
            quiet=True,
            seed=seed,
        )


@dataclass(frozen=True)
class Instance:
    """A configuration as Kernel Tuner hands it to the compiler."""

    name: str
    source: str
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared: int

    def compile(self, arch: str) -> bytes:
        """The cubin, compiled by NVRTC as the backends do; an error is an exception."""
        from cuda.core import Program, ProgramOptions

        include = str(settings.source_dir() / "include")
        options = ProgramOptions(std="c++17", arch=arch, include_path=include)
        program = Program(self.source, "c++", options)
        return bytes(program.compile("cubin", name_expressions=(self.name,)).code)


def instance(kernel: Kernel, config: Config) -> Instance:
    """Follows Kernel Tuner's own steps up to the compiler."""
    params = dict(zip(kernel.grid.values, kernel.grid.points[config], strict=True))
    names = kernel_tuner.util.default_block_size_names
    with threads_of(kernel):
        threads, grid = kernel_tuner.util.setup_block_and_grid(
            kernel.blocks, ([], [], []), params, names
        )
    source = KernelSource(kernel.name, kernel.source, "CUPY", {})
    name, text, _ = source.prepare_list_of_files(kernel.name, params, grid, threads, names)
    size = kernel_tuner.util.get_smem_args({"size": kernel.shared}, params)["size"]
    return Instance(name, text, grid, threads, size)


class OptIn(BenchmarkObserver):  # type: ignore[misc]
    """Allows the kernel that is timed its dynamic shared memory."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def register_configuration(self, params: Params) -> None:
        """Called before the first launch of a configuration."""
        size = self._kernel.shared(params)
        function = self.dev.func
        if hasattr(function, "max_dynamic_shared_size_bytes"):
            function.max_dynamic_shared_size_bytes = size
            return
        from cuda.bindings import driver

        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuFuncSetAttribute(function, most, size)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{size} bytes of dynamic shared memory: {status}")

    def get_results(self) -> dict[str, Any]:
        """Adds nothing to the times of Kernel Tuner's own observer."""
        return {}


@contextmanager
def threads_of(kernel: Kernel) -> Iterator[None]:
    """Makes Kernel Tuner take the block size from the launch, not from parameters."""

    def threads(params: Params, _names: object = None) -> tuple[int, int, int]:
        return kernel.launch(params).block

    with mock.patch.object(kernel_tuner.util, "get_thread_block_dimensions", threads):
        yield


def operands(problem: Problem, seed: int) -> dict[str, Any]:
    """Normal random A and B, and a C of zeros."""
    draw = np.random.default_rng(seed)
    return {
        "a": draw.standard_normal(problem.m * problem.k, np.float32),
        "b": draw.standard_normal(problem.k * problem.n, np.float32),
        "c": np.zeros(problem.m * problem.n, np.float32),
    }


def size_of(kernel: Kernel) -> int:
    """The number of configurations in Kernel Tuner's search space."""
    restrictions = [feasible(kernel.configs)]
    return int(Searchspace(dict(kernel.grid.values), restrictions, 1024).size)


def measured(cache: Path) -> list[dict[str, Any]]:
    """Kernel Tuner's measurements in order, also of an interrupted run."""
    if not cache.exists():
        return []
    content = kernel_tuner.util.read_cache(str(cache), open_cache=False)
    return [*content["cache"].values()]


def _with_members(text: str, launch: Launch) -> str:
    """The source of a kernel with a kernel of the same name that takes members, not structs."""
    match = _KERNEL.search(text)
    assert match is not None
    bounds, name, parameters = match.groups()
    types = iter(_STRUCT.findall(parameters))
    declared, passed = [], []
    for place, argument in enumerate(launch.arguments):
        members = argument.value.members if isinstance(argument.value, Struct) else ()
        for member, value in members or ((f"argument_{place}", argument),):
            declared.append(f"{C_TYPES[str(value.type)]} {member}")
        if members:
            struct = next(types)
            casts = (f"(decltype({struct}::{member})){member}" for member, _ in members)
            passed.append(f"{struct}{{{', '.join(casts)}}}")
        else:
            passed.append(f"argument_{place}")
    body = f"__device__ __forceinline__ void {name}_body({parameters}) {{\n"
    return (
        f"{text[: match.start()]}{body.replace('__grid_constant__ ', '')}{text[match.end() :]}\n"
        f"template <class Params>\n__global__ void {bounds} {name}({', '.join(declared)}) {{\n"
        f"    {name}_body<Params>({', '.join(passed)});\n}}\n"
    )


def _supplied(problem: Problem) -> dict[str, Any]:
    of = zip("abc", problem.leading_dimensions, problem.strides, strict=True)
    scalars: dict[str, Any] = {"alpha": 1.0, "beta": 0.0}
    for name, leading, stride in of:
        scalars |= {f"ld{name}": leading, f"stride_{name}": stride}
    return scalars


def _value(argument: Argument, supplied: Mapping[str, Any]) -> Any:
    if argument.value in ("a", "b", "c"):
        return supplied[str(argument.value)]
    # The bias and pointers into the workspace are null here.
    value = argument.value
    return SCALARS[str(argument.type)](supplied.get(value, 0) if isinstance(value, str) else value)
