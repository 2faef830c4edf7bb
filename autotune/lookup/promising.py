"""The configurations of a problem that are most worth a race: fast as expected, and diverse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from autotune.candidates.recorded import as_tuned, for_compute, is_legal
from autotune.candidates.survey import survey
from autotune.device import Device, with_listed_clusters
from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.answer import recorded_objective
from autotune.lookup.nearest import CAUTION, NEIGHBOURS
from autotune.lookup.neighbours import by_remoteness, learn_errors
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.base import Objective

RACED = 8
"""Configurations of a race: one for each second core of a usual host, measured in 0.1 s."""
ALIKE = 2
"""The most that share tile and k-iterations: the model is often blind to what else differs."""


def promising(
    problem: Problem,
    device: Device,
    records: Records,
    objective: Objective = "hot",
    count: int = RACED,
    configs: Sequence[Config] | None = None,
) -> tuple[Config, ...]:
    """The configurations to race, the most promising first.

    Half of them are the fastest by the expected time and half by a cautious one, from the entries
    of the nearest records and from all legal configurations, or from these `configs` alone.
    """
    listed, pool = with_listed_clusters(device), records.records(device)
    pool = pool or records.related(device)
    near = by_remoteness(problem, device, pool)[:NEIGHBOURS]
    for record in near[:1]:
        objective = recorded_objective(record, objective)
    if configs is None:
        entries = (
            (for_compute(entry.config, problem), as_tuned(listed, record.device))
            for record in near
            for entry in record.entries
        )
        recorded = (config for config, card in entries if is_legal(config, problem, card))
        configs = [*dict.fromkeys(chain(recorded, survey(problem, listed)))]
    configs = accuracy_filter(problem, device, pool).accurate(configs)
    predictions = learn_errors(problem, listed, pool, objective).predict(configs, problem)
    rankings = [
        [configs[place] for place in times.argsort(kind="stable") if times[place] < float("inf")]
        for times in (predictions.times, predictions.cautious(CAUTION))
    ]
    taking_turns = filter(None, chain.from_iterable(zip_longest(*rankings)))
    return _diverse(dict.fromkeys(taking_turns), problem, count)


def _diverse(ranked: Iterable[Config], problem: Problem, count: int) -> tuple[Config, ...]:
    """The first `count`, without those too similar to better ones unless there are no others."""
    chosen: list[Config] = []
    alike: dict[object, int] = {}
    passed: list[Config] = []
    for config in ranked:
        if len(chosen) == count:
            break
        work = registry.find(config.family).work(config, problem)
        kind = config.family, work.tile, work.iterations
        alike[kind] = alike.get(kind, 0) + 1
        (chosen if alike[kind] <= ALIKE else passed).append(config)
    return (*chosen, *passed[: count - len(chosen)])
