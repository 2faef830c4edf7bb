"""The first product of a shape in the quick mode: a race before it, unless a graph is captured."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.runtime.state import Runtime

Racer = Callable[[Problem, Device, Objective], object]
"""Races the most promising configurations of a problem that has no record, and records it."""


def race_first(
    runtime: Runtime,
    racer: Racer,
    problem: Problem,
    ordinal: int,
    objective: Objective,
    arrays: Iterable[Any],
) -> None:
    """Races a problem before its first look-up; a warning says why, if it cannot.

    A stream that is captured runs nothing meanwhile: its products take what a look-up finds.
    """
    if runtime.has_answer(problem, ordinal, objective):
        return
    operands = tuple(arrays)
    stream = runtime.framework(operands[0], "A").stream(operands, ordinal)
    if runtime.driver.capture(stream):
        return
    try:
        racer(problem, runtime.gpu(ordinal).device, objective)
    except AutotuneError as error:
        warnings.warn(f"{problem} is not tuned: {error}", stacklevel=2)
