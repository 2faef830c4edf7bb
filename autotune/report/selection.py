"""The records that a report is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.device import Device
from autotune.errors import MissingError, NotFoundError
from autotune.families import registry
from autotune.lookup.answer import untuned_card
from autotune.measure import targets
from autotune.measure.devices import spelled
from autotune.problem import Problem, problem_of
from autotune.problem.arguments import Span, sized
from autotune.records import (
    FamilyRecord,
    KernelRecord,
    Record,
    Records,
    Store,
    TuningRecord,
    inventory,
)
from autotune.records.record import BEST_FIRST

_SHAPE = re.compile(r"\s*[-\d]")


@dataclass(frozen=True)
class Selection:
    """The records to report.

    Attributes:
        records: at least one.
        single: whether it is one problem or kernel: the one asked for, or the only one recorded.
    """

    records: tuple[TuningRecord, ...]
    single: bool


def selected(
    shapes: Sequence[str], device: str | None, store: Store, family: str | None = None
) -> Selection:
    """The records of problems, ranges of problems and kernels; of everything without `shapes`.

    Without a device it is the GPU of this machine, and where there is none the devices of the
    store. With a family it is the records of searches that were asked for it alone.

    Raises:
        NotFoundError: if nothing is recorded for what was asked.
        UsageError: for an impossible problem or an unknown device.
    """
    resolved = _device(device, wanted=bool(shapes))
    option = f" --device {spelled(device)}" if device else ""
    if family is not None:
        recorded = tuple(_of_family(store, resolved, registry.find(family).name))
    else:
        recorded = tuple(_recorded(store, resolved, shipped=device is not None or bool(shapes)))
    if not shapes:
        if not recorded:
            if resolved is not None and family is None:
                raise NotFoundError(untuned_card(resolved, option=option))
            where = store.root if resolved is None else f"{resolved.name} in {store.root}"
            raise NotFoundError(
                f"nothing is recorded for {where}; run `autotune tune 4096x4096x4096`, "
                "without a GPU with `--device replay:h100`"
            )
        return Selection(recorded, len(recorded) == 1)
    records: dict[TuningRecord, None] = {}
    for shape in shapes:
        matches = tuple(matching(shape, recorded))
        records |= dict.fromkeys(matches)
        if not matches:
            if family is not None:
                where = "" if resolved is None else f" on {resolved.name}"
                raise NotFoundError(f"{shape}: the {family} family was not tuned alone{where}")
            raise NotFoundError(_missing(shape, resolved, store, option))
    single = len(shapes) == 1 and len(records) == 1 and ".." not in shapes[0]
    return Selection(tuple(records), single)


def _device(device: str | None, *, wanted: bool) -> Device | None:
    """The device that was given, or the GPU of this machine where one is wanted; else None."""
    if device is not None:
        return targets.resolve(device)
    try:
        return targets.resolve() if wanted else None
    except MissingError:
        return None


def _recorded(store: Store, device: Device | None, *, shipped: bool) -> Iterator[TuningRecord]:
    """The record with the best evidence of every problem, and all of user kernels."""
    read = inventory.records(store.root)
    kernels = (record for record in read if isinstance(record, KernelRecord))
    if device is not None and shipped:
        yield from Records(store).records(device)
        yield from (record for record in kernels if record.device.slug == device.slug)
        return
    gemms = (
        record
        for record in read
        if isinstance(record, Record) and not isinstance(record, FamilyRecord)
    )
    best_last = sorted(gemms, key=lambda record: -BEST_FIRST.index(record.evidence))
    best = {(record.device.slug, record.problem): record for record in best_last}
    yield from (best[key] for key in sorted(best))
    yield from kernels


def _of_family(store: Store, device: Device | None, family: str) -> Iterator[TuningRecord]:
    for record in inventory.records(store.root):
        apart = isinstance(record, FamilyRecord) and record.family == family
        if apart and (device is None or record.device.slug == device.slug):
            yield record


def matching(shape: str, records: Iterable[TuningRecord]) -> Iterator[TuningRecord]:
    """The records that a word of the command line names."""
    if not _SHAPE.match(shape):
        kernels = (record for record in records if isinstance(record, KernelRecord))
        return (record for record in kernels if shape in record.names)
    gemms = (record for record in records if isinstance(record, Record))
    if ".." in shape:
        span = Span.parse(shape)
        return (record for record in gemms if _inside(record.problem, span))
    problem = problem_of(shape.strip())
    return (record for record in gemms if record.problem == problem)


def _inside(problem: Problem, span: Span) -> bool:
    size = int(getattr(problem, span.dimension))
    alike = sized(problem, span.dimension, span.high) == span.problem
    return alike and span.low <= size <= span.high


def _missing(shape: str, device: Device | None, store: Store, option: str) -> str:
    """Why nothing is recorded of a word, with the command that mends it; `option` is the `--device`
    that was given."""
    where = f"in {store.root}" if device is None else f"on {device.name}"
    if not _SHAPE.match(shape):
        return f"no kernel {shape!r} is recorded {where}; see `autotune cache list`"
    if ".." in shape:
        return f"no size of {shape} is recorded {where}; run `autotune tune {shape}{option}`"
    hint = option or (" --device NAME" if device is None else "")
    problem = problem_of(shape.strip())
    return f"{problem} is not tuned {where}; run `autotune tune {problem}{hint}`"
