"""First step: a measured or replayed record of the problem itself."""

from __future__ import annotations

from autotune.device import Device
from autotune.lookup.answer import Answer, recorded_answer
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.objective import HOT, Objective

QUICK_LOSS = 0.01
"""Mean loss of a quick race against full tuning."""


def exact(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The best legal entry of the problem's record, unless that is only predicted."""
    record = records.load(device, problem)
    if record is None or record.evidence == "predicted":
        return None
    loss = QUICK_LOSS if record.provenance.quick else 0.0
    return recorded_answer(problem, device, record, "exact", loss, objective)
