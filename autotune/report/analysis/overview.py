"""Several problems at a glance: against the vendor's library, over M, and what to tune next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote

from autotune.lookup.answer import Answer
from autotune.problem import Problem
from autotune.records import Record, TuningRecord
from autotune.records.ranges import Range
from autotune.report.analysis.headline import age, over_vendor, roofline_share
from autotune.roofline import least_hot_seconds
from autotune.runners.base import Evidence
from autotune.runners.objective import COLD, HOT

LEAST_POINTS = 3
"""Sizes that a curve over M needs."""

STALE = "measured with another setup"

WORTH = 0.01
"""Expected loss from which tuning a problem is suggested."""


@dataclass(frozen=True)
class OverviewRow:
    """A problem or a call of a user kernel.

    Attributes:
        title: its text.
        device: the device's name.
        how: `tuned`, or as in `lookup.Answer` where it is not.
        evidence: what the time rests on.
        family: the winner's kernel family.
        time_us: hot time; None if unknown.
        tflops: TFLOP/s; None for a user kernel.
        roofline_share, cold_roofline_share: as of a `Headline`.
        over_hot, over_cold: the vendor baseline's time over the winner's; None if not timed.
        expected_loss: against full tuning, 0.05 for 5 %; 0 if tuned, None if unknown.
        trials: of the last tuning run; None if it was not tuned.
        age: since the record was saved.
        changed: driver, compiler or kernel sources of this machine that changed since; None if
            nothing did.
        stale: `changed` if it includes the kernel sources, else None.
        interrupted: whether the search ended before its limits.
    """

    title: str
    device: str
    how: str
    evidence: Evidence
    family: str
    time_us: float | None
    tflops: float | None
    roofline_share: float | None
    cold_roofline_share: float | None
    over_hot: float | None
    over_cold: float | None
    expected_loss: float | None
    trials: int | None
    age: str
    stale: str | None
    interrupted: bool = False
    changed: str | None = None


@dataclass(frozen=True)
class SizeCurve:
    """The speed over M of problems that differ in nothing else, in TFLOP/s; None is unknown."""

    name: str
    sizes: tuple[int, ...]
    tflops: tuple[float | None, ...]
    vendor_tflops: tuple[float | None, ...]


@dataclass(frozen=True)
class Suggestion:
    """A problem that is worth tuning: why, the time that it may save (0.05 for 5 %, None if
    unknown), the command, and whether only its kernel sources have changed."""

    title: str
    device: str
    why: str
    loss: float | None
    command: str
    stale: bool


def record_row(
    record: TuningRecord, *, stale: str | None, now: datetime, changed: str | None = None
) -> OverviewRow:
    """The row of a record."""
    best, problem = record.best, record.problem if isinstance(record, Record) else None
    time_us = best.measurement.time_us
    predicted = record.evidence == "predicted"
    return OverviewRow(
        title=record.title,
        device=record.device.name,
        how="predicted" if predicted else "tuned",
        evidence=record.evidence,
        family=best.config.family,
        time_us=time_us,
        tflops=problem.speed(time_us) / 1e12 if problem else None,
        roofline_share=roofline_share(record, best, HOT),
        cold_roofline_share=roofline_share(record, record.best_cold, COLD),
        over_hot=over_vendor(record, best, HOT),
        over_cold=over_vendor(record, record.best_cold, COLD),
        expected_loss=None if predicted else 0.0,
        trials=record.provenance.trials,
        age=age(record.provenance.date, now),
        stale=stale,
        interrupted=record.provenance.interrupted,
        changed=changed or stale,
    )


def answer_row(answer: Answer) -> OverviewRow:
    """The row of a problem that was not tuned, from its look-up."""
    time_us, problem = answer.time_us, answer.problem
    least = least_hot_seconds(problem, answer.device) * 1e6
    return OverviewRow(
        title=str(problem),
        device=answer.device.name,
        how=answer.how,
        evidence=answer.evidence,
        family=answer.config.family,
        time_us=time_us,
        tflops=None if time_us is None else problem.speed(time_us) / 1e12,
        roofline_share=None if time_us is None else least / time_us,
        cold_roofline_share=None,
        over_hot=None,
        over_cold=None,
        expected_loss=answer.expected_loss,
        trials=None,
        age="",
        stale=None,
    )


def size_curves(records: Iterable[TuningRecord]) -> tuple[SizeCurve, ...]:
    """The curves over M of recorded problems that differ in M alone, at `LEAST_POINTS` or more."""
    groups: dict[tuple[str, Problem], dict[int, Record]] = {}
    for record in records:
        if isinstance(record, Record):
            kin = replace(record.problem, m=1)
            groups.setdefault((record.device.name, kin), {})[record.problem.m] = record
    return tuple(
        _size_curve(kin, device, group)
        for (device, kin), group in sorted(groups.items())
        if len(group) >= LEAST_POINTS
    )


def _size_curve(kin: Problem, device: str, group: dict[int, Record]) -> SizeCurve:
    sizes = tuple(sorted(group))
    records = [group[size] for size in sizes]
    name = f"Mx{str(kin).partition('x')[2]} on {device}"
    ours = tuple(row.problem.speed(row.best.measurement.time_us) / 1e12 for row in records)
    vendor = tuple(
        row.problem.speed(row.baseline.time_us) / 1e12 if row.baseline else None for row in records
    )
    return SizeCurve(name, sizes, ours, vendor)


def suggestions(
    rows: Sequence[OverviewRow], device_option: str | None = None
) -> tuple[Suggestion, ...]:
    """The problems that are worth tuning next, the largest expected loss first."""
    option = "" if device_option is None else f" --device {quote(device_option)}"
    worth = [
        Suggestion(
            *(row.title, row.device, why, loss, f"autotune tune {row.title}{option}"),
            stale=why.startswith(STALE),
        )
        for row in rows
        if row.tflops is not None and (reason := _reason(row)) is not None
        for why, loss in [reason]
    ]
    return tuple(sorted(worth, key=lambda suggestion: -(suggestion.loss or 0.0)))


def range_row(tuned: Range) -> dict[str, object]:
    """A tuned range: its text, the sizes that serve it and its expected loss."""
    return {
        "range": str(tuned),
        "device": tuned.device.name,
        "evidence": tuned.evidence,
        "objective": str(tuned.objective),
        "points": [getattr(point, tuned.dimension) for point in tuned.points],
        "expected_loss": tuned.loss,
    }


def _reason(row: OverviewRow) -> tuple[str, float | None] | None:
    """Why a problem is worth tuning, with the expected loss; None if it is not."""
    if row.how not in ("tuned", "predicted"):
        loss = row.expected_loss
        if loss is not None and loss < WORTH:
            return None
        return f"not tuned; its configuration is from a look-up ({row.how})", loss
    if row.how == "predicted":
        return "only predicted; measure it on the device", row.expected_loss
    behind = 1 - row.over_hot if row.over_hot is not None and row.over_hot < 1 - WORTH else None
    if row.interrupted:
        return "its search was interrupted", behind
    if behind is not None:
        return "the vendor's library is faster", behind
    if row.stale is not None:
        return f"{STALE}: {row.stale}", None
    return None
