"""Problem to configuration: an exact record, else a near one, else the model's choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from autotune import cost, families, space
from autotune.config import Config
from autotune.device import Device
from autotune.errors import ConfigError
from autotune.problem import Problem, distance
from autotune.runner import Evidence
from autotune.store import Entry, Record, Store

How = Literal["exact", "nearest", "predicted"]

# Guesses: a shape further off than a factor of 8 in one dimension (2 in all three are 1.7) says
# little of this one, and a fourth neighbour little that the first three do not.
REACH = 3.0
NEIGHBOURS = 3
# Configurations that the model chooses among; all would keep the first product waiting for seconds.
SURVEY = 3000


@dataclass(frozen=True)
class Answer:
    """What to run for a problem, and why.

    Attributes:
        problem: what was asked.
        device: where it is to run.
        config: what to run.
        how: `exact`, the problem is recorded; `nearest`, a record of a similar problem;
            `predicted`, the model's choice.
        evidence: what `time_us` rests on; for anything but an exact record it is `predicted`.
        record: the record that the configuration is from; None if it is the model's choice.
        time_us: measured or predicted time of one run in microseconds; None if unknown.
        note: one line for the user: where the answer comes from and how to get a better one.
    """

    problem: Problem
    device: Device
    config: Config
    how: How
    evidence: Evidence
    record: Record | None
    time_us: float | None
    note: str

    @property
    def entry(self) -> Entry | None:
        """What is recorded of the configuration, for the record's problem."""
        entries = self.record.entries if self.record else ()
        return next((entry for entry in entries if entry.config == self.config), None)


def lookup(problem: Problem, device: Device, store: Store) -> Answer | None:
    """The best that is known for a problem on a device; None if nothing can run it.

    Only configurations that are legal for the problem today are answered. In this order: what
    was measured (or replayed) for the problem, for a similar problem, what the model chose when
    it was asked to tune the problem, and what the model chooses now.
    """
    record = store.load(device, problem)
    predicted = record is not None and record.evidence == "predicted"
    return (
        (None if predicted else _exact(problem, device, record))
        or _nearest(problem, device, store)
        or _exact(problem, device, record)
        or _chosen(problem, device)
    )


def _exact(problem: Problem, device: Device, record: Record | None) -> Answer | None:
    if record is None:
        return None
    entry = next((e for e in (record.best, *record.entries) if _legal(e, problem, device)), None)
    if entry is None:
        return None
    how: How = "predicted" if record.evidence == "predicted" else "exact"
    note = f"{problem} on {device.name}: {record.evidence} {record.provenance.date}"
    time_us = entry.measurement.time_us
    return Answer(problem, device, entry.config, how, record.evidence, record, time_us, note)


def _nearest(problem: Problem, device: Device, store: Store) -> Answer | None:
    near = [
        record
        for record in store.records(device)
        if record.evidence != "predicted"
        and (record.problem.compute, record.problem.layout) == (problem.compute, problem.layout)
        and distance(record.problem, problem) <= REACH
    ]
    near.sort(
        key=lambda record: (
            distance(record.problem, problem),
            record.problem.output != problem.output,
            record.problem.epilogue != problem.epilogue,
        )
    )
    timed = [
        (_transferred(entry, record, problem, device), str(entry.config), entry, record)
        for record in near[:NEIGHBOURS]
        for entry in record.entries
        if _legal(entry, problem, device)
    ]
    runnable = [one for one in timed if math.isfinite(one[0])]
    if not runnable:
        return None
    time_us, _, entry, record = min(runnable, key=lambda one: one[:2])
    note = (
        f"{problem} is not tuned on {device.name}: using a configuration of "
        f"{record.problem.shape}{record.problem.extras}; `autotune tune {problem}` finds its own"
    )
    return Answer(problem, device, entry.config, "nearest", "predicted", record, time_us, note)


def _chosen(problem: Problem, device: Device) -> Answer | None:
    spaces = (space.feasible(problem, device, name) for name in families.tuned(problem))
    some = [config for one in spaces for config in space.spread(one.configs, SURVEY)]
    ranked = cost.rank(some, problem, device)
    if not ranked or not math.isfinite(ranked[0][0]):
        return None
    time_us, config = ranked[0]
    note = (
        f"{problem} is not tuned on {device.name}: using the model's choice; "
        f"`autotune tune {problem}` measures"
    )
    return Answer(problem, device, config, "predicted", "predicted", None, time_us, note)


def _transferred(entry: Entry, record: Record, problem: Problem, device: Device) -> float:
    """Predicted microseconds of an entry on another problem than its own.

    The model's error on the entry's own problem corrects it: among configurations that are
    within a few per cent of each other there, an uncorrected model would choose by its errors.
    """
    here, there = (
        cost.predict(entry.config, one, device, entry.resources)
        for one in (problem, record.problem)
    )
    return here * entry.measurement.time_us / there


def _legal(entry: Entry, problem: Problem, device: Device) -> bool:
    """Whether the families of this version can run the entry; its own may have been another."""
    try:
        return space.rejection(entry.config, problem, device) is None
    except ConfigError:
        return False
