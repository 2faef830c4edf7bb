"""Third step: what the nearest records suggest, together with the cost model that they correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat, zip_longest

from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.model_error import ModelError, Predictions
from autotune.candidates.recorded import Legality, as_tuned, for_compute
from autotune.compiler import installed
from autotune.device import Device, same_model
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.answer import Answer, tune_command, vendor_wins
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.digests import of_architecture, pool_of
from autotune.lookup.expected_loss import expected_loss
from autotune.lookup.neighbours import REACH, TEACHERS
from autotune.lookup.portfolio import VARIED, candidates, new_variants, ready_place
from autotune.lookup.predicted import advised, model_choice
from autotune.lookup.vendor_time import beside_vendor
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.objective import HOT, Objective

NEIGHBOURS = 24
"""Records whose entries can be answered, the nearest."""

CANDIDATES = 64
"""Their entries that are considered: the best of each, then the second best of each."""

CAUTION = 2.0
"""Standard deviations by which a configuration is taken to be slower than predicted: poorly known
configurations are more often slower than predicted than faster."""

CERTAIN = 0.06
"""Deviation below which a neighbour's configuration is not compared with those of the portfolio."""

CORRECTION = ", corrected by what is recorded of other problems"


@dataclass(frozen=True)
class NeighbourChoice:
    """A configuration that could be answered.

    Attributes:
        cautious_us: microseconds that it rarely exceeds; choices are ranked by them.
        time_us: expected microseconds.
        deviation: standard deviation of the log of `time_us`.
        config: the configuration.
        record: the record that holds it; None if the cost model found it.
    """

    cautious_us: float
    time_us: float
    deviation: float
    config: Config
    record: RecordDigest | None


