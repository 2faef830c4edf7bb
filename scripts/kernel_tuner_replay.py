"""Kernel Tuner's strategies on a recorded space, in its simulation mode.

`kernel_tuner` is in the dependency group `compare`; import this module only where it is needed.
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np
from constraint import Constraint
from kernel_tuner.interface import strategy_map
from spaces import Outcome, Space

from autotune.families.config import Config, Value
from autotune.measure.measurement import Failure

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
