"""Third step: what the nearest records suggest, together with the cost model that they correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.model_error import ModelError, Predictions
from autotune.candidates.recorded import as_tuned, for_compute, is_legal
from autotune.candidates.survey import survey
from autotune.device import Device, same_model, with_listed_clusters
from autotune.families.config import Config
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.answer import Answer, recorded_objective, tune_command, vendor_wins
from autotune.lookup.expected_loss import expected_loss
from autotune.lookup.neighbours import REACH, by_remoteness, learn_errors, remoteness
from autotune.lookup.predicted import model_choice
from autotune.lookup.vendor_time import vendor_is_expected
from autotune.occupancy import roofline
from autotune.problem import Problem
from autotune.records import Entry, Record, Records
from autotune.runners.base import Objective

NEIGHBOURS = 24
"""Records whose entries can be answered, the nearest."""

CAUTION = 2.0
"""Standard deviations by which a configuration is taken to be slower than predicted: poorly known
configurations are more often slower than predicted than faster."""

CERTAIN = 0.06
"""Deviation below which a neighbour's configuration is not compared with the cost model's own
choice, which takes a second to find."""

FASTER = "; cuBLAS is expected to be faster, and multiplies arrays of PyTorch and CuPy"
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
    record: Record | None


def nearest(
    problem: Problem, device: Device, records: Records, objective: Objective = "hot"
) -> Answer | None:
    """The most promising configuration of the nearest records, or the corrected model's choice.

    Records of related devices count where the device's own say nothing of the problem. The model
    chooses among all configurations where the records leave the time uncertain. Cold times decide
    only if the nearest record has some.
    """
    listed = with_listed_clusters(device)
    pool = records.records(device)
    if not _near(pool, problem, device):
        pool = [*pool, *records.related(device)]
    if not _near(pool, problem, device):
        return None
    for record in by_remoteness(problem, device, pool)[:1]:
        objective = recorded_objective(record, objective)
    errors = learn_errors(problem, listed, pool, objective)
    accuracy = accuracy_filter(problem, device, pool)
    choices = from_records(problem, listed, pool, errors, accuracy)
    if not choices or choices[0].deviation > CERTAIN:
        choices = [*choices[:1], *from_survey(problem, listed, errors, accuracy)[:1]]
    if not choices:
        return None
    choice = _possible(min(choices, key=_promise), problem, device, objective)
    if choice.record is not None:
        answer = _answer(choice, choice.record, problem, device, objective)
    else:
        loss = expected_loss("near", choice.deviation)
        answer = model_choice(
            *(problem, device, choice.config, choice.time_us, loss), CORRECTION, objective
        )
    expected = choice.time_us, choice.deviation, objective
    if answer.vendor or not vendor_is_expected(problem, device, pool, *expected):
        return answer
    return replace(answer, vendor=True, note=answer.note + FASTER)


def _near(records: Sequence[Record], problem: Problem, device: Device) -> bool:
    """Whether any record is a neighbour."""
    nearest_ones = by_remoteness(problem, device, records)[:1]
    return any(remoteness(record, problem, device) <= REACH for record in nearest_ones)


def from_records(
    problem: Problem,
    device: Device,
    records: Sequence[Record],
    errors: ModelError,
    accuracy: AccuracyFilter,
) -> list[NeighbourChoice]:
    """The accurate entries of the nearest records, the most promising on the problem first."""
    pool: dict[Config, tuple[Entry, Record]] = {}
    for record in by_remoteness(problem, device, records)[:NEIGHBOURS]:
        if remoteness(record, problem, device) > REACH:
            break
        card = as_tuned(device, record.device)
        for entry in record.entries:
            config = for_compute(entry.config, problem)
            if config in pool or not is_legal(config, problem, card):
                continue
            if accuracy.fault(config) is None:
                pool[config] = entry, record
    resources = [entry.resources for entry, _ in pool.values()]
    predictions = errors.predict([*pool], problem, resources)
    return _ranked(predictions, [*pool], [record for _, record in pool.values()])


def from_survey(
    problem: Problem, device: Device, errors: ModelError, accuracy: AccuracyFilter
) -> list[NeighbourChoice]:
    """Accurate configurations spread over all families, the most promising first."""
    configs = accuracy.accurate(survey(problem, device))
    return _ranked(errors.predict(configs, problem), configs, [None] * len(configs))


def _ranked(
    predictions: Predictions, configs: Sequence[Config], records: Sequence[Record | None]
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
    bound = roofline.least_hot_seconds if objective == "hot" else roofline.least_seconds
    return replace(choice, time_us=max(choice.time_us, 1e6 * bound(problem, device)))


def _promise(choice: NeighbourChoice) -> tuple[float, str]:
    return choice.cautious_us, str(choice.config)


def _answer(
    choice: NeighbourChoice,
    record: Record,
    problem: Problem,
    device: Device,
    objective: Objective,
) -> Answer:
    here = same_model(record.device, device)
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
