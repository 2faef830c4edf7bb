"""Look a problem up: its record, or the configuration that would run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune import settings
from autotune.device import Device
from autotune.errors import FrozenError, NotFoundError, UsageError
from autotune.families.registry import AUTO, families_of
from autotune.model.space import unserved
from autotune.problem import Problem, ProblemArguments, ProblemLike, problem_of
from autotune.records import FamilyRecord, OrderedRecord, Record, Records, Store, merging
from autotune.runners.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike, option

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.lookup.answer import Answer


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
    return recorded(problem_of(*problem, **arguments), device, family, batch_invariant)


def recorded(
    problem: Problem,
    device: DeviceLike = DEFAULT,
    family: str = AUTO,
    batch_invariant: bool = False,
) -> Record:
    """`best` with its arguments decoded."""
    resolved = targets.resolve(device)
    targets.check_memory(problem, resolved)
    if batch_invariant:
        _refuse_family(family)
        return _ordered(problem, resolved, device)
    families_of(family, problem)  # to refuse unknown ones
    record = _loaded(problem, resolved, family)
    if record is None:
        alone = "" if family == AUTO else f" --family {family}"
        kernels = "" if family == AUTO else f" with {family} kernels alone"
        raise NotFoundError(
            f"{problem} is not tuned{kernels} on {resolved.name}; run "
            f"`autotune tune {problem}{alone}{option(device)}`"
        )
    return record


def best_of_all(result: Record | Answer) -> Record | None:
    """The record of all families beside one of a family alone; None if there is none."""
    if not isinstance(result, FamilyRecord):
        return None
    return _loaded(result.problem, result.device, AUTO)


def _refuse_family(family: str) -> None:
    if family != AUTO:
        raise UsageError("a batch-invariant range takes no family; leave either out")


def _ordered(problem: Problem, resolved: Device, device: DeviceLike) -> Record:
    """The record of a tuned size of a batch-invariant range."""
    from autotune.lookup.batch_invariant import required

    answer = required(problem, resolved, _records(), option=option(device))
    if answer.record is None or answer.record.problem != problem:
        raise NotFoundError(
            f"{problem} is no tuned size of its batch-invariant range on {resolved.name}; "
            f"`autotune best {problem} --batch-invariant{option(device)}` says what runs"
        )
    return answer.record


def _records() -> Records:
    return Records(Store(settings.cache_dir()))


def _loaded(problem: Problem, device: Device, family: str) -> Record | None:
    records = _records()
    if family == AUTO:
        return records.load(device, problem)
    return records.store.family(device, problem, family)


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
    return answered(problem_of(*problem, **arguments), device, objective, batch_invariant)


def answered(
    problem: Problem,
    device: DeviceLike = DEFAULT,
    objective: ObjectiveText | Objective = HOT,
    batch_invariant: bool = False,
) -> Answer:
    """`choose` with its arguments decoded."""
    from autotune.lookup.answer import tune_command, unrecorded, untuned_card
    from autotune.lookup.lookup import finder

    decides = objective_named(objective)
    resolved = targets.resolve(device)
    targets.check_memory(problem, resolved)
    if batch_invariant:
        from autotune.lookup.batch_invariant import required

        return required(problem, resolved, _records(), decides, option(device))
    mode = settings.mode()
    answer = finder(mode)(problem, resolved, _records(), decides)
    if answer is None and mode.frozen:
        raise FrozenError(unrecorded(problem, resolved))
    if answer is None:
        raise NotFoundError(f"{unserved(problem, resolved)}; give another device")
    commands = tune_command(problem), tune_command(problem, option(device))
    advice = answer.advice and untuned_card(resolved, option=option(device))
    return replace(answer, note=answer.note.replace(*commands), advice=advice)


def warnings_of(
    result: Record | Answer, device: DeviceLike, objective: Objective = HOT
) -> Iterator[str]:
    """Why a result may not be the best today, each with the command that mends it."""
    record = result if isinstance(result, Record) else result.record
    if objective.metered and (record is None or record.of(objective) is None):
        command = f"`autotune tune {result.problem}{option(device)} --objective {objective}`"
        yield f"no energies are recorded, so the time decides; {command} measures them"
    if record is None:
        return
    command = f"`{_tuning(record, option(device))}`"
    if (changed := outdated(result)) is not None:
        again = f"; `autotune cache verify --retime` or {command} measures again"
        yield f"it was measured with {changed}{again if targets.measures(device) else ''}"
    if record.provenance.interrupted:
        yield f"its search was interrupted; {command} continues it"
    elif record.provenance.quick:
        yield f"only a few promising configurations were raced; {command} searches all"


def _tuning(record: Record, option: str) -> str:
    """The command that tunes a record again."""
    if not isinstance(record, OrderedRecord):
        return f"autotune tune {record.title}{option}"
    from autotune.lookup.batch_invariant import range_command, range_of

    return range_command(record.problem, range_of(record, _records()), option)


def outdated(result: Record | Answer) -> str | None:
    """The change of this machine since a result's record was measured, such as
    `kernel sources 0ld, now 5e1f`; None if it is not stale, or if there is no record."""
    record = result if isinstance(result, Record) else result.record
    return None if record is None else merging.stale(record, targets.here())


def other_tools(result: Record | Answer) -> str | None:
    """The change of driver and compiler since a result's record was measured, such as
    `driver 12.8, now 13.0`; None if it is stale, nothing has changed, or there is no record."""
    record = result if isinstance(result, Record) else result.record
    if record is None:
        return None
    today = targets.here()
    return None if merging.stale(record, today) else merging.changes(record, today)
