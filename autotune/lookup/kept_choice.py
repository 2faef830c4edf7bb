"""Choices for problems without a record, kept in the cache under all that they depend on.

    choices/nvidia-h200/5e0c….json

A choice takes some tens of milliseconds to find, more in a fresh process. The name of its file is a
hash of the problem, the device, the objective, the versions of the package and of its kernels, the
programs of the package, and the state of all records (see `state`), so that a choice made from
others is not found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from threadpoolctl import ThreadpoolController

from autotune import files, settings
from autotune.candidates.recorded import is_legal
from autotune.compiler import installed
from autotune.compiler.sources import source_hash
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import checksum, limits
from autotune.files.decoding import convert, parse
from autotune.files.domains import Microseconds, Text
from autotune.lookup import state
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import RECORDED, Step
from autotune.lookup.nearest import nearest
from autotune.lookup.predicted import predicted
from autotune.problem import Problem
from autotune.records import Record, Records, shipped
from autotune.runners.objective import HOT, Objective, objective_named
from autotune.version import __version__

FOLDER = "choices"


@dataclass(frozen=True)
class _KeptFields:
    """A choice as it is written; `neighbour` is the problem whose record holds it."""

    problem: Text
    config: Text
    how: Text
    neighbour: Text | None
    time_us: Microseconds | None
    note: Text
    expected_loss: float | None
    vendor: bool
    vendor_us: Microseconds | None
    objective: Text
    advice: Text = ""


def kept_choice(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The choice of the nearest records or the cost model, made now or by an earlier process."""
    path = _path(problem, device, records, objective)
    with suppress(OSError, ValueError, AutotuneError):
        if (answer := _read(path, problem, device, records)) is not None:
            return answer
    with one_blas_thread():
        steps = (step(problem, device, records, objective) for step in (nearest, predicted))
        answer = next((answer for answer in steps if answer is not None), None)
    if answer is not None and answer.how in ("nearest", "predicted"):
        with suppress(OSError, AutotuneError):  # a cache that cannot be written keeps nothing
            files.ensure(path.parent)
            files.write_whole(path, _written(answer), durable=False)
    return answer


KEPT_STEPS: tuple[Step, ...] = (*RECORDED, kept_choice)
"""The steps of a look-up that keeps what it has chosen."""


def steps_of(mode: settings.Mode) -> tuple[Step, ...]:
    """The steps of a look-up in a mode: the frozen mode does not guess."""
    return RECORDED if mode.frozen else KEPT_STEPS


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While it is open, BLAS runs in one thread: a choice multiplies matrices of some hundred rows,
    for which more threads wait longer than they work."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; to find them takes milliseconds."""
    return ThreadpoolController()


def _read(path: Path, problem: Problem, device: Device, records: Records) -> Answer | None:
    """The choice in a file; None if it cannot be used.

    Raises:
        OSError, ValueError, AutotuneError: if there is none, or it is broken.
    """
    data = files.read(path, limits.RECORD)
    document = parse(data)
    if not isinstance(document, dict):
        return None
    checksum.check(document, data)
    kept = convert(document, _KeptFields, "choice")
    config = Config.parse(kept.config)
    if kept.problem != str(problem) or not is_legal(config, problem, device):
        return None
    record = None
    if kept.neighbour is not None:
        record = records.load(device, Problem.parse(kept.neighbour))
        if record is None:
            return None
    return Answer(
        problem=problem,
        device=device,
        config=config,
        how="predicted" if kept.how == "predicted" else "nearest",
        evidence="predicted",
        record=record,
        time_us=kept.time_us,
        note=kept.note,
        expected_loss=kept.expected_loss,
        vendor=kept.vendor,
        vendor_us=kept.vendor_us,
        objective=objective_named(kept.objective),
        advice=kept.advice,
    )


def _written(answer: Answer) -> bytes:
    kept = _KeptFields(
        problem=str(answer.problem),
        config=str(answer.config),
        how=answer.how,
        neighbour=str(answer.record.problem) if answer.record else None,
        time_us=answer.time_us,
        note=answer.note,
        expected_loss=answer.expected_loss,
        vendor=answer.vendor,
        vendor_us=answer.vendor_us,
        objective=str(answer.objective),
        advice=answer.advice,
    )
    return checksum.sealed(asdict(kept))


def _path(problem: Problem, device: Device, records: Records, objective: Objective) -> Path:
    """The file of a choice."""
    root = records.store.root
    key = state.key(
        *(str(problem), device, objective, __version__),
        source_hash(*registry.kernel_sources()),
        [(folder.name, state.of_folder(folder)) for folder in sorted(_folders(root))],
        state.of_files((*shipped.bundles(), installed.path(device.arch))),
    )
    return root / FOLDER / device.slug / f"{key[:32]}.json"


def _folders(root: Path) -> Iterator[Path]:
    """The folders of records of all devices."""
    return (root / Record.FOLDER).glob("*")
