"""Last step: the cost model's choice, recorded or made now."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import takewhile

from autotune.candidates import cost
from autotune.candidates.model_error import ARITHMETIC
from autotune.device import Device
from autotune.families.config import Config
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.answer import Answer, recorded_answer, tune_command, untuned_card
from autotune.lookup.digests import of_architecture, own, pool_of
from autotune.lookup.expected_loss import expected_loss
from autotune.lookup.portfolio import VARIED, candidates, new_variants, ready_place
from autotune.lookup.vendor_time import beside_vendor
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.objective import HOT, Objective


def predicted(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The cost model's choice: recorded if it tuned the problem, else made now.

    The model knows hot times only, so they decide whatever the objective. None if no configuration
    can run.
    """
    del objective
    answer = recorded_prediction(problem, device, records) or _ranked_now(problem, device)
    if answer is None:
        return None
    recorded = pool_of(of_architecture(device, records)).by_remoteness(problem, device)
    ranked = [row for _, row in recorded]
    answer = beside_vendor(answer, ranked, records, math.sqrt(ARITHMETIC.signal))
    return advised(answer, records)


def advised(answer: Answer, records: Records) -> Answer:
    """A guess, with what to run if nothing is recorded of the device's model."""
    if own(answer.device, records):
        return answer
    return replace(answer, advice=untuned_card(answer.device))


def model_choice(
    problem: Problem,
    device: Device,
    config: Config,
    time_us: float,
    loss: float,
    correction: str = "",
    objective: Objective = HOT,
) -> Answer:
    """The answer that gives a configuration of the model's.

    Args:
        problem: the problem asked about.
        device: the device that runs it.
        config: the model's choice.
        time_us: its predicted time in microseconds.
        loss: the expected loss against full tuning.
        correction: added to the note, which says how the model was corrected.
        objective: the time that it was chosen by.
    """
    return Answer(
        problem=problem,
        device=device,
        config=config,
        how="predicted",
        evidence="predicted",
        record=None,
        time_us=time_us,
        note=(
            f"{problem} is not tuned on {device.name}: using the model's choice{correction}; "
            f"{tune_command(problem)} finds a better one"
        ),
        expected_loss=loss,
        objective=objective,
    )


def recorded_prediction(problem: Problem, device: Device, records: Records) -> Answer | None:
    """The answer from a record that rests on the cost model alone; None if there is none."""
    record = records.load(device, problem)
    if record is None or record.evidence != "predicted":
        return None
    return recorded_answer(problem, device, record, "predicted", expected_loss("model", 0.0))


def ranked(problem: Problem, device: Device) -> list[tuple[float, Config]]:
    """The accurate members of the portfolio that can run and variants of the best, with the model's
    microseconds, the fastest first."""
    accuracy = accuracy_filter(problem, device, ())
    configs = accuracy.accurate(candidates(problem, device))
    times = cost.rank(configs, problem, device)
    best = (config for _, config in times[:VARIED])
    added = new_variants(best, {*configs}, accuracy, problem, device)
    times = sorted([*times, *cost.rank(added, problem, device)])
    return [*takewhile(lambda row: math.isfinite(row[0]), times)]


def _ranked_now(problem: Problem, device: Device) -> Answer | None:
    choices = ranked(problem, device)
    if not choices:
        return None
    time_us, config = choices[ready_place(choices, problem, device)]
    return model_choice(problem, device, config, time_us, expected_loss("model", 0.0))
