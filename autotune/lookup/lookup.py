"""The look-up: from a problem to a configuration.

An exact record comes first, then a tuned range, then a choice (see `nearest`). A choice takes some
25 ms, in a fresh process 90, so it is kept in the cache and read in two milliseconds. The name of
its file, `choices/nvidia-h200/5e0c….json`, is a hash of all that the choice depends on: one made
from other records is not found again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from autotune import files
from autotune.cuda import cache
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import limits
from autotune.lookup.answer import (
    Answer,
    How,
    best_legal,
    expected_loss,
    recorded_answer,
    recorded_objective,
    vendor_wins,
)
from autotune.lookup.digest import FOLDER
from autotune.lookup.nearest import nearest
from autotune.lookup.neighbours import accuracy_filter, learn_errors
from autotune.measure.objective import HOT, Objective, objective_named
from autotune.model.legality import is_legal
from autotune.problem import Problem
from autotune.records import Record, Records, Store, shipped
from autotune.records.ranges import Range
from autotune.records.record import BEST_FIRST
from autotune.settings import Mode
from autotune.version import RELEASE

QUICK_LOSS = 0.01
"""Mean loss of a quick race against full tuning."""

Find = Callable[[Problem, Device, Records, Objective], Answer | None]
"""A look-up in records."""


def lookup(
    problem: Problem, device: Device, store: Store, objective: Objective = HOT
) -> Answer | None:
    """The best known configuration for a problem on a device; None if nothing can run it.

    Measured records come before replayed ones, and the user's before the shipped ones. Only
    configurations that are legal for the problem today are answered. With the objective "cold" it
    is the best for operands that are not in L2, as far as cold times are recorded.
    """
    return recorded(problem, device, Records(store), objective, otherwise=nearest)


def finder(mode: Mode) -> Find:
    """The look-up of a mode: the frozen mode does not guess, the others keep what they chose."""
    return recorded if mode.frozen else partial(recorded, otherwise=kept_choice)


def recorded(
    problem: Problem,
    device: Device,
    records: Records,
    objective: Objective = HOT,
    otherwise: Callable[..., Answer | None] = lambda *_: None,
) -> Answer | None:
    """The answer of a measured or replayed record of the problem, or of a tuned range; else that of
    `otherwise`, which chooses."""
    record = records.load(device, problem)
    if record is not None and record.evidence != "predicted":
        loss = QUICK_LOSS if record.quick else 0.0
        answer = recorded_answer(problem, device, record, "exact", loss, objective)
        if answer is not None:
            return answer
    answer = _in_ranges(problem, device, records, objective)
    return answer or otherwise(problem, device, record, records, objective)


def _in_ranges(
    problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    """The answer of the range with the most tuned sizes that covers the problem.

    Measured ranges come before replayed ones, and of these the ranges that were tuned for the
    objective before others. Ranges that rest on predictions, or whose record is missing, predicted
    or illegal for the problem, are skipped.
    """

    def order(tuned: Range) -> tuple[int, bool, int]:
        return BEST_FIRST.index(tuned.evidence), tuned.objective != objective, -len(tuned.points)

    ranked = sorted(records.ranges(device), key=order)
    answers = (_in_range(tuned, problem, device, records, objective) for tuned in ranked)
    return next((answer for answer in answers if answer is not None), None)


def _in_range(
    tuned: Range, problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    point = tuned.point(problem)
    if point is None or tuned.evidence == "predicted":
        return None
    record = records.load(device, point)
    record = record and record.without_library
    if record is None or record.evidence == "predicted":
        return None
    objective = recorded_objective(record, objective)
    accuracy = None if point == problem else accuracy_filter(problem, device, [record])
    entry = best_legal(record, problem, device, objective, accuracy)
    if entry is None:
        return None
    errors = learn_errors(device, [record], objective)
    predictions = errors.predict([entry.config], problem, [entry.resources])
    time_us = float(predictions.times[0])
    if not math.isfinite(time_us):
        return None
    return Answer(
        problem=problem,
        device=device,
        config=entry.config,
        how="range",
        evidence="predicted",
        record=record,
        time_us=time_us,
        note=f"{problem} on {device.name}: as {point.shape}, which is tuned for {tuned}",
        expected_loss=expected_loss("near", float(predictions.deviations[0])),
        vendor=vendor_wins(record, problem, objective),
        objective=objective,
    )


class _KeptAnswer(msgspec.Struct):
    """An answer as it is written; `neighbour` is the problem whose record holds the configuration,
    on the device's own model."""

    problem: str
    config: str
    objective: str
    neighbour: str | None
    how: How
    time_us: float | None
    note: str
    expected_loss: float | None
    vendor: bool
    vendor_us: float | None
    advice: str


