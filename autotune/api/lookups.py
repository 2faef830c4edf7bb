"""Look a problem up, list the records, show them as tables and compare machines by a hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import RenderableType

from autotune import settings
from autotune.device import same_model
from autotune.errors import FrozenError, MissingError, NotFoundError, UsageError
from autotune.families.registry import AUTO, families_of
from autotune.lookup import batch_invariant as invariant
from autotune.lookup.answer import Answer
from autotune.lookup.fingerprints import Fingerprint
from autotune.lookup.lookup import finder
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike, option
from autotune.measure.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.model.space import unserved
from autotune.problem import ProblemArguments, ProblemLike, problem_of
from autotune.records import FamilyRecord, Record, Records, Store, TuningRecord, merging
from autotune.report import listing, record, tables

if TYPE_CHECKING:
    from typing_extensions import Unpack


def best(
    *problem: ProblemLike | int,
    device: DeviceLike = DEFAULT,
    family: str = AUTO,
    batch_invariant: bool = False,
    **arguments: Unpack[ProblemArguments],
) -> Record:
    """The record of a problem on a device, with the best evidence recorded; the record names it.

    Its `best` is the fastest hot, its `best_cold` the fastest with L2 flushed, its `best_energy`
    that of the least energy. The arguments are those of `tune`: with a `family` it is what was
    tuned for that family alone, with `batch_invariant` for the order of its range.

    Raises:
        NotFoundError: if the problem was never tuned.
        UsageError: for an impossible problem, an unknown device, or a family and `batch_invariant`.
        MissingError: without a GPU, if no other device is given.
    """
    asked, resolved = problem_of(*problem, **arguments), targets.resolve(device)
    targets.check_memory(asked, resolved)
    if batch_invariant:
        if family != AUTO:
            raise UsageError("a batch-invariant range takes no family; leave either out")
        answer = invariant.required(asked, resolved, _records(), option=option(device))
        if answer.record is None or answer.record.problem != asked:
            raise NotFoundError(
                f"{asked} is not a tuned size of its batch-invariant range on {resolved.name}; "
                f"`autotune best {asked} --batch-invariant{option(device)}` says what runs"
            )
        return answer.record
    families_of(family, asked)  # to refuse unknown ones
    records = _records()
    if family == AUTO:
        record = records.load(resolved, asked)
    else:
        record = records.store.family(resolved, asked, family)
    if record is None:
        alone = "" if family == AUTO else f" --family {family}"
        kernels = "" if family == AUTO else f" with {family} kernels alone"
        raise NotFoundError(
            f"{asked} is not tuned{kernels} on {resolved.name}; run "
            f"`autotune tune {asked}{alone}{option(device)}`"
        )
    return record


def _records() -> Records:
    return Records(Store(settings.cache_dir()))


def choose(
    *problem: ProblemLike | int,
    device: DeviceLike = DEFAULT,
    objective: ObjectiveText | Objective = HOT,
    batch_invariant: bool = False,
    **arguments: Unpack[ProblemArguments],
) -> Answer:
    """The configuration that `matmul` runs for a problem, tuned or not: where it comes from and the
    expected loss against full tuning (see `lookup.Answer`).

    With the objective "cold" it is what `matmul` runs by the policy `cold=True`, with
    `batch_invariant` what it runs by that policy; with the objective "energy" it is the recorded
    kernel with the least energy. `tune` documents the other arguments.

    Raises:
        NotFoundError: if no kernel can run the problem; with `batch_invariant`, if no range serves
            it.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    from autotune.lookup.answer import tune_command, unrecorded, untuned_card

    asked, decides = problem_of(*problem, **arguments), objective_named(objective)
    resolved, own = targets.resolve(device), option(device)
    targets.check_memory(asked, resolved)
    if batch_invariant:
        return invariant.required(asked, resolved, _records(), decides, own)
    mode = settings.mode()
    answer = finder(mode)(asked, resolved, _records(), decides)
    if answer is None and mode.frozen:
        raise FrozenError(unrecorded(asked, resolved))
    if answer is None:
        raise NotFoundError(f"{unserved(asked, resolved)}; give another device")
    note = answer.note.replace(tune_command(asked), tune_command(asked, own))
    return replace(answer, note=note, advice=answer.advice and untuned_card(resolved, option=own))


