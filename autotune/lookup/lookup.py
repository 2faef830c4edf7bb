"""The look-up: four steps from a problem to a configuration, tried in order."""

from __future__ import annotations

from collections.abc import Callable

from autotune.device import Device
from autotune.lookup.answer import Answer
from autotune.lookup.exact import exact
from autotune.lookup.in_range import in_range
from autotune.lookup.nearest import nearest
from autotune.lookup.predicted import predicted
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.runners.objective import HOT, Objective

Step = Callable[[Problem, Device, Records, Objective], Answer | None]

RECORDED: tuple[Step, ...] = (exact, in_range)
"""The steps that do not guess."""

STEPS: tuple[Step, ...] = (*RECORDED, nearest, predicted)


def lookup(
    problem: Problem,
    device: Device,
    store: Store,
    objective: Objective = HOT,
    steps: tuple[Step, ...] = STEPS,
) -> Answer | None:
    """The best known configuration for a problem on a device; None if nothing can run it.

    Measured records come before replayed ones, and the user's before the shipped ones. Only
    configurations that are legal for the problem today are answered. With the objective "cold" it
    is the best for operands that are not in L2, as far as cold times are recorded.
    """
    records = Records(store)
    answers = (step(problem, device, records, objective) for step in steps)
    return next((answer for answer in answers if answer is not None), None)
