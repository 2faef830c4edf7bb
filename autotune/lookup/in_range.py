"""Second step: a tuned range that covers the problem."""

from __future__ import annotations

import math

from autotune.device import Device
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.answer import Answer, best_legal, recorded_objective, vendor_wins
from autotune.lookup.neighbours import learn_errors
from autotune.problem import Problem
from autotune.records import Records
from autotune.records.ranges import Range
from autotune.records.standing import BEST_FIRST
from autotune.runners.objective import HOT, Objective


def in_range(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The answer of the range with the least expected loss that covers the problem.

    Measured ranges come before replayed ones, and of these the ranges that were tuned for the
    objective before others.
    Ranges that rest on predictions, or whose record is missing, predicted or illegal for the
    problem, are passed over.
    """
    ranges = sorted(
        records.ranges(device),
        key=lambda tuned: (
            BEST_FIRST.index(tuned.evidence),
            tuned.objective != objective,
            tuned.loss,
        ),
    )
    answers = (_answer(tuned, problem, device, records, objective) for tuned in ranges)
    return next((answer for answer in answers if answer is not None), None)


def _answer(
    tuned: Range, problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    point = tuned.point(problem)
    if point is None or tuned.evidence == "predicted":
        return None
    record = records.load(device, point)
    if record is None or record.evidence == "predicted":
        return None
    objective = recorded_objective(record, objective)
    accuracy = None if point == problem else accuracy_filter(problem, device, [record])
    entry = best_legal(record, problem, device, objective, accuracy)
    if entry is None:
        return None
    predictions = learn_errors(problem, device, [record], objective).predict(
        [entry.config], problem, [entry.resources]
    )
    time_us = float(predictions.times[0])
    if not math.isfinite(time_us):
        return None
    return Answer(
        problem=problem,
        device=device,
        config=entry.config,
        how="range",
        evidence="predicted",
        record=record,
        time_us=time_us,
        note=f"{problem} on {device.name}: as {point.shape}, which is tuned for {tuned}",
        expected_loss=tuned.loss,
        vendor=vendor_wins(record, problem, objective),
        objective=objective,
    )
