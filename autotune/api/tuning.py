"""Tune a problem."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from autotune import compiler, files, settings
from autotune.api.shown import shown
from autotune.candidates.unserved import unserved
from autotune.errors import NotFoundError, UsageError
from autotune.problem import Problem, ProblemArguments, ProblemLike, problem_of
from autotune.records import Record, Store
from autotune.runners.objective import HOT, Objective, ObjectiveText
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.targets.workplace import Workplace
from autotune.tuning.options import Options, options_of, quick_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.runners.base import Runner
    from autotune.runners.objective import Objective
    from autotune.tuning.events import Observer
    from autotune.tuning.quick import QuickTunable


def tune(
    *problem: ProblemLike | int,
    device: DeviceLike = DEFAULT,
    devices: str | Sequence[int] | None = None,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    family: str = "auto",
    jobs: int | None = None,
    objective: ObjectiveText | Objective = HOT,
    storage: str | None = None,
    quick: bool = False,
    recording: str | Path | None = None,
    observer: Observer | None = None,
    progress: bool = True,
    **arguments: Unpack[ProblemArguments],
) -> Record:
    """Searches the fastest kernel of a problem and records the best ten.

        tune(4096, 4096, 4096, compute="bf16")
        tune("4096x4096x4096:bf16", device="h100")

    A second call continues from the measurements of the first. The cache directory holds them.

    Args:
        problem: text, a `Problem`, (m, n, k) or three sizes.
        device: `gpu` or a number (measured), `replay:h100` or `replay:FILE.json.gz` (a
            recording), or a name of the catalogue, a JSON file or a `Device` (predicted).
        devices: several GPUs of one model in place of `device`, which share the work: their
            numbers, also as text such as `0,1`, or `all`.
        trials: stop at this number of configurations, those of earlier calls and of other processes
            included.
        budget: end this number of seconds after the call; 60 if neither limit is given, except
            that `exhaustive` then tries everything.
        seed: random seed.
        sampler: `gp`, which stops by itself, `tpe`, `random` or `exhaustive`.
        family: kernel family: `wgmma`, `mma` (tensor cores), `simt`, `gemv` (for at most 16 rows or
            columns of C), `tiled` or `naive`; `auto` is those of the first four that serve the
            compute.
        jobs: compiler threads; by default one for each core but one.
        objective: `hot` minimises the time with inputs as the last run left them in L2, `cold` the
            time with L2 flushed, `energy` the joules of a run among the ten fastest hot (NVML,
            extra `energy`). The best by each is recorded.
        storage: storage of the trials: URL of an Optuna storage, or path of a journal file; by
            default a journal in the cache directory.
        quick: races the eight most promising configurations, six that their times suggest, and
            cuBLAS instead of searching, in seconds. The record says so, and a search replaces it.
            Takes none of `trials`, `budget`, `sampler`, `seed`, `storage`, `devices` and `family`.
        recording: a file, such as `mine.json.gz`, for the outcomes of all configurations that were
            tried on a GPU; `device="replay:mine.json.gz"` searches among them without one.
        observer: receives progress events.
        progress: whether to show a progress bar, on standard error or in the notebook, if there is
            no observer.
        arguments: `compute`, `layout`, `batch`, `epilogue`, `output`, `accuracy`; see `problem_of`.

    Raises:
        UsageError: for an impossible problem, an unknown device, or invalid limits.
        MissingError: without a GPU, a driver or a compiler, where they are needed.
        CacheError: if the cache directory cannot be written.
        BudgetError: if the budget was over before a configuration was timed.
        AutotuneError: if no configuration works.
    """
    began, posed = monotonic(), problem_of(*problem, **arguments)
    options = options_of(trials, budget, seed, sampler, jobs, objective, storage)
    if quick:
        options = quick_options(options, family)
    options = options.begun(began)
    with shown(posed, options, observer, progress) as observes:
        return search(
            posed,
            options,
            device=device,
            devices=devices,
            family=family,
            recording=recording,
            observer=observes,
        )


def search(
    problem: Problem,
    options: Options,
    *,
    device: DeviceLike = DEFAULT,
    devices: str | Sequence[int] | None = None,
    family: str = "auto",
    recording: str | Path | None = None,
    observer: Observer | None = None,
) -> Record:
    """`tune` with its arguments decoded.

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
    options: Options,
    *,
    family: str = "auto",
    observer: Observer | None = None,
) -> Record:
    """Searches a problem at a workplace, which others may have used before; races it if the
    options are quick."""
    cache = settings.cache_dir()
    with workplace.opening(problem) as opened:
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
    from autotune.lookup.kept_choice import one_blas_thread
    from autotune.lookup.promising import contenders
    from autotune.records import Records
    from autotune.tuning.quick import QuickTunable

    with one_blas_thread():
        considered = contenders(
            problem, runner.device, Records(store), objective, configs=runner.known()
        )
    if not considered.first:
        raise NotFoundError(unserved(problem, runner.device))
    return QuickTunable(problem, raced=considered)