def warnings_of(
    result: Record | Answer, device: DeviceLike, objective: Objective = HOT
) -> Iterator[str]:
    """Why a result may not be the best today, each with the command that mends it.

    A stale record is named only where a GPU of its model can measure it again.
    """
    record = result if isinstance(result, Record) else result.record
    if objective.metered and (record is None or record.of(objective) is None):
        command = f"`autotune tune {result.problem}{option(device)} --objective {objective}`"
        yield f"no energies are recorded, so the time decides; {command} measures them"
    if record is None:
        return
    command = f"`{_tuning(record, option(device))}`"
    if _is_here(record, device) and (changed := merging.stale(record, targets.here())) is not None:
        verify = "`autotune cache verify --retime` or " if _is_own(record) else ""
        yield f"it was measured with {changed}; {verify}{command} measures again"
    if record.provenance.interrupted:
        yield f"its search was interrupted; {command} continues it"
    elif record.provenance.quick:
        yield f"only a few promising configurations were raced; {command} searches all"


def _is_here(record: Record, device: DeviceLike) -> bool:
    try:
        return targets.measures(device) and same_model(record.device, targets.resolve(device))
    except MissingError:
        return False


def _is_own(record: Record) -> bool:
    """Whether the user's own cache holds the record, not the package or a site folder."""
    store = _records().store
    return type(record) is not Record or store.load(record.device, record.problem) == record


def _tuning(record: Record, option: str) -> str:
    if not (isinstance(record, FamilyRecord) and record.order):
        return f"autotune tune {record.title}{option}"
    tuned = invariant.range_of(record, _records())
    return invariant.range_command(record.problem, tuned, option)


class Table:
    """A record or an answer as a table; `print` shows it as text, a notebook as HTML."""

    def __init__(self, rendered: RenderableType, width: int) -> None:
        self._rendered, self._width = rendered, width

    def __str__(self) -> str:
        return tables.text_of(self._rendered, self._width)

    def _repr_html_(self) -> str:
        return tables.html_of(self._rendered, self._width)


def table(result: TuningRecord | Answer) -> Table:
    """A record or an answer with all its facts, as `autotune best` prints it.

        print(autotune.table(autotune.choose(300, 4096, 4096)))

    Args:
        result: a record of a GEMM or of a user kernel, or the answer to a look-up.
    """

    return Table(record.render(result), tables.WIDTH)


class RecordList(tuple[TuningRecord, ...]):
    """Records; `print` and notebooks show them as a table with a row for each."""

    def __str__(self) -> str:
        return str(self._table)

    def _repr_html_(self) -> str:
        return self._table._repr_html_()

    @property
    def _table(self) -> Table:
        return Table(listing.record_table(listing.record_rows(self, targets.here())), tables.WIDE)


def list_records(device: DeviceLike | None = None) -> RecordList:
    """All records of the cache, of GEMMs and of user kernels, by device and problem.

        for record in autotune.list_records("h100"):
            print(record)

    A file that cannot be read costs a warning. Records that the package ships are not listed.

    Args:
        device: only this device, as for `tune`; None for all.

    Raises:
        DeviceError: if there is no such device.
        MissingError: if it is a GPU of this machine and there is none.
    """
    from autotune.records import inventory

    slug = None if device is None else targets.resolve(device).slug
    listed = inventory.records(settings.cache_dir())
    return RecordList(record for record in listed if slug in (None, record.device.slug))


def fingerprint(
    *shapes: ProblemLike, device: DeviceLike = DEFAULT, batch_invariant: bool = False
) -> Fingerprint:
    """A hash of what would run on a device: `str()` of two are equal exactly if both would launch
    the same kernels.

        ours = str(autotune.fingerprint("16x4096x4096:bf16:nt"))

    It covers the configuration of every shape, hot and cold, the programs with their sources and
    compiler, the evidence, and whether cuBLAS was measured to be faster.

    Args:
        shapes: the problems; without any, all records and tuned ranges of the device, also the
            batch-invariant ones.
        device: as for `tune`.
        batch_invariant: whether the shapes run by their batch-invariant ranges.

    Raises:
        ProblemError: for an impossible shape.
        DeviceError: if there is no such device.
        MissingError: without a GPU, if no other device is given.
    """
    from autotune.lookup import fingerprints

    problems = [problem_of(shape) for shape in shapes]
    find = invariant.batch_invariant if batch_invariant else finder(settings.mode())
    return fingerprints.fingerprint(problems, targets.resolve(device), _records().store, find)
