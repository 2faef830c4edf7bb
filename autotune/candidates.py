"""What a tuning run can try on a problem, and what it had better try first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autotune import cost, families, space
from autotune.config import Config
from autotune.errors import AutotuneError
from autotune.problem import Problem, distance
from autotune.runner import Runner
from autotune.store import Record


@dataclass(frozen=True)
class Candidates:
    """At least one configuration, and how many fell to which reason.

    Those that the cost model ranked come first, the best predicted of them in front.
    """

    configs: tuple[Config, ...]
    rejected: Mapping[str, int]


def candidates(
    problem: Problem,
    runner: Runner,
    family: str,
    unsafe: Callable[[Config], bool],
    *,
    survey: int | None = None,
) -> Candidates:
    """What the runner can be asked for; what is `unsafe` counts as rejected, as quarantined.

    The cost model ranks `survey` of them, evenly spread, or all.

    Raises:
        AutotuneError: if nothing is left.
        ConfigError: if there is no such family.
    """
    known = runner.known()
    if known is None:
        feasible = space.feasible(problem, runner.device, family)
        configs, rejected = feasible.configs, dict(feasible.rejected)
    else:
        configs, rejected = tuple(one for one in known if one.family == family), {}
    safe = [config for config in configs if not unsafe(config)]
    if len(safe) < len(configs):
        rejected["quarantined"] = len(configs) - len(safe)
    if not safe:
        reasons = ", ".join(f"{why} {count}" for why, count in rejected.items())
        raise AutotuneError(
            f"no {family} configuration can run {problem} on {runner.device.name}; "
            f"{f'rejected: {reasons}' if reasons else 'it knows none of that family'}"
        )
    surveyed = safe if survey is None else space.spread(safe, survey)
    ranked = [config for _, config in cost.rank(surveyed, problem, runner.device)]
    first = frozenset(ranked)
    return Candidates((*ranked, *(one for one in safe if one not in first)), rejected)


def diverse(ranked: Iterable[Config], problem: Problem, count: int) -> list[Config]:
    """The best of each block tile of C, for the `count` tiles that come first in `ranked`.

    What else differs is often what the model is blind to, so the first of `ranked` are alike.
    """
    best: dict[tuple[int, int], Config] = {}
    for config in ranked:
        if len(best) == count:
            break
        best.setdefault(families.find(config.family).work(config, problem).tile, config)
    return list(best.values())


def transferred(problem: Problem, records: Iterable[Record], count: int) -> list[Config]:
    """The winners of the `count` recorded problems of the same kind that are nearest in shape."""
    kind = (problem.compute, problem.layout)
    near = sorted(
        (record for record in records if (record.problem.compute, record.problem.layout) == kind),
        key=lambda record: (distance(record.problem, problem), record.problem),
    )
    return [record.best.config for record in near[:count]]
