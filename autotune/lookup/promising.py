"""The configurations of a race: promising and diverse ones first, then those that their times
suggest."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest

from autotune.device import Device
from autotune.families.config import Config
from autotune.lookup.nearest import CAUTION, Neighbourhood, one_blas_thread, shortlist
from autotune.lookup.neighbours import accuracy_filter
from autotune.measure.objective import HOT, Objective
from autotune.model.model_error import ModelError, Predictions, Sample, SampleGroup, groups_of
from autotune.model.space import AccuracyFilter, diverse
from autotune.problem import Problem
from autotune.records import Records

RACED, FOLLOWING = 8, 6
"""Configurations of a race's first round, one for each second core of a usual host, measured in
0.1 s, and of its second round.

On 128 recorded shapes of an H200, each left out in turn, the best of eight reaches 0.969 of the
fastest recorded time, 0.62 at worst, and of 12 or 16 chosen at once 0.984 and 0.987 (0.79 and
0.83). Four that the times of eight suggest make it 0.987 (0.85), six 0.988, eight 0.990.
"""

OPTIMISM = 1.0
"""Standard deviations below the predicted time by which the second round is ranked. Measuring a
configuration that is hard to predict costs a single trial."""

VARIED = 8, 6
"""The number of best candidates that are varied, in each of two rounds.

On 100 recorded shapes of an H200, each left out in turn, the best of the eight reaches 0.961 of the
fastest time, by a model of the shape's own trials. Of a sample of 3,000 configurations of each
family, which takes eight times as long, it reaches 0.957.
"""


@dataclass(frozen=True)
class Contenders:
    """The candidates of a race, and the samples from which their times are predicted.

    Attributes:
        problem: the problem.
        device: the device.
        objective: the time that decides: `cold` only if the nearest record has cold times.
        learnt: samples of the nearest records.
        configs: the candidates; the first round comes first.
        count: most configurations of the first round.
    """

    problem: Problem
    device: Device
    objective: Objective
    learnt: Sequence[SampleGroup]
    configs: tuple[Config, ...]
    count: int

    @classmethod
    def between(cls, problem: Problem, device: Device, configs: tuple[Config, ...]) -> Contenders:
        """A race between these configurations, in one round."""
        return cls(problem, device, HOT, (), configs, len(configs))

    @property
    def first(self) -> tuple[Config, ...]:
        """The first round, the most promising first."""
        return self.configs[: self.count]

    def without(self, barred: Collection[Config]) -> Contenders:
        """The contenders without barred candidates; the next candidates take their places in the
        first round."""
        return replace(self, configs=tuple(each for each in self.configs if each not in barred))

    def of_families(self, names: Collection[str]) -> Contenders:
        """The contenders of some families alone."""
        first, rest = (
            tuple(config for config in configs if config.family in names)
            for configs in (self.first, self.configs[self.count :])
        )
        return replace(self, configs=first + rest, count=len(first))

    def following(
        self, timed: Sequence[Sample], tried: Collection[Config], count: int
    ) -> tuple[Config, ...]:
        """The `count` candidates, but not those `tried`, with the shortest optimistic times, given
        samples of the first round."""
        rest = [config for config in self.configs if config not in tried]
        groups = [*self.learnt, *groups_of(timed, self.problem, self.device)]
        predictions = ModelError(self.device, groups).predict(rest, self.problem)
        times = predictions.cautious(-OPTIMISM)
        places = (place for place in times.argsort(kind="stable") if times[place] < math.inf)
        return tuple(rest[place] for place in islice(places, count))


def contenders(
    problem: Problem,
    device: Device,
    records: Records,
    objective: Objective = HOT,
    count: int = RACED,
    configs: Sequence[Config] | None = None,
) -> Contenders:
    """The `count` configurations to race, and what there is to race after them.

    Half of the first round are the fastest by the expected time. The others are the fastest by a
    cautious time among those that keep the accuracy bound however accurate the vendor's library is.
    All come from the entries of the nearest records, the portfolio and variants of the best of
    both; or from these `configs` alone.
    """
    near = Neighbourhood.of(problem, device, records, objective)
    accuracy = accuracy_filter(problem, device, near.records, verified=True)
    promised = accuracy_filter(problem, device, near.records)
    with one_blas_thread():
        if configs is None:
            listed, predictions = shortlist(near, accuracy, partial(_ranked, promised), VARIED)
        else:
            listed = accuracy.accurate(configs)
            predictions = near.errors.predict(listed, problem)
    first = diverse(_ranked(promised, listed, predictions), problem, count)
    every = tuple(dict.fromkeys((*first, *listed)))
    return Contenders(problem, device, near.objective, near.learnt, every, len(first))


def _ranked(
    promised: AccuracyFilter, configs: Sequence[Config], predictions: Predictions
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
