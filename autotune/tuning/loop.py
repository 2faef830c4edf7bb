"""The tuning loop: propose, compile ahead, measure, learn, rematch the leaders, record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TypeVar

from threadpoolctl import threadpool_limits

from autotune.errors import AutotuneError
from autotune.records import Store, TuningRecord
from autotune.runners.base import Runner
from autotune.runners.recording import Origin
from autotune.tuning import collector
from autotune.tuning.evaluate import Compile
from autotune.tuning.events import Observer, Silent
from autotune.tuning.options import Search
from autotune.tuning.run import Run
from autotune.tuning.tunable import Tunable

__all__ = ["Search", "tune"]

R = TypeVar("R", bound=TuningRecord)


def tune(
    tunable: Tunable[R],
    runner: Runner,
    store: Store,
    options: Search,
    *,
    compile: Compile,
    origin: Origin,
    observer: Observer | None = None,
    further: Sequence[Runner] = (),
) -> R:
    """Searches the fastest configuration and records the best ten.

    Every trial is in the log as soon as it is finished. A later run of the same tunable,
    device, kind of evidence, kinds of configurations, sources, compiler and driver continues from
    there. Several processes may tune at once: none tries what another has claimed. If the run ends
    early, by an interrupt or a runner's failure, the exception is passed on after what was measured
    is recorded. Candidates that crash or hang on the device are quarantined at once and not tried
    again.

    Args:
        tunable: the GEMM or user kernel to tune.
        runner: measures; the caller closes it.
        store: holds records, trial logs and the quarantine.
        options: limits and sampler of the search.
        compile: makes a program of a template for an architecture.
        origin: compiler, driver and sources of the measurements, for the record.
        observer: receives the events of the run.
        further: runners of more devices of the same model, which share the work.

    Returns:
        The record, merged with what was recorded before.

    Raises:
        AutotuneError: if there is no configuration to try, or none of those tried has a time.
        BudgetError: if the time was over before one was tried.
        RunnerError: if a runner fails as a whole.
        CacheError: if the store cannot be written; an `UnsavedError` if results are affected.
    """
    runners, told = (runner, *further), observer or Silent()
    with collector.paused():
        run = Run(tunable, runners, store, options, compile, origin, told)
    try:
        # A matrix library's threads would compete with the compiler's.
        with closing(run.log), closing(run.compiler), threadpool_limits(1, "blas"):
            run.search()
            run.rematch()
        if run.leaderboard.leaders:
            return run.save()
        if run.cut_short:
            raise run.too_late()
    except BaseException as error:
        if run.leaderboard.leaders and not run.settled:
            run.save(error)
        raise
    raise AutotuneError(
        f"no configuration of {tunable} has a time on {runner.device.name}: "
        f"{run.leaderboard.failure_summary()}{run.accuracy.summary()}"
    )
