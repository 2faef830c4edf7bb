"""The result of a record in a few numbers and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote

from autotune.measure.measurement import TIE, Evidence, tied
from autotune.measure.objective import COLD, HOT, Objective
from autotune.records import Entry, Record, TuningRecord
from autotune.report import formatting
from autotune.report.analysis.subject import Subject
from autotune.report.formatting import seconds_since, vendor


@dataclass(frozen=True)
class Headline:
    """The winner of a record.

    Attributes:
        title: the problem or call.
        device: the device's name.
        evidence: what the times rest on.
        family: the winner's kernel family.
        config: the winner as text.
        time_us, spread_us: median hot time and half the distance between the quartiles.
        samples: number of hot samples.
        cold_us: median time with L2 flushed; None if not measured.
        tflops: TFLOP/s; None for a user kernel.
        peak_share: share of the precision's peak; None for a user kernel.
        roofline_share: the least hot time of the roofline over the time, for which what L2 holds is
            not moved again; None for a user kernel.
        cold_roofline_share: the least time with every matrix moved once over the cold time of the
            best cold configuration; None for a user kernel, or if none was measured.
        vendor: the vendor baseline's label.
        vendor_us, over_hot, over_cold: its time, and its times over the winner's (above 1 the
            winner is faster); None if it was not timed.
        occupancy, limiter: resident warps as a share of an SM's, and what limits them.
        date, age: when the record was saved.
        changed: driver, compiler or kernel sources of this machine that changed since; None if
            nothing did.
        stale: `changed` if it includes the kernel sources, else None.
        interrupted: whether the search ended before its limits, so that it is not final.
        why: a sentence that says why this configuration won.
        commands: command lines that repeat it.
    """

    title: str
    device: str
    evidence: Evidence
    family: str
    config: str
    time_us: float
    spread_us: float
    samples: int
    cold_us: float | None
    tflops: float | None
    peak_share: float | None
    roofline_share: float | None
    cold_roofline_share: float | None
    vendor: str
    vendor_us: float | None
    over_hot: float | None
    over_cold: float | None
    occupancy: float
    limiter: str
    date: str
    age: str
    changed: str | None
    stale: str | None
    interrupted: bool
    why: str
    commands: tuple[str, ...]


def headline(
    subject: Subject,
    *,
    stale: str | None,
    now: datetime,
    device_option: str | None = None,
    changed: str | None = None,
) -> Headline:
    """The headline of a record.

    Args:
        subject: the record.
        stale: what changed on this machine since it was measured; None if it is not stale.
        now: the present, with its time zone.
        device_option: the `--device` that finds the record; None if none is needed.
        changed: what changed, also if that makes no record stale.
    """
    record, problem = subject.record, subject.problem
    best = record.best
    measured = best.measurement
    rate = problem.speed(measured.time_us) if problem else None
    return Headline(
        title=record.title,
        device=record.device.name,
        evidence=record.evidence,
        family=best.config.family,
        config=str(best.config),
        time_us=measured.time_us,
        spread_us=measured.spread_us,
        samples=measured.samples,
        cold_us=measured.cold_us,
        tflops=None if rate is None else rate / 1e12,
        peak_share=rate / record.device.peak(problem.compute) if problem and rate else None,
        roofline_share=roofline_share(record, best, HOT),
        cold_roofline_share=roofline_share(record, record.best_cold, COLD),
        vendor=vendor(problem.compute) if problem else "",
        vendor_us=record.baseline.time_us if record.baseline else None,
        over_hot=over_vendor(record, best, HOT),
        over_cold=over_vendor(record, record.best_cold, COLD),
        occupancy=best.occupancy,
        limiter=best.limiter,
        date=record.provenance.date,
        age=age(record.provenance.date, now),
        changed=changed or stale,
        stale=stale,
        interrupted=record.provenance.interrupted,
        why=why_it_won(record.entries, best),
        commands=_commands(subject, device_option),
    )


def over_vendor(record: TuningRecord, entry: Entry | None, objective: Objective) -> float | None:
    """The vendor baseline's time over an entry's; None if either is unknown."""
    ours = objective.estimate(entry.measurement) if entry else None
    baseline = objective.estimate(record.baseline) if record.baseline else None
    return baseline.time_us / ours.time_us if ours and baseline else None


def roofline_share(record: TuningRecord, entry: Entry | None, objective: Objective) -> float | None:
    """The roofline's least time over an entry's time, each hot or each cold: L2 serves hot inputs.

    None for a user kernel, or if the time is unknown.
    """
    timed = objective.estimate(entry.measurement) if entry else None
    if timed is None or not isinstance(record, Record):
        return None
    return objective.least_seconds(record.problem, record.device) * 1e6 / timed.time_us


def why_it_won(entries: Sequence[Entry], best: Entry) -> str:
    """Why `best` is the winner among a record's entries, in one sentence."""
    if len(entries) == 1:
        return "It is the only configuration of the record."
    fastest = min(entries, key=lambda entry: entry.measurement.time_us)
    rivals = [
        entry for entry in entries if entry != best and tied(entry.measurement, fastest.measurement)
    ]
    if not rivals:
        second = min(entry.measurement.time_us for entry in entries if entry != best)
        lead = second / best.measurement.time_us - 1
        return (
            f"It is {lead:.2%} faster than the next of {len(entries)}, "
            f"more than the {TIE:.1%} of a tie."
        )
    times = [entry.measurement.time_us for entry in (best, *rivals)]
    within = max(times) / min(times) - 1
    return (
        f"Tied with {len(rivals)} within {within:.2%}, and up to {TIE:.1%} is a tie; "
        f"it {_advantage(best, rivals)}."
    )


def _advantage(best: Entry, rivals: Sequence[Entry]) -> str:
    """The reason why an entry won over tied ones, in the order of `estimates.winner`."""
    registers = _block_registers(best)
    least = min(map(_block_registers, rivals))
    if registers < least:
        return f"takes the fewest registers ({registers:,} a block, the next {least:,})"
    shared = [entry.resources.shared for entry in rivals if _block_registers(entry) == least]
    if best.resources.shared < min(shared):
        return (
            f"takes the least shared memory ({best.resources.shared:,} bytes a block, the next "
            f"{min(shared):,}) with as few registers"
        )
    return "takes no more than any of them, and comes first in the order of their texts"


def _block_registers(entry: Entry) -> int:
    return entry.resources.registers * entry.resources.threads


def age(date: str, now: datetime) -> str:
    """The time since a date in ISO 8601, such as `3 d ago`; empty if the date cannot be read."""
    seconds = seconds_since(date, now)
    return "" if seconds is None else f"{formatting.age(seconds)} ago"


def _commands(subject: Subject, device_option: str | None) -> tuple[str, ...]:
    record = subject.record
    if subject.problem is None:
        return (f"autotune report {quote(record.slug)}",)
    option = "" if device_option is None else f" --device {quote(device_option)}"
    return (
        f"autotune tune {record.title}{option} --seed {record.provenance.seed}",
        f"autotune best {record.title}{option}",
        f"autotune report {record.title}{option}",
    )
