"""The search of one problem, or its race."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import files, settings
from autotune.candidates.space import unserved
from autotune.cuda import compiler
from autotune.errors import NotFoundError, UsageError
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.targets.workplace import Workplace
from autotune.tuning.options import Search

if TYPE_CHECKING:
    from autotune.runners.base import Runner
    from autotune.runners.objective import Objective
    from autotune.tuning.events import Observer
    from autotune.tuning.gemm import QuickTunable


def search(
    problem: Problem,
    options: Search,
    *,
    device: DeviceLike = DEFAULT,
    devices: str | Sequence[int] | None = None,
    family: str = "auto",
    recording: str | Path | None = None,
    observer: Observer | None = None,
) -> Record:
    """Searches one problem: `autotune.tune` with its arguments decoded.

    Raises:
        UsageError: for several devices or a recording and quick options.
    """
    if options.quick and (devices is not None or recording is not None):
        raise UsageError("quick takes no devices and no recording; leave either out")
    if recording is not None and devices is None and not targets.measures(device):
        raise UsageError(f"{device} has no times to record; give a GPU of this machine, or none")
    settings.refuse_frozen(f"cannot tune {problem}")
    with Workplace(device, numbers=devices, seed=options.seed, quick=options.quick) as workplace:
        record = search_at(workplace, problem, options, family=family, observer=observer)
    if recording is not None:
        from autotune.api.recordings import save_recording

        save_recording(record, Store(settings.cache_dir()), Path(recording))
    return record


def search_at(
    workplace: Workplace,
    problem: Problem,
    options: Search,
    *,
    family: str = "auto",
    observer: Observer | None = None,
) -> Record:
    """Searches a problem at a workplace, which others may have used before; races it if the
    options are quick."""
    cache = settings.cache_dir()
    with workplace.opening(problem) as opened:
        if options.modelled:
            from autotune.candidates.gaussian_process import import_ahead

            import_ahead()
        from autotune.tuning.gemm import GemmTunable
        from autotune.tuning.loop import tune

        target, store = opened(), Store(files.ensure(cache))
        tunable = GemmTunable(problem, family)
        if options.quick:
            tunable = raced(problem, target.runner, store, options.objective)
        return tune(
            tunable,
            target.runner,
            store,
            options,
            compile=partial(compiler.compile, cache=cache),
            origin=target.origin,
            observer=observer,
            further=target.further,
        )


def raced(problem: Problem, runner: Runner, store: Store, objective: Objective) -> QuickTunable:
    """The problem with its most promising configurations, by the records of the store.

    Raises:
        NotFoundError: if there is none.
    """
    from autotune.lookup.promising import contenders
    from autotune.records import Records
    from autotune.tuning.gemm import QuickTunable

    considered = contenders(
        problem, runner.device, Records(store), objective, configs=runner.known()
    )
    if not considered.first:
        raise NotFoundError(unserved(problem, runner.device))
    return QuickTunable(problem, raced=considered)