_AS_WRITTEN = _KeptAnswer.__struct_fields__[4:]
"""The attributes of an answer that are written as they are."""


def kept_choice(
    problem: Problem, device: Device, record: Record | None, records: Records, objective: Objective
) -> Answer | None:
    """The answer of `nearest`, found now or by an earlier process."""
    path = _path(problem, device, records, objective)
    with suppress(OSError, ValueError, AutotuneError):
        answer = _read(path, problem, device, records)
        if answer is not None:
            return answer
    answer = nearest(problem, device, record, records, objective)
    if answer is not None and answer.how in ("nearest", "predicted"):
        neighbour = str(answer.record.problem) if answer.record else None
        texts = str(problem), str(answer.config), str(answer.objective), neighbour
        kept = _KeptAnswer(*texts, *(getattr(answer, name) for name in _AS_WRITTEN))
        with suppress(OSError, AutotuneError):  # a cache that cannot be written keeps nothing
            files.ensure(path.parent)
            files.write_whole(path, msgspec.json.encode(kept), durable=False)
    return answer


def _read(path: Path, problem: Problem, device: Device, records: Records) -> Answer | None:
    """The answer in a file; None if it does not hold.

    Raises:
        OSError, ValueError, AutotuneError: if there is none, or it is broken.
    """
    kept = msgspec.json.decode(files.read(path, limits.RECORD), type=_KeptAnswer)
    config, record = Config.parse(kept.config), None
    if kept.neighbour is not None:
        record = records.load(device, Problem.parse(kept.neighbour))
    lost = kept.neighbour is not None and record is None
    if kept.problem != str(problem) or lost or not is_legal(config, problem, device):
        return None
    return Answer(
        problem=problem,
        device=device,
        config=config,
        evidence="predicted",
        record=record,
        objective=objective_named(kept.objective),
        **{name: getattr(kept, name) for name in _AS_WRITTEN},
    )


def _path(problem: Problem, device: Device, records: Records, objective: Objective) -> Path:
    """The file of a choice, named by the problem, the device, the objective, the versions of the
    package and its kernels, the state of the records of all devices, and the package's files."""
    programs = [*_states([cache.archive_path(device.arch)])]
    parts = str(problem), device, str(objective), state(records.store), programs
    digest = sha256(repr(parts).encode()).hexdigest()
    return records.store.root / FOLDER / device.slug / f"{digest[:32]}.json"


def state(store: Store) -> tuple[object, ...]:
    """The state that all look-ups depend on: the release of the package, its kernels, and the
    records of all devices, the user's and the package's."""
    return (
        RELEASE,
        source_hash(*registry.kernel_sources()),
        # A record that is saved or removed changes its folder.
        [*_states((store.root / Record.FOLDER).glob("*"))],
        [*_states(shipped.bundles())],
    )


def _states(paths: Iterable[Path]) -> Iterator[tuple[object, ...]]:
    """Each path with numbers that change with it; what cannot be read is left out."""
    for path in sorted(paths):
        with suppress(OSError):
            yield str(path), *files.identity(path.stat())
