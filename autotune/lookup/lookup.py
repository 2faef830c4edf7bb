"""Problem to configuration: a record, a tuned range, similar records, or the model's choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autotune.candidates import cost
from autotune.device import Device
from autotune.families.config import Config
from autotune.lookup import neighbours
from autotune.lookup.neighbours import REACH, NeighbourChoice, expected_loss, legal
from autotune.problem import Problem
from autotune.records import Entry, Record, Store
from autotune.records.shipped import Records, alike
from autotune.runners.base import Evidence
from autotune.tuning.candidates import of_compute

How = Literal["exact", "range", "nearest", "related", "predicted"]

# A choice of a smaller doubt is not weighed against the model's own, which takes a second to find.
SURE = 0.06
CORRECTED = ", corrected by what is recorded of other problems"


@dataclass(frozen=True)
class Answer:
    """What to run for a problem, and why.

    Attributes:
        problem: what was asked.
        device: where it is to run.
        config: what to run.
        how: `exact`, the problem is recorded; `range`, a tuned range covers it; `nearest`, a record
            of a similar problem; `related`, a record of another GPU of the same architecture;
            `predicted`, the model's choice.
        evidence: what `time_us` rests on; for anything but an exact record it is `predicted`.
        record: the record that the configuration is from; None if it is the model's choice.
        time_us: measured or predicted time of one run in microseconds; None if unknown.
        note: one line for the user: where the answer comes from and how to get a better one.
        regret: the loss against full tuning that is expected, 0.03 for 3 %; None if unknown.
        vendor: whether the vendor's library was measured to be faster: on this problem, on the
            point of the range that serves it, or on the same product with another epilogue.
    """

    problem: Problem
    device: Device
    config: Config
    how: How
    evidence: Evidence
    record: Record | None
    time_us: float | None
    note: str
    regret: float | None = None
    vendor: bool = False

    @property
    def entry(self) -> Entry | None:
        """What is recorded of the configuration, for the record's problem."""
        entries = self.record.entries if self.record else ()
        wanted = self.config
        return next(
            (entry for entry in entries if of_compute(entry.config, self.problem) == wanted), None
        )


def lookup(problem: Problem, device: Device, store: Store) -> Answer | None:
    """The best that is known for a problem on a device; None if nothing can run it.

    The user's records come first, then the shipped ones. Only configurations that are legal for the
    problem today are answered. In this order: what was measured (or replayed) for the problem, what
    serves it in a tuned range, what similar problems or related devices suggest together with the
    cost model, what the model chose when it was asked to tune the problem, and what it chooses now.
    """
    library = Records(store)
    record = library.load(device, problem)
    predicted = record is not None and record.evidence == "predicted"
    return (
        (None if predicted else _exact(problem, device, record))
        or _ranged(problem, device, library)
        or _similar(problem, device, library)
        or _exact(problem, device, record)
        or _chosen(problem, device)
    )


def _exact(problem: Problem, device: Device, record: Record | None) -> Answer | None:
    if record is None:
        return None
    entries = (record.best, *record.entries)
    entry = next((one for one in entries if legal(one.config, problem, device)), None)
    if entry is None:
        return None
    predicted = record.evidence == "predicted"
    note = f"{problem} on {record.device.name}: {record.evidence} {record.provenance.date}"
    return Answer(
        *(problem, device, entry.config, "predicted" if predicted else "exact"),
        *(record.evidence, record, entry.measurement.time_us, note),
        regret=expected_loss("model", 0.0) if predicted else 0.0,
        vendor=record.vendor_wins,
    )


def _ranged(problem: Problem, device: Device, library: Records) -> Answer | None:
    found = [(one, one.point(problem)) for one in library.ranges(device)]
    for one, point in sorted(found, key=lambda pair: pair[0].loss):
        if point is None or one.evidence == "predicted":
            continue
        record = library.load(device, point)
        if record is None or record.evidence == "predicted":
            continue
        taught = neighbours.experience(problem, device, [record])
        entries = (record.best, *record.entries)
        entry = next((e for e in entries if legal(e.config, problem, device)), None)
        if entry is None:
            continue
        time_us = float(taught.judge([entry.config], problem, [entry.resources]).times[0])
        if not math.isfinite(time_us):
            continue
        note = f"{problem} on {device.name}: as {point.shape}, which is tuned for {one}"
        return Answer(
            *(problem, device, entry.config, "range", "predicted", record, time_us, note),
            regret=one.loss,
            vendor=record.vendor_wins,
        )
    return None


def _similar(problem: Problem, device: Device, library: Records) -> Answer | None:
    own = library.records(device)
    records = own if _enough(own, problem, device) else [*own, *library.related(device)]
    taught = neighbours.experience(problem, device, records)
    if not (choices := neighbours.ranked(problem, device, records, taught)):
        return None
    found = choices[0]
    if found.doubt > SURE:
        found = min(
            (found, *neighbours.surveyed(problem, device, taught)[:1]), key=neighbours.order
        )
    if found.record is None:
        regret = expected_loss("near", found.doubt)
        return _by_model(problem, device, found, regret, CORRECTED)
    here = alike(found.record.device, device)
    other = found.record.problem
    where = "" if here else f" on {found.record.device.name}"
    note = (
        f"{problem} is not tuned on {device.name}: using a configuration of "
        f"{_difference(other, problem)}{where}; `autotune tune {problem}` finds its own"
    )
    return Answer(
        *(problem, device, found.config, "nearest" if here else "related", "predicted"),
        *(found.record, found.time_us, note),
        # No two related devices are recorded: it is better than the model alone, unknown how much.
        regret=expected_loss("near" if here else "model", found.doubt),
        # An epilogue or another output leaves the library what it is.
        vendor=here and found.record.vendor_wins and _same_product(other, problem),
    )


def _chosen(problem: Problem, device: Device) -> Answer | None:
    choices = cost.rank(neighbours.survey(problem, device), problem, device)
    if not choices or not math.isfinite(choices[0][0]):
        return None
    time_us, config = choices[0]
    choice = NeighbourChoice(time_us, time_us, 0.0, config, None)
    return _by_model(problem, device, choice, expected_loss("model", 0.0))


def _by_model(
    problem: Problem, device: Device, found: NeighbourChoice, regret: float, corrected: str = ""
) -> Answer:
    note = (
        f"{problem} is not tuned on {device.name}: using the model's choice{corrected}; "
        f"`autotune tune {problem}` measures"
    )
    return Answer(
        *(problem, device, found.config, "predicted", "predicted", None, found.time_us, note),
        regret=regret,
    )


def _enough(records: Sequence[Record], problem: Problem, device: Device) -> bool:
    """Whether the device's own records say something of the problem."""
    return any(neighbours.remoteness(record, problem, device) <= REACH for record in records)


def _same_product(one: Problem, other: Problem) -> bool:
    """Whether two problems differ in nothing but epilogue and output."""
    return replace(one, epilogue=other.epilogue, output=other.output) == other


def _difference(other: Problem, problem: Problem) -> str:
    """The other problem, as far as it differs in more than sizes, batch, epilogue and output."""
    alike = (other.compute, other.layout) == (problem.compute, problem.layout)
    return f"{other.shape}{other.extras}" if alike else str(other)
