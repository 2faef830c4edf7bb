"""Choices for problems without a record, kept in the cache: `choices/nvidia-h200/5e0c….json`.

A choice takes some 25 ms, in a fresh process 90; a kept one is read in two. The name of its file is
a hash of all that it depends on, so that a choice made from other records is not found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from autotune import files
from autotune.candidates.legality import is_legal
from autotune.cuda import cache
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import limits
from autotune.lookup.answer import Answer, How
from autotune.lookup.nearest import nearest
from autotune.problem import Problem
from autotune.records import Record, Records, shipped
from autotune.runners.objective import HOT, Objective, objective_named
from autotune.version import __version__

FOLDER = "choices"


class _Plain(msgspec.Struct):
    """The attributes of an answer that are written as they are."""

    how: How
    time_us: float | None
    note: str
    expected_loss: float | None
    vendor: bool
    vendor_us: float | None
    advice: str


class _KeptAnswer(msgspec.Struct):
    """An answer as it is written; `neighbour` is the problem whose record holds the configuration,
    on the device's own model."""

    problem: str
    config: str
    objective: str
    neighbour: str | None
    plain: _Plain


def kept_choice(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """As `nearest`, found now or by an earlier process."""
    path = _path(problem, device, records, objective)
    with suppress(OSError, ValueError, AutotuneError):
        answer = _read(path, problem, device, records)
        if answer is not None:
            return answer
    answer = nearest(problem, device, records, objective)
    if answer is not None and answer.how in ("nearest", "predicted"):
        with suppress(OSError, AutotuneError):  # a cache that cannot be written keeps nothing
            files.ensure(path.parent)
            files.write_whole(path, _written(answer), durable=False)
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
        **msgspec.structs.asdict(kept.plain),
    )


def _written(answer: Answer) -> bytes:
    neighbour = str(answer.record.problem) if answer.record else None
    texts = str(answer.problem), str(answer.config), str(answer.objective)
    plain = _Plain(*(getattr(answer, name) for name in _Plain.__struct_fields__))
    return msgspec.json.encode(_KeptAnswer(*texts, neighbour, plain))


def _path(problem: Problem, device: Device, records: Records, objective: Objective) -> Path:
    """The file of a choice, named by the problem, the device, the objective, the versions of the
    package and its kernels, the state of the records of all devices, and the package's files."""
    root = records.store.root
    # A record that is saved or removed changes its folder.
    parts = (
        *(str(problem), device, str(objective), __version__),
        source_hash(*registry.kernel_sources()),
        [*_states((root / Record.FOLDER).glob("*"))],
        [*_states((*shipped.bundles(), cache.archive_path(device.arch)))],
    )
    return root / FOLDER / device.slug / f"{sha256(repr(parts).encode()).hexdigest()[:32]}.json"


def _states(paths: Iterable[Path]) -> Iterator[tuple[object, ...]]:
    """Each path with numbers that change with it; what cannot be read is left out."""
    for path in sorted(paths):
        with suppress(OSError):
            yield str(path), *files.identity(path.stat())
