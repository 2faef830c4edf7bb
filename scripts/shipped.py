"""Tunes many problems on this machine's GPU and writes its shipped records.

    python scripts/shipped.py --seconds 500 --each 3.5

writes `autotune/data/shipped/<device>.jsonl.xz`: the shapes of `suite.py` in every precision, and
the linear layers of well-known models as PyTorch has them, `x @ W.T` (layout nt), for 1 to 8192
rows.

The problems are ordered so that an early end leaves a useful set: suite and models alternate, by
precision and size. Problems that the file already has for the current kernels are skipped unless
`--again` is given, so a run continues where the last one ended. The file is written every few
problems. All problems share the compiled programs and the two processes that measure: starting
these takes longer than a search.

Searches start from the records of neighbouring problems: those in the file, the shipped ones, and
the trials of earlier kernels under `docs/results`. These are only guesses: every bundled record was
measured by this run or by one that it continues. The f16 twin of a bf16 problem starts from its
winners and gets `--twin` of the time.

    python scripts/shipped.py --submitted card.jsonl.xz

merges what users submitted (`autotune cache export --submit`) into the files of their cards, and
needs no GPU.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from shipped_files import ShippedFile, best_of_recordings, table
from shipped_problems import problems

from autotune import settings
from autotune.cuda import compiler
from autotune.errors import AutotuneError, UsageError
from autotune.measure import devices, targets
from autotune.measure.targets import TargetOpener
from autotune.problem import COMPUTES, Problem
from autotune.records import Record, Store, bundle, exchange
from autotune.tuning.loop import Search, tune
from autotune.tuning.tunable import GemmTunable

TRIALS = Path("docs/results/h100/trials.zip")


WRITTEN_EACH = 10


CONSOLE = Console(width=110, soft_wrap=True)


def main(
    seconds: Annotated[float, typer.Option(help="Total seconds for all problems.")] = 3600.0,
    each: Annotated[float, typer.Option(help="Tuning seconds for each problem.")] = 10.0,
    twin: Annotated[float, typer.Option(help="Share of --each for f16 after bf16.")] = 0.6,
    computes: Annotated[
        list[str] | None, typer.Option("--compute", help="Tune only these precisions.")
    ] = None,
    only: Annotated[str, typer.Option(help="Tune only problems whose text contains this.")] = "",
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default the package's.")
    ] = None,
    trials: Annotated[
        Path, typer.Option(help="Folder or archive of recordings to start searches from.")
    ] = TRIALS,
    again: Annotated[bool, typer.Option("--again", help="Tune recorded problems again.")] = False,
    submitted: Annotated[
        list[Path] | None, typer.Option(help="Submission to merge; repeatable. Nothing is tuned.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Tunes and bundles; status 1 if a problem has no result."""
    began = monotonic()
    if submitted:
        for submission in submitted:
            take(submission, out)
        return
    where = targets.resolve(device)
    path = out or settings.shipped_dir() / f"{where.slug}.jsonl.xz"
    wanted = [problem for problem in problems(checked(computes)) if only in str(problem)]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        TargetOpener(device, seed=seed) as places,
    ):
        file = ShippedFile(path, Store(Path(name) / "store"), targets.here().source)
        file.resume(best_of_recordings(trials), Path(name) / "shipped")
        failed, left = [], [problem for problem in wanted if again or not file.has(problem)]
        CONSOLE.print(f"{len(wanted) - len(left)} of {len(wanted)} problems are there already")
        for number, problem in enumerate(left, 1):
            if monotonic() - began + each > seconds:
                CONSOLE.print(
                    f"{seconds:.0f} s are over: {len(left) - number + 1} problems are left"
                )
                break
            budget = each * (twin if file.has_twin(problem) else 1.0)
            if not tuned(problem, places, file, Search(seconds=budget, seed=seed)):
                failed.append(problem)
            if number % WRITTEN_EACH == 0:
                file.write()
        file.write()
        CONSOLE.print(table(file.records))
    size = path.stat().st_size if path.exists() else 0
    CONSOLE.print(f"{path}: {len(file.records)} problems, {size:,} bytes")
    if failed:
        CONSOLE.print("no result:", ", ".join(map(str, failed)), style="red")
        raise typer.Exit(1)


def take(submission: Path, out: Path | None) -> None:
    """Merges a submission into the shipped file of its card and prints what came of it.

    Raises:
        typer.BadParameter: if the file is no submission, or holds what a release cannot ship.
    """
    try:
        content, today = bundle.loads(submission.read_bytes()), targets.here()
        if content.submission is None:
            raise UsageError("it says nothing of its card; `cache export --submit` writes one")
        exchange.submitted(content, today, "")  # checks the records again
    except (ValueError, UsageError) as error:
        raise typer.BadParameter(f"{submission}: {error}") from error
    device = next(iter(content.records)).device
    path = out or settings.shipped_dir() / f"{device.slug}.jsonl.xz"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        file = ShippedFile(path, Store(Path(name)), today.source)
        file.begin()
        for record in content.records:
            change = file.store.adopt(record, today)
            CONSOLE.print(f"{record.problem!s:28} {change}", markup=False, highlight=False)
        for record in file.store.records(device):
            file.add(record)
        file.write()
    CONSOLE.print(f"{path}: {content.submission}; run scripts/digests.py", markup=False)


def checked(computes: list[str] | None) -> list[str] | None:
    """The precisions, if all of them exist."""
    if unknown := {*(computes or ())} - {*COMPUTES}:
        raise typer.BadParameter(f"unknown compute {', '.join(sorted(unknown))}")
    return computes


def tuned(problem: Problem, places: TargetOpener, file: ShippedFile, options: Search) -> bool:
    """Tunes a problem into the file and prints a line; returns whether it worked."""
    began = monotonic()
    try:
        record = tune_at(problem, places, file.store, options)
    except AutotuneError as error:
        CONSOLE.print(f"{problem}: {error}", style="red", markup=False)
        return False
    file.add(record)
    CONSOLE.print(line(record, monotonic() - began), markup=False, highlight=False)
    return True


def tune_at(problem: Problem, places: TargetOpener, store: Store, options: Search) -> Record:
    """Tunes a problem on the reused target with the shared program cache.

    Raises:
        AutotuneError: if nothing could be measured.
    """
    with places.starting(problem) as ready:
        target = ready()
        return tune(
            *(GemmTunable(problem), target.runner, store, options),
            compile=partial(compiler.compile, cache=settings.cache_dir()),
            origin=target.origin,
        )


def line(record: Record, seconds: float) -> str:
    """A record in one line.

    Such as `16x4096x4096:bf16:nt  7.51 us, cuBLAS 8.95 us: 1.192  (3.1 s, 120 trials)`.
    """
    ours, theirs = record.best.measurement.time_us, record.baseline
    beside = f", cuBLAS {theirs.time_us:.2f} us: {theirs.time_us / ours:.3f}" if theirs else ""
    effort = f"({seconds:.1f} s, {record.provenance.trials} trials)"
    return f"{record.problem!s:28} {ours:9.2f} us{beside}  {effort}"


if __name__ == "__main__":
    typer.run(main)
