"""The choice for a problem without a record, as one pass.

    near        the nearest records, which correct the cost model
    candidates  their entries, the portfolio adapted to the problem, and variants of the best
    predicted   each candidate's time and its standard deviation
    ranked      by the time that a candidate rarely exceeds; the first is the choice

A race (`promising`) takes the same candidates and predictions, and ranks them in its own way. Where
no record is near, the cost model stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice, repeat, zip_longest

from threadpoolctl import ThreadpoolController

from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.model_error import ARITHMETIC, ModelError, Predictions
from autotune.candidates.recorded import Legality, as_tuned, for_compute
from autotune.candidates.samples import SampleGroup
from autotune.device import Device, same_model
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup import portfolio
from autotune.lookup.answer import (
    Answer,
    expected_loss,
    recorded_prediction,
    tune_command,
    vendor_wins,
)
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.digests import Near, of_architecture, own
from autotune.lookup.neighbours import REACH, TEACHERS, accuracy_filter
from autotune.lookup.vendor_time import beside_vendor
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.objective import HOT, Objective

NEIGHBOURS = 24
"""Records whose entries are candidates, the nearest."""

ENTRIES = 64
"""Their entries that are candidates: the best of each, then the second best of each."""

VARIED = 4
"""How many of the best candidates are varied in a look-up.

On 168 drawn shapes for an H200 the best of the adapted members of the portfolio takes 1.7 % longer
than the best of a survey and its variants, by the cost model; with the variants of four of them
0.9 %, a millisecond later. Members as they are take 6 % longer.
"""

CAUTION = 2.0
"""Standard deviations by which a configuration is taken to be slower than predicted: poorly known
configurations are more often slower than predicted than faster."""


@dataclass(frozen=True)
class Choice:
    """A configuration that could be answered.

    Attributes:
        cautious_us: microseconds that it rarely exceeds; choices are ranked by them.
        time_us: expected microseconds.
        deviation: standard deviation of the log of `time_us`.
        config: the configuration.
        record: the record that holds it; None if it is of the portfolio.
    """

    cautious_us: float
    time_us: float
    deviation: float
    config: Config
    record: RecordDigest | None

    @property
    def promise(self) -> tuple[float, str]:
        """The sort key of choices, the best first."""
        return self.cautious_us, str(self.config)


@dataclass(frozen=True)
class Shortlist:
    """Configurations that can be chosen for a problem, with their predicted times.

    Attributes:
        configs: the configurations.
        predictions: their times.
        holders: the records that hold some of them.
    """

    configs: list[Config]
    predictions: Predictions
    holders: dict[Config, RecordDigest]


Rank = Callable[[Sequence[Config], Predictions], Iterable[Config]]
"""Ranks configurations by their predicted times, the best first."""


def nearest(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The most promising configuration, by the records near the problem and the cost model; None
    if no configuration can run.

    Records of related devices count where the device's own are all far; a recorded prediction of
    the problem itself is answered where those are far too. Cold times decide only if
    the nearest record has some, and energies never. Of configurations that are nearly as fast, one
    whose programs came with the package is chosen.
    """
    near = Neighbourhood.of(problem, device, records, objective)
    stated = None if near.learnt else recorded_prediction(problem, device, records)
    if stated is not None:
        return beside_vendor(stated, near.records, records, math.sqrt(ARITHMETIC.signal))
    ranked = choices(near)
    if not ranked:
        return None
    times = [(choice.cautious_us, choice.config) for choice in ranked]
    choice = ranked[portfolio.ready_place(times, problem, device)]
    # Corrections of the model know nothing of the device's limits.
    least_us = 1e6 * near.objective.least_seconds(problem, device)
    choice = replace(choice, time_us=max(choice.time_us, least_us))
    answer = _recorded_answer(choice, near, records) or _model_answer(choice, near)
    return beside_vendor(answer, near.records, records, choice.deviation)


def choices(near: Neighbourhood) -> list[Choice]:
    """The accurate configurations that can run, the most promising first."""
    accuracy = accuracy_filter(near.problem, near.device, near.records)
    with one_blas_thread():
        listed = shortlist(near, accuracy, _by_promise, (VARIED,))
    return _choices(listed.configs, listed.predictions, listed.holders)


def shortlist(
    near: Neighbourhood, accuracy: AccuracyFilter, rank: Rank, varied: Sequence[int]
) -> Shortlist:
    """The accurate configurations for a problem, predicted: entries of near records, the portfolio
    adapted to the problem, and in turns variants of the best.

    Args:
        near: the problem, and the records near it.
        accuracy: judges configurations.
        rank: says which are the best.
        varied: how many of the best are varied in each turn.
    """
    problem, device = near.problem, near.device
    entries = near.entries()
    every = dict.fromkeys(chain(entries, portfolio.candidates(problem, device)))
    configs = accuracy.accurate([*every])
    compiled = [entries[config][0] if config in entries else None for config in configs]
    predictions = near.errors.predict(configs, problem, compiled)
    for most in varied:
        best = islice(rank(configs, predictions), most)
        added = portfolio.new_variants(best, {*configs}, accuracy, problem, device)
        configs = [*configs, *added]
        predictions = predictions.followed_by(near.errors.predict(added, problem))
    return Shortlist(configs, predictions, {config: row for config, (_, row) in entries.items()})


