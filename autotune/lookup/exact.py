"""First step: a measured or replayed record of the problem itself."""

from __future__ import annotations

from autotune.device import Device
from autotune.lookup.answer import Answer, recorded_answer
from autotune.problem import Problem
from autotune.records import Records
from autotune.runners.base import Objective


def exact(
    problem: Problem, device: Device, records: Records, objective: Objective = "hot"
) -> Answer | None:
    """The best legal entry of the problem's record, unless that is only predicted."""
    record = records.load(device, problem)
    if record is None or record.evidence == "predicted":
        return None
    return recorded_answer(problem, device, record, "exact", 0.0, objective)
