"""The configurations a tuning run can try on a GEMM, and those it tries first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from autotune.candidates import cost, space
from autotune.candidates.legality import current, for_compute, kernel_kind, order_of
from autotune.candidates.space import ARCHITECTURE, diverse, unserved
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.registry import AUTO, families_of
from autotune.problem import Problem, distance
from autotune.records import Record
from autotune.runners.base import Runner
from autotune.runners.objective import HOT, Objective
from autotune.tuning.tunable import Candidates

GUESSES = 12
"""First guesses of the cost model."""

MORE_GUESSES = 12
"""Further guesses of the cost model, for as long as no configuration has worked."""

NEIGHBOURS, RUNNERS_UP = 4, 4
"""Nearest recorded problems whose winners are guessed, and entries of those of the same sizes."""


def candidates(
    problem: Problem,
    runner: Runner,
    family: str,
    unsafe: Callable[[Config], bool],
    *,
    survey: int | None = None,
    order: str | None = None,
) -> Candidates:
    """The configurations that the runner can measure, with an `order` of summation those of that
    order; `unsafe` ones count as quarantined.

    The cost model ranks `survey` of each family, evenly spread, or all.

    Raises:
        AutotuneError: if none is left.
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    rejected = Counter[str]()
    surveyed: list[Config] = []
    unranked: list[Config] = []
    for name in families_of(family, problem):
        legal = _legal(problem, runner, name, order)
        rejected.update(legal.rejected)
        safe = [config for config in legal.configs if not unsafe(config)]
        if len(safe) < len(legal.configs):
            rejected["quarantined"] += len(legal.configs) - len(safe)
        most = len(safe) + 1 if survey is None else survey
        surveyed += space.spread(safe, most)
        unranked += space.passed_over(safe, most)
    if not surveyed:
        raise AutotuneError(_no_candidates(problem, runner, family, rejected))
    ranked = tuple(config for _, config in cost.rank(surveyed, problem, runner.device))
    return Candidates(ranked, tuple(unranked), dict(rejected.most_common()))


def guesses(
    ranked: Sequence[Config],
    problem: Problem,
    records: Iterable[Record],
    objective: Objective = HOT,
) -> tuple[Config, ...]:
    """Configurations to try first: the model's best of each family, the winners on the nearest
    recorded problems, and the model's other choices."""
    chosen = diverse(ranked, problem, GUESSES + MORE_GUESSES)
    best_of = {config.family: config for config in reversed(chosen)}
    winners = neighbouring_winners(problem, records, objective)
    return tuple(dict.fromkeys((*sorted(best_of.values(), key=chosen.index), *winners, *chosen)))


def nearest(problem: Problem, recorded: Iterable[Problem]) -> list[Problem]:
    """The `NEIGHBOURS` recorded problems of the same kind that are nearest in size, those of the
    same sizes in other layouts included.

    Distance counts sizes and batch alone, unlike `lookup.neighbours.remoteness`: records that
    differ in epilogue or output only tie.
    """

    def order(item: Problem) -> tuple[float, bool, Problem]:
        return distance(item, problem), item.layout != problem.layout, item

    return sorted((item for item in recorded if _alike(item, problem)), key=order)[:NEIGHBOURS]


def neighbouring_winners(
    problem: Problem, records: Iterable[Record], objective: Objective = HOT
) -> list[Config]:
    """The winners on the nearest problems, and then the runners-up of those with the same sizes."""
    of = {record.problem: record for record in records}
    near = [of[item] for item in nearest(problem, of)]
    winners = [record.best_by(objective).config for record in near]
    same_sizes = (record for record in near if distance(record.problem, problem) == 0)
    runners_up = [entry.config for record in same_sizes for entry in record.entries[:RUNNERS_UP]]
    return [for_compute(config, problem) for config in dict.fromkeys((*winners, *runners_up))]


def _alike(recorded: Problem, problem: Problem) -> bool:
    """Whether the recorded problem is of the same kind, or has the same sizes and differs from that
    kind in the layout alone."""
    layout, *kind = kernel_kind(problem)
    recorded_layout, *recorded_kind = kernel_kind(recorded)
    if recorded_kind != kind:
        return False
    return recorded_layout == layout or distance(recorded, problem) == 0


def _legal(problem: Problem, runner: Runner, family: str, order: str | None) -> space.Space:
    """The legal configurations of a family, or those that the runner has recorded."""
    recorded = runner.known()
    if recorded is None:
        return space.feasible(problem, runner.device, family, order)
    usable = current(family, recorded, problem, runner.device)
    if order is not None:
        usable = tuple(config for config in usable if str(order_of(config, problem)) == order)
    outdated = sum(config.family == family for config in recorded) - len(usable)
    return space.Space(usable, {"parameters": outdated} if outdated else {})


def _no_candidates(problem: Problem, runner: Runner, family: str, rejected: Counter[str]) -> str:
    if runner.known() is None and ARCHITECTURE in rejected and len(rejected) == 1:
        return unserved(problem, runner.device, family)
    kernel = "configuration" if family == AUTO else f"{family} configuration"
    reasons = ", ".join(f"{reason} {count}" for reason, count in rejected.most_common())
    why = f"rejected: {reasons}" if reasons else "it knows none of that kind"
    return f"no {kernel} can run {problem} on {runner.device.name}; {why}"
