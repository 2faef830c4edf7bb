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
from itertools import chain, islice, repeat, takewhile, zip_longest
from typing import NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.adaptation import variants
from autotune.candidates.legality import Legality, as_tuned, for_compute
from autotune.candidates.model_error import ARITHMETIC, ModelError, Predictions, SampleGroup
from autotune.cuda.cache import installed_count, is_installed
from autotune.device import Device, same_model
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup import portfolio
from autotune.lookup.answer import (
    Answer,
    How,
    expected_loss,
    recorded_prediction,
    tune_command,
    untuned_card,
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

ENTRIES = 32
"""Their entries that are candidates: the best of each, then the second best of each."""

VARIED = 4
"""How many of the best candidates are varied in a look-up.

On 168 drawn shapes for an H200 the best of the adapted members of the portfolio takes 1.7 % longer
than the best of a survey and its variants, by the cost model; with the variants of four of them
0.9 %, a millisecond later. Members as they are take 6 % longer.
"""

READY = 1.05
"""Predicted slowdown that is accepted for a program that came with the package. On 66 recorded
shapes, each left out in turn, with 15 or 40 % of the configurations compiled, it costs 1.1 % at
most in the mean."""

CAUTION = 2.0
"""Standard deviations by which a configuration is taken to be slower than predicted: poorly known
configurations are more often slower than predicted than faster."""


Rank = Callable[[Sequence[Config], Predictions], Iterable[Config]]
"""Ranks the configurations that can run by their predicted times, the best first."""


class Choice(NamedTuple):
    """A configuration that could be answered.

    Attributes:
        config: the configuration.
        cautious_us: microseconds that it rarely exceeds; choices are ranked by them.
        time_us: expected microseconds.
        deviation: standard deviation of the log of `time_us`.
    """

    config: Config
    cautious_us: float
    time_us: float
    deviation: float


def nearest(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The most promising configuration, by the records near the problem and the cost model; None
    if no configuration can run.

    Records of related devices count as those of problems that are an octave farther; a recorded
    prediction of the problem itself is answered where all are far. Cold times decide only if the
    nearest record has some, and energies never. Of configurations that are nearly as fast, one
    whose programs came with the package is chosen.
    """
    near = Neighbourhood.of(problem, device, records, objective)
    stated = None if near.learnt else recorded_prediction(problem, device, records)
    if stated is not None:
        deviation = math.sqrt(ARITHMETIC.signal)
        return _advised(beside_vendor(stated, near.records, records, deviation), near, records)
    ranked = choices(near)
    if not ranked:
        return None
    choice = next(_ready(ranked, problem, device), ranked[0])
    answer = _answer(choice, near, records)
    return _advised(beside_vendor(answer, near.records, records, choice.deviation), near, records)


def choices(near: Neighbourhood) -> list[Choice]:
    """The accurate configurations that can run, the most promising first."""
    accuracy = accuracy_filter(near.problem, near.device, near.records)
    with one_blas_thread():
        configs, predictions = shortlist(near, accuracy, _by_promise, (VARIED,))
    columns = predictions.cautious(CAUTION), predictions.times, predictions.deviations
    rows = dict(zip(configs, np.column_stack(columns).tolist(), strict=True))
    return [Choice(config, *rows[config]) for config in _by_promise(configs, predictions)]


def shortlist(
    near: Neighbourhood, accuracy: AccuracyFilter, rank: Rank, varied: Sequence[int]
) -> tuple[list[Config], Predictions]:
    """The accurate configurations for a problem, and their predicted times: entries of near
    records, the portfolio adapted to the problem, and in turns variants of the best.

    Args:
        near: the problem, and the records near it.
        accuracy: judges configurations.
        rank: says which are the best.
        varied: how many of the best are varied in each turn.
    """
    problem, device, entries = near.problem, near.device, near.entries
    every = dict.fromkeys(chain(entries, portfolio.candidates(problem, device)))
    configs = accuracy.accurate([*every])
    compiled = [entries[config][0] if config in entries else None for config in configs]
    predictions = near.errors.predict(configs, problem, compiled)
    for most in varied:
        best = islice(rank(configs, predictions), most)
        changed, listed = variants(best, problem, device), {*configs}
        added = [config for config in accuracy.passing(changed) if config not in listed]
        configs = [*configs, *added]
        predictions = predictions.followed_by(near.errors.predict(added, problem))
    return configs, predictions


def nearly_fastest(ranked: Sequence[Choice]) -> Iterator[Choice]:
    """The choices expected to take at most `READY` times as long as the first, the fastest."""
    return takewhile(lambda choice: choice.cautious_us <= READY * ranked[0].cautious_us, ranked)


def _ready(ranked: Sequence[Choice], problem: Problem, device: Device) -> Iterator[Choice]:
    """The nearly fastest choices whose programs came with the package."""
    if installed_count(device.arch):
        for choice in nearly_fastest(ranked):
            if ready(choice.config, problem, device):
                yield choice


def ready(config: Config, problem: Problem, device: Device) -> bool:
    """Whether the programs of a configuration came with the package.

    Raises:
        OSError: if a source cannot be read.
    """
    launches = registry.plan(config, problem).launches
    return all(is_installed(launch.template, device.arch) for launch in launches)


def _by_promise(configs: Sequence[Config], predictions: Predictions) -> Iterator[Config]:
    cautious = predictions.cautious(CAUTION).tolist()
    ranked = sorted(zip(cautious, map(str, configs), configs, strict=True))
    return (config for time_us, _, config in ranked if time_us < math.inf)


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
        """The neighbourhood of a problem: of records of the architecture's devices."""
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
        return ModelError(self.device, self.learnt)

    @cached_property
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


def _answer(choice: Choice, near: Neighbourhood, records: Records) -> Answer:
    """The answer that gives a choice, with its record if that still holds it."""
    problem, device, objective = near.problem, near.device, near.objective
    record, here = None, True
    if choice.config in near.entries:
        holder = near.entries[choice.config][1]
        here = same_model(holder.device, device)
        record = records.load(device if here else holder.device, holder.problem)
    how: How = "predicted" if record is None else "nearest" if here else "related"
    vendor, tune = False, tune_command(problem)
    if record is None:
        corrected = ", corrected by what is recorded of other problems" if near.learnt else ""
        using = f"the model's choice{corrected}; {tune} finds a better one"
    else:
        where = "" if here else f" on {record.device.name}"
        beside = _name_beside(record.problem, problem)
        using = f"a configuration of {beside}{where}; {tune} finds its own"
        # An epilogue or another output does not change how fast the vendor's library is.
        same = here and _same_gemm(record.problem, problem)
        vendor = same and vendor_wins(record, problem, objective)
    return Answer(
        problem=problem,
        device=device,
        config=choice.config,
        how=how,
        evidence="predicted",
        record=record,
        # Corrections of the model know nothing of the device's limits.
        time_us=max(choice.time_us, 1e6 * objective.least_seconds(problem, device)),
        note=f"{problem} is not tuned on {device.name}: using {using}",
        expected_loss=expected_loss("near" if near.learnt else "model", choice.deviation),
        vendor=vendor,
        objective=objective,
    )


def _advised(answer: Answer, near: Neighbourhood, records: Records) -> Answer:
    """A guess, with what to run if nothing is recorded of the device's model."""
    cards = {id(row.device): row.device for row in near.records}  # hashing a device takes longer
    tuned = any(same_model(card, near.device) for card in cards.values())
    if tuned or len(own(near.device, records)):
        return answer
    return replace(answer, advice=untuned_card(near.device))


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
