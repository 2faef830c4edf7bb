"""Tunes many problems on this machine's GPU and bundles what is recorded, to be shipped.

    python scripts/shipped.py --seconds 500 --each 3.5

writes `autotune/data/shipped/<device>.json`: the shapes of `suite.py` in every precision, and the
linear layers of well-known models as PyTorch has them, `x @ W.T` (layout nt), for 1 to 8192 rows.

The problems come in an order in which an early end leaves a useful set: suite and models by turns,
precision after precision and size after size. What the file holds already of the same kernels is
passed over unless `--again` is given, so that a run goes on where the last one ended; the file is
written whole every few problems. All problems share the compiled programs and the two processes
that measure, whose start would take longer than a search.

Searches begin with what is known of similar problems: what the file holds and the package ships,
and the trials of earlier kernels under `docs/results`. These are guesses alone; what is bundled was
measured by this run or one that it goes on from. The f16 twin of a bf16 problem starts from its
winners and gets `--twin` of the time.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Annotated, Protocol, runtime_checkable

import typer
from rich.console import Console
from rich.table import Table
from shipped_problems import problems

from autotune import compiler, settings
from autotune.errors import AutotuneError, RunnerError
from autotune.problem import COMPUTES, Problem
from autotune.records import Entry, Provenance, Record, Store, bundle
from autotune.records.rounding import rounded
from autotune.runners.base import Measurement
from autotune.runners.recording import Recording
from autotune.targets import sources, targets
from autotune.targets.targets import Target
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.loop import Options, tune

TRIALS = Path("docs/results/h100/trials")
WRITTEN_EACH = 10
SHOWN = Console(width=110, soft_wrap=True)


def main(
    seconds: Annotated[float, typer.Option(help="In all.")] = 3600.0,
    each: Annotated[float, typer.Option(help="Of a problem.")] = 10.0,
    twin: Annotated[float, typer.Option(help="Of that for f16 after bf16.")] = 0.6,
    computes: Annotated[
        list[str] | None, typer.Option("--compute", help="Only these precisions.")
    ] = None,
    only: Annotated[str, typer.Option(help="Problems whose text has this in it.")] = "",
    device: Annotated[str, typer.Option(help="As of `autotune tune`.")] = sources.DEFAULT,
    out: Annotated[Path | None, typer.Option(help="The file; by default the package's.")] = None,
    trials: Annotated[Path, typer.Option(help="Recordings to guess by.")] = TRIALS,
    again: Annotated[bool, typer.Option("--again", help="Also what is there already.")] = False,
    seed: int = 0,
) -> None:
    """Tunes and bundles; status 1 if a problem has no result."""
    began = monotonic()
    where = targets.resolve(device)
    path = out or settings.shipped_dir() / f"{where.slug}.json"
    wanted = [one for one in problems(checked(computes)) if only in str(one)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        book = Book(path, Store(Path(name) / "store"), targets.here().source)
        book.resume(known(trials), Path(name) / "shipped")
        places = Places(device, stack, seed)
        failed, left = [], [one for one in wanted if again or not book.has(one)]
        SHOWN.print(f"{len(wanted) - len(left)} of {len(wanted)} problems are there already")
        for number, problem in enumerate(left, 1):
            if monotonic() - began + each > seconds:
                SHOWN.print(f"{seconds:.0f} s are over: {len(left) - number + 1} problems are left")
                break
            budget = each * (twin if book.has_twin(problem) else 1.0)
            if not tuned(problem, places, book, Options(budget_s=budget, seed=seed)):
                failed.append(problem)
            if number % WRITTEN_EACH == 0:
                book.write()
        book.write()
        SHOWN.print(table(book.records))
    size = path.stat().st_size if path.exists() else 0
    SHOWN.print(f"{path}: {len(book.records)} problems, {size:,} bytes")
    if failed:
        SHOWN.print("no result:", ", ".join(map(str, failed)), style="red")
        raise typer.Exit(1)


def checked(computes: list[str] | None) -> list[str] | None:
    """The precisions, if there are all of them."""
    if unknown := {*(computes or ())} - {*COMPUTES}:
        raise typer.BadParameter(f"unknown compute {', '.join(sorted(unknown))}")
    return computes


def known(folder: Path) -> list[Record]:
    """The best ten of each recording in a folder, as records."""
    found = (Recording.load(path) for path in sorted(folder.glob("*.json.gz")))
    return [record for recording in found if (record := record_of(recording)) is not None]


def record_of(recording: Recording, *, most: int = 10) -> Record | None:
    """The fastest rows of a recording as a record; None if none has a time."""
    entries = [
        Entry(row.config, row.outcome, row.resources, resident.occupancy, resident.limiter)
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
        and (resident := row.resources.occupancy(recording.device))
    ]
    if not entries:
        return None
    entries.sort(key=lambda entry: (entry.measurement.time_us, str(entry.config)))
    origin = recording.origin
    made = Provenance(
        *(origin.driver, origin.compiler, origin.source, "", recording.date),
        seed=0,
        trials=len(recording.rows),
        seconds=0.0,
    )
    return Record(
        *(recording.device, "measured", tuple(entries[:most]), recording.baseline, made),
        recording.problem,
    )


@dataclass
class Book:
    """The file, and what its records are kept in meanwhile.

    Attributes:
        path: the file.
        store: of the records of this run and of those that it goes on from.
        source: hash of today's kernels.
    """

    path: Path
    store: Store
    source: str

    def __post_init__(self) -> None:
        self._records: dict[Problem, Record] = {}

    @property
    def records(self) -> list[Record]:
        """By problem."""
        return [self._records[problem] for problem in sorted(self._records)]

    def resume(self, guesses: Iterable[Record], folder: Path) -> None:
        """Takes over what the file holds of today's kernels; all else, and `guesses`, goes to the
        folder that this process takes for the shipped records."""
        there = bundle.loads(self.path.read_bytes()).records if self.path.exists() else ()
        shipped = chain.from_iterable(
            bundle.loads(path.read_bytes()).records
            for path in settings.shipped_dir().glob("*.json")
            if path != self.path
        )
        for record in there:
            if record.provenance.source == self.source:
                self.add(self.store.save(record))
        # The later ones stand before those before them.
        by_place = {(one.device, one.problem): one for one in (*shipped, *guesses, *there)}
        folder.mkdir(parents=True)
        (folder / "guesses.json").write_bytes(bundle.dumps(by_place.values()))
        os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder)

    def has(self, problem: Problem) -> bool:
        """Whether it is recorded."""
        return problem in self._records

    def has_twin(self, problem: Problem) -> bool:
        """Whether it is in f16 and recorded in bf16."""
        return problem.compute == "f16" and self.has(replace(problem, compute="bf16"))

    def add(self, record: Record) -> None:
        """Keeps a record that is in the store."""
        self._records[record.problem] = record

    def write(self) -> None:
        """Writes the file, if there is anything to write."""
        if self._records:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(f"{self.path.name}.tmp")
            temporary.write_bytes(bundle.dumps(map(rounded, self.records)))
            temporary.replace(self.path)


@runtime_checkable
class Turning(Protocol):
    """A runner that can take up another problem, as that of a GPU can."""

    def switch_to(self, problem: Problem) -> None:
        """Takes it up."""
        ...


class Places:
    """Where problems are measured, one after the other; what is opened is closed with the stack."""

    def __init__(self, device: str, stack: ExitStack, seed: int = 0) -> None:
        self._device, self._seed = device, seed
        self._stack = stack.enter_context(ExitStack())
        self._target: Target | None = None

    def target(self, problem: Problem) -> Target:
        """What measures the problem: the processes of the last one, if they can be had.

        Raises:
            AutotuneError: as `targets.opened`.
        """
        last = self._target
        if last is not None and isinstance(last.runner, Turning):
            targets.check_memory(problem, last.runner.device)
            last.runner.switch_to(problem)
            return last
        self.end()
        opened = targets.opened(problem, self._device, seed=self._seed)
        self._target = self._stack.enter_context(opened)
        return self._target

    @property
    def current(self) -> Target:
        """What measures the last problem; `target` has to have opened it."""
        if self._target is None:
            raise RunnerError("nothing is open; ask for a target first")
        return self._target

    def end(self) -> None:
        """Closes what is open; the next problem opens anew."""
        self._target = None
        self._stack.close()


def tuned(problem: Problem, places: Places, book: Book, options: Options) -> bool:
    """Tunes a problem into the book and prints a line; whether it worked."""
    began = monotonic()
    try:
        record = tune_at(problem, places, book.store, options)
    except AutotuneError as error:
        SHOWN.print(f"{problem}: {error}", style="red", markup=False)
        places.end()
        return False
    book.add(record)
    SHOWN.print(line(record, monotonic() - began), markup=False, highlight=False)
    return True


def tune_at(problem: Problem, places: Places, store: Store, options: Options) -> Record:
    """Tunes a problem where the last one was, with the programs that are there.

    Raises:
        AutotuneError: if nothing could be measured.
    """
    target = places.target(problem)
    return tune(
        *(GemmTunable(problem), target.runner, store, options),
        compile=partial(compiler.compile, cache=settings.cache_dir()),
        origin=target.origin,
    )


def line(record: Record, seconds: float) -> str:
    """Such as `16x4096x4096:bf16:nt  7.51 us, cuBLAS 8.95 us: 1.192  (3.1 s, 120 trials)`."""
    ours, theirs = record.best.measurement.time_us, record.baseline
    beside = f", cuBLAS {theirs.time_us:.2f} us: {theirs.time_us / ours:.3f}" if theirs else ""
    made = f"({seconds:.1f} s, {record.provenance.trials} trials)"
    return f"{record.problem!s:28} {ours:9.2f} us{beside}  {made}"


def table(records: Iterable[Record]) -> Table:
    """Of each precision cuBLAS's time over ours."""
    ratios: dict[str, list[float]] = {}
    for record in records:
        if record.baseline is not None:
            ratio = record.baseline.time_us / record.best.measurement.time_us
            ratios.setdefault(record.problem.compute, []).append(ratio)
    shown = Table("compute", "problems", "geomean", "worst", "faster than cuBLAS")
    for compute, found in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, found)) / len(found))
        wins = sum(ratio > 1 for ratio in found)
        shown.add_row(compute, str(len(found)), f"{mean:.3f}", f"{min(found):.3f}", str(wins))
    return shown


if __name__ == "__main__":
    typer.run(main)
