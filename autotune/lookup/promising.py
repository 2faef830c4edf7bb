"""The configurations of a problem that are most worth a race: fast as expected, and diverse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest

from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.model_error import ModelError, Predictions
from autotune.candidates.recorded import for_compute
from autotune.device import Device, with_listed_clusters
from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.digests import own, related
from autotune.lookup.nearest import CAUTION, NEIGHBOURS, judges_of, pool_of
from autotune.lookup.neighbours import TEACHERS
from autotune.lookup.portfolio import candidates, new_variants
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.base import Objective

RACED = 8
"""Configurations of a race: one for each second core of a usual host, measured in 0.1 s."""
ALIKE = 2
"""The most that share tile and k-iterations: the model is often blind to what else differs."""
VARIED = 8, 6
"""How many of the best are varied, in each of two rounds.

On 100 recorded shapes of an H200, each left out in turn, the best of the eight reaches 0.961 of the
fastest time, by a model of the shape's own trials. Of a survey of 3,000 configurations of each
family, which takes eight times as long, it reaches 0.957.
"""


def promising(
    problem: Problem,
    device: Device,
    records: Records,
    objective: Objective = "hot",
    count: int = RACED,
    configs: Sequence[Config] | None = None,
) -> tuple[Config, ...]:
    """The configurations to race, the most promising first.

    Half of them are the fastest by the expected time. The others are the fastest by a cautious time
    among those that keep the accuracy bound however accurate the vendor's library is. They come
    from the entries of the nearest records, the portfolio and variants of the best of both; or from
    these `configs` alone.
    """
    listed = with_listed_clusters(device)
    digests = own(device, records) or related(device, records)
    pool = [record for _, record in pool_of(digests).by_remoteness(problem, device)]
    if objective != "cold" or not (pool and pool[0].cold):
        objective = "hot"
    errors = ModelError((), listed, samples(pool[:TEACHERS], objective))
    accuracy = accuracy_filter(problem, device, pool, verified=True)
    promised = accuracy_filter(problem, device, pool)
    listing: list[Config] = []
    if configs is None:
        recorded = _recorded(problem, listed, pool[:NEIGHBOURS])
        listing = [*dict.fromkeys(chain(recorded, candidates(problem, listed)))]
    configs = accuracy.accurate(listing if configs is None else configs)
    predictions = errors.predict(configs, problem)
    for most in VARIED if listing else ():
        best = islice(_ranked(configs, predictions, promised), most)
        added = new_variants(best, {*configs}, accuracy, problem, listed)
        configs = [*configs, *added]
        predictions = predictions.followed_by(errors.predict(added, problem))
    return _diverse(_ranked(configs, predictions, promised), problem, count)


def _recorded(problem: Problem, device: Device, near: Sequence[RecordDigest]) -> Iterator[Config]:
    """The entries of near records that the problem can run."""
    judges = judges_of(problem, device, near)
    for record in near:
        entries = (for_compute(config, problem) for config, _ in record.entries())
        yield from filter(judges[record.device], entries)


def _ranked(
    configs: Sequence[Config], predictions: Predictions, promised: AccuracyFilter
) -> Iterator[Config]:
    """The configurations that can run: the fastest by the expected time, and the fastest by a
    cautious time among those that `promised` accepts, in turn."""
    cautious = predictions.cautious(CAUTION)
    cautious[[not promised.passes(config) for config in configs]] = math.inf
    rankings = [
        [configs[place] for place in times.argsort(kind="stable") if times[place] < math.inf]
        for times in (predictions.times, cautious)
    ]
    return iter(dict.fromkeys(filter(None, chain.from_iterable(zip_longest(*rankings)))))


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
