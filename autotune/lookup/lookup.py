"""The look-up: from a problem to a configuration.

An exact record comes first, then a tuned range, then a choice (see `nearest`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autotune.device import Device
from autotune.lookup.answer import (
    Answer,
    best_legal,
    recorded_answer,
    recorded_objective,
    vendor_wins,
)
from autotune.lookup.kept_choice import kept_choice
from autotune.lookup.nearest import nearest
from autotune.lookup.neighbours import accuracy_filter, learn_errors
from autotune.measure.objective import HOT, Objective
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.records.ranges import Range
from autotune.records.standing import BEST_FIRST
from autotune.settings import Mode

QUICK_LOSS = 0.01
"""Mean loss of a quick race against full tuning."""


Find = Callable[[Problem, Device, Records, Objective], Answer | None]
"""A look-up in records."""


def lookup(
    problem: Problem, device: Device, store: Store, objective: Objective = HOT
) -> Answer | None:
    """The best known configuration for a problem on a device; None if nothing can run it.

    Measured records come before replayed ones, and the user's before the shipped ones. Only
    configurations that are legal for the problem today are answered. With the objective "cold" it
    is the best for operands that are not in L2, as far as cold times are recorded.
    """
    records = Records(store)
    answer = recorded(problem, device, records, objective)
    return answer or nearest(problem, device, records, objective)


def finder(mode: Mode) -> Find:
    """The look-up of a mode: the frozen mode does not guess, the others keep what they chose."""
    return recorded if mode.frozen else _recorded_or_kept


def _recorded_or_kept(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    answer = recorded(problem, device, records, objective)
    return answer or kept_choice(problem, device, records, objective)


def recorded(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The answer of a measured or replayed record of the problem, or of a tuned range."""
    exact = _exact(problem, device, records, objective)
    return exact or _in_ranges(problem, device, records, objective)


def _exact(
    problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    """The best legal entry of the problem's record, unless that is only predicted."""
    record = records.load(device, problem)
    if record is None or record.evidence == "predicted":
        return None
    loss = QUICK_LOSS if record.quick else 0.0
    return recorded_answer(problem, device, record, "exact", loss, objective)


def _in_ranges(
    problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    """The answer of the range with the least expected loss that covers the problem.

    Measured ranges come before replayed ones, and of these the ranges that were tuned for the
    objective before others. Ranges that rest on predictions, or whose record is missing, predicted
    or illegal for the problem, are skipped.
    """

    def order(tuned: Range) -> tuple[int, bool, float]:
        return BEST_FIRST.index(tuned.evidence), tuned.objective != objective, tuned.loss

    ranked = sorted(records.ranges(device), key=order)
    answers = (_in_range(tuned, problem, device, records, objective) for tuned in ranked)
    return next((answer for answer in answers if answer is not None), None)


def _in_range(
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
    errors = learn_errors(device, [record], objective)
    predictions = errors.predict([entry.config], problem, [entry.resources])
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