@dataclass(frozen=True)
class Neighbourhood:
    """A problem and the records near it.

    Attributes:
        problem: the problem.
        device: the device that runs it.
        ranked: the nearest records, near or not, each behind its remoteness.
        objective: the time that decides: `cold` only if the nearest record has cold times.
    """

    problem: Problem
    device: Device
    ranked: Sequence[Near]
    objective: Objective

    @classmethod
    def of(
        cls, problem: Problem, device: Device, records: Records, objective: Objective = HOT
    ) -> Neighbourhood:
        """The neighbourhood of a problem: of records of the device's model, or of the architecture
        where those are all far."""
        ranked = own(device, records).nearest(problem, device, TEACHERS)
        if not _near(ranked):
            ranked = of_architecture(device, records).nearest(problem, device, TEACHERS)
        decides = ranked[0][1].timed(objective) if _near(ranked) else HOT
        return cls(problem, device, ranked, decides)

    @property
    def records(self) -> list[RecordDigest]:
        """The nearest records, near or not."""
        return [record for _, record in self.ranked]

    @cached_property
    def learnt(self) -> list[SampleGroup]:
        """The timed entries of the nearest records; none if not even the nearest is near."""
        return samples(self.records, self.objective) if _near(self.ranked) else []

    @cached_property
    def errors(self) -> ModelError:
        """The cost model's errors on the nearest records."""
        return ModelError((), self.device, self.learnt)

    def entries(self) -> dict[Config, tuple[Resources, RecordDigest]]:
        """The entries of near records that the problem can run, the best of each record first, with
        their resources as compiled and their records."""
        near = [record for apart, record in self.ranked[:NEIGHBOURS] if apart <= REACH]
        judges = _judges(self.problem, self.device, near)
        entries: dict[Config, tuple[Resources, RecordDigest]] = {}
        seen: set[tuple[Config, Legality]] = set()
        columns = (zip(repeat(row), row.entries()) for row in near)
        for row, (stated, resources) in filter(None, chain.from_iterable(zip_longest(*columns))):
            config, legal = for_compute(stated, self.problem), judges[row.device]
            if len(entries) == ENTRIES:
                break
            if (config, legal) not in seen:
                seen.add((config, legal))
                if config not in entries and legal(config):
                    entries[config] = resources, row
        return entries


def _near(ranked: Sequence[Near]) -> bool:
    """Whether the first record, the nearest, is a neighbour."""
    return any(apart <= REACH for apart, _ in ranked[:1])


def _judges(
    problem: Problem, device: Device, records: Sequence[RecordDigest]
) -> dict[Device, Legality]:
    """The legality of entries, by the device of their record: one for all devices with the same
    resident clusters."""
    tuned_on = {row.device: as_tuned(device, row.device) for row in records}
    judges = {card: Legality(problem, card) for card in tuned_on.values()}
    return {ran_on: judges[card] for ran_on, card in tuned_on.items()}


def _choices(
    configs: Sequence[Config], predictions: Predictions, holders: dict[Config, RecordDigest]
) -> list[Choice]:
    rows = zip(
        *(predictions.cautious(CAUTION).tolist(), predictions.times.tolist()),
        *(predictions.deviations.tolist(), configs),
        strict=True,
    )
    made = (
        Choice(cautious_us, time_us, deviation, config, holders.get(config))
        for cautious_us, time_us, deviation, config in rows
        if cautious_us < math.inf
    )
    return sorted(made, key=lambda choice: choice.promise)


def _by_promise(configs: Sequence[Config], predictions: Predictions) -> Iterator[Config]:
    return (choice.config for choice in _choices(configs, predictions, {}))


def _recorded_answer(choice: Choice, near: Neighbourhood, records: Records) -> Answer | None:
    """The answer that gives an entry of a near record; None if it is of none."""
    if choice.record is None:
        return None
    problem, device = near.problem, near.device
    here = same_model(choice.record.device, device)
    record = records.load(device if here else choice.record.device, choice.record.problem)
    if record is None:
        return None
    where = "" if here else f" on {record.device.name}"
    return Answer(
        problem=problem,
        device=device,
        config=choice.config,
        how="nearest" if here else "related",
        evidence="predicted",
        record=record,
        time_us=choice.time_us,
        note=(
            f"{problem} is not tuned on {device.name}: using a configuration of "
            f"{_name_beside(record.problem, problem)}{where}; {tune_command(problem)} finds "
            "its own"
        ),
        # A related device's record is better than the model alone; by how much is not measured, as
        # no two related devices are recorded.
        expected_loss=expected_loss("near" if here else "model", choice.deviation),
        # An epilogue or another output does not change how fast the vendor's library is.
        vendor=here
        and vendor_wins(record, problem, near.objective)
        and _same_gemm(record.problem, problem),
        objective=near.objective,
    )


def _model_answer(choice: Choice, near: Neighbourhood) -> Answer:
    """The answer that gives a configuration of the cost model's."""
    problem, device = near.problem, near.device
    corrected = ", corrected by what is recorded of other problems" if near.learnt else ""
    return Answer(
        problem=problem,
        device=device,
        config=choice.config,
        how="predicted",
        evidence="predicted",
        record=None,
        time_us=choice.time_us,
        note=(
            f"{problem} is not tuned on {device.name}: using the model's choice{corrected}; "
            f"{tune_command(problem)} finds a better one"
        ),
        expected_loss=expected_loss("near" if near.learnt else "model", choice.deviation),
        objective=near.objective,
    )


def _same_gemm(recorded: Problem, problem: Problem) -> bool:
    """Whether two problems differ in nothing but epilogue and output."""
    plain, asked = (
        replace(either, epilogue="none", output="same") for either in (recorded, problem)
    )
    return plain == asked


def _name_beside(recorded: Problem, problem: Problem) -> str:
    """The recorded problem's text, without compute and layout where both problems share them."""
    same = (recorded.compute, recorded.layout) == (problem.compute, problem.layout)
    return f"{recorded.shape}{recorded.extras}" if same else str(recorded)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While it is open, BLAS runs in one thread: a choice multiplies matrices of some hundred rows,
    for which more threads wait longer than they work."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; to find them takes milliseconds."""
    return ThreadpoolController()