def nearest(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The most promising configuration of the nearest records, or the corrected model's choice.

    Records of related devices count as those of problems that are an octave farther. The model
    chooses among all configurations where the records leave the time uncertain. Cold times decide
    only if the nearest record has some, and energies never.
    """
    near = neighbourhood(problem, device, records, objective)
    if near is None:
        return None
    objective, compiled = near.objective, installed.count(device.arch) > 0
    choices = near.choices(problem, device, everything=compiled)
    if not choices:
        return None
    ranked = [(choice.cautious_us, choice.config) for choice in choices]
    chosen = choices[ready_place(ranked, problem, device)]
    choice = _possible(chosen, problem, device, objective)
    answer = _answer(choice, problem, device, records, objective)
    return advised(beside_vendor(answer, near.pool, records, choice.deviation), records)


@dataclass(frozen=True)
class Neighbourhood:
    """The records that are near a problem.

    Attributes:
        ranked: all records with their remoteness, the nearest first.
        objective: the time that decides: `cold` only if the nearest record has cold times.
    """

    ranked: Sequence[tuple[float, RecordDigest]]
    objective: Objective

    @cached_property
    def pool(self) -> list[RecordDigest]:
        return [record for _, record in self.ranked]

    def choices(
        self, problem: Problem, device: Device, *, everything: bool
    ) -> list[NeighbourChoice]:
        """The accurate configurations, the most promising first: entries of the near records, and
        the portfolio's where these leave the time uncertain or `everything` is asked for."""
        errors = ModelError((), device, samples(self.pool[:TEACHERS], self.objective))
        accuracy = accuracy_filter(problem, device, self.pool)
        near = [record for apart, record in self.ranked[:NEIGHBOURS] if apart <= REACH]
        choices = from_records(problem, device, near, errors, accuracy)
        certain = bool(choices) and choices[0].deviation <= CERTAIN
        if everything or not certain:
            choices += from_portfolio(problem, device, errors, accuracy)
        return sorted(choices, key=_promise)


def neighbourhood(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Neighbourhood | None:
    """The records near a problem, of the architecture's devices; None if all are far from it."""
    ranked = pool_of(of_architecture(device, records)).by_remoteness(problem, device)
    if not ranked or ranked[0][0] > REACH:
        return None
    return Neighbourhood(ranked, ranked[0][1].timed(objective))


def from_records(
    problem: Problem,
    device: Device,
    near: Sequence[RecordDigest],
    errors: ModelError,
    accuracy: AccuracyFilter,
) -> list[NeighbourChoice]:
    """The accurate entries of near records, the most promising on the problem first."""
    judges = judges_of(problem, device, near)
    entries: dict[Config, tuple[Resources, RecordDigest]] = {}
    seen: set[tuple[Config, Legality]] = set()
    columns = (zip(repeat(row), row.entries()) for row in near)
    for row, (recorded, resources) in filter(None, chain.from_iterable(zip_longest(*columns))):
        config, legal = for_compute(recorded, problem), judges[row.device]
        if len(entries) == CANDIDATES:
            break
        if (config, legal) in seen:
            continue
        seen.add((config, legal))
        if config not in entries and legal(config) and accuracy.passes(config):
            entries[config] = resources, row
    compiled = [needed for needed, _ in entries.values()]
    predictions = errors.predict([*entries], problem, compiled)
    return _ranked(predictions, [*entries], [record for _, record in entries.values()])


def judges_of(
    problem: Problem, device: Device, records: Sequence[RecordDigest]
) -> dict[Device, Legality]:
    """The legality of entries, by the device of their record: one for all devices with the same
    resident clusters."""
    tuned_on = {row.device: as_tuned(device, row.device) for row in records}
    judges = {card: Legality(problem, card) for card in tuned_on.values()}
    return {ran_on: judges[card] for ran_on, card in tuned_on.items()}


def from_portfolio(
    problem: Problem, device: Device, errors: ModelError, accuracy: AccuracyFilter
) -> list[NeighbourChoice]:
    """The accurate ones of the configurations that serve any shape, and variants of the best."""
    configs = accuracy.accurate(candidates(problem, device))
    choices = _ranked(errors.predict(configs, problem), configs, [None] * len(configs))
    best = (choice.config for choice in choices[:VARIED])
    added = new_variants(best, {*configs}, accuracy, problem, device)
    return choices + _ranked(errors.predict(added, problem), added, [None] * len(added))


def _ranked(
    predictions: Predictions, configs: Sequence[Config], records: Sequence[RecordDigest | None]
) -> list[NeighbourChoice]:
    """Those that can run, the most promising first."""
    columns = predictions.cautious(CAUTION), predictions.times, predictions.deviations
    cautious, times, deviations = (column.tolist() for column in columns)
    choices = map(NeighbourChoice, cautious, times, deviations, configs, records)
    return sorted((choice for choice in choices if math.isfinite(choice.cautious_us)), key=_promise)


def _possible(
    choice: NeighbourChoice, problem: Problem, device: Device, objective: Objective
) -> NeighbourChoice:
    """The choice, with a time that the device can reach: corrections know nothing of its limits."""
    least_us = 1e6 * objective.least_seconds(problem, device)
    return replace(choice, time_us=max(choice.time_us, least_us))


def _promise(choice: NeighbourChoice) -> tuple[float, str]:
    return choice.cautious_us, str(choice.config)


def _answer(
    choice: NeighbourChoice,
    problem: Problem,
    device: Device,
    records: Records,
    objective: Objective,
) -> Answer:
    record, here = None, False
    if choice.record is not None:
        here = same_model(choice.record.device, device)
        holder = device if here else choice.record.device
        record = records.load(holder, choice.record.problem)
    if record is None:
        loss = expected_loss("near", choice.deviation)
        chosen = problem, device, choice.config, choice.time_us, loss
        return model_choice(*chosen, CORRECTION, objective)
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
        expected_loss=expected_loss("near", choice.deviation),
        # An epilogue or another output does not change how fast the vendor's library is.
        vendor=here
        and vendor_wins(record, problem, objective)
        and _same_gemm(record.problem, problem),
        objective=objective,
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
