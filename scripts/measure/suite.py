"""Tunes a suite of shapes and times each winner against cuBLAS and cuBLASLt.

    python scripts/measure/suite.py docs/results/h100 --compute f32 --trials trials/h100
    python scripts/measure/suite.py docs/results/h100 --compute tf32 --layouts
    python scripts/measure/suite.py docs/results/h200 --compute f8:nt:scale=row --devices all

write `suite-f32.json` and `suite-bf16.json`, `layouts-tf32.json`, and `suite-f8-row.json` into the
folder. Rows of 8-bit problems whose operands cuBLAS refuses, so that it was timed on padded copies,
are marked `padded`. A Triton kernel is timed beside scales of blocks and, with `--triton`, beside
products of 16 bits in layout nn, in any of the tiles that PyTorch's Inductor races.

Each shape is tuned for `--budget` seconds; then its winner, cuBLAS (PyTorch, in the same precision;
beside `tf32x3` in IEEE fp32) and all results of cuBLASLt's heuristic are timed once more,
interleaved on the same buffers, so that the reported times are not those that chose the winner.
A file is written whole after every shape. An interrupted run continues: shapes that the file has
for these kernel sources, this device and this cuBLAS are skipped unless `--again` is given; other
rows go. With `--seconds` no shape starts later than that. Several `--devices` take shapes side by
side, each with its share of the cores. `--records` writes the records too, for `shipped.py take`.

Tuning starts with an empty cache. Within a run, shapes share compiled programs, and winners are
among the first guesses for later shapes. The worker processes stay open.
`--trials` keeps all trials in a recording for each shape.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Annotated, Any, Generic, Protocol, TypeVar, runtime_checkable

import results
import typer
from apart import Apart, shares
from results import TRITON, Finals, Row, Sheet
from rich.console import Console

from autotune import cores
from autotune.cuda import cublaslt
from autotune.cuda.compiler import compile
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import AutotuneError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.shared.tiling import tile_count
from autotune.files import write_whole
from autotune.measure import devices, recording, targets
from autotune.measure.baseline import ALGORITHMS, FlatView
from autotune.measure.bench import BASELINE
from autotune.measure.devices import DeviceLike
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import COLD
from autotune.measure.operands import Operands
from autotune.measure.recording import Origin, Recording
from autotune.measure.runner import Candidate, Runner
from autotune.measure.session import Run, Session
from autotune.measure.targets import Target, TargetOpener
from autotune.measure.vendor_check import SUITE as SUITE
from autotune.problem import ELEMENT_TYPES, LAYOUTS, Problem
from autotune.problem.fields import ProblemFields
from autotune.records import Record, Store, bundle, exchange
from autotune.records.merging import stale
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Observer, Progress, Trial
from autotune.tuning.tunable import GemmTunable

IN_EVERY_LAYOUT = ("1024x1024x1024", "4096x4096x4096", "64x4096x4096")


TRITON_BASELINE = "suite:open_triton"


SHOWN = Console(width=110, soft_wrap=True)

T = TypeVar("T")
R = TypeVar("R")


def main(
    out: Annotated[Path, typer.Argument(help="Folder of the result files.")],
    computes: Annotated[
        list[str] | None,
        typer.Option("--compute", help="Precision, with further words such as f8:nt:scale=row."),
    ] = None,
    shapes: Annotated[list[str] | None, typer.Option(help="Shape instead of the suite's.")] = None,
    layouts: Annotated[bool, typer.Option("--layouts", help="Tune shapes in all layouts.")] = False,
    name: Annotated[str, typer.Option(help="Name of the files before the precision.")] = "",
    budget: Annotated[float, typer.Option(max=60, help="Tuning seconds for each shape.")] = 20.0,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 1e6,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    gpus: Annotated[str, typer.Option("--devices", help="Several GPUs: 0,1 or all.")] = "",
    records: Annotated[Path | None, typer.Option(help="Bundle of the records.")] = None,
    trials: Annotated[Path | None, typer.Option(help="Folder for recordings of trials.")] = None,
    triton: Annotated[bool, typer.Option("--triton", help="Time Triton's products too.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Tune shapes of the files again.")] = False,
    flops: Annotated[float | None, typer.Option(help="Arithmetic ceiling in FLOP/s.")] = None,
    copy: Annotated[float | None, typer.Option(help="Memory ceiling in bytes/s.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Writes a file for each precision and prints it as a table.

    Exit status 1 if a shape has no result.
    """
    ends, problems = monotonic() + seconds, chosen(shapes, layouts, computes or ["f32"])
    kinds = {kind_of(problem): problem.compute for problem in problems}
    if flops and len(kinds) > 1:
        raise typer.BadParameter("--flops is for one precision; give one --compute with it")
    used: Sequence[DeviceLike] = [*devices.numbered(gpus)] if gpus else [device]
    where, kept = targets.resolve(used[0]), name or ("layouts" if layouts else "suite")
    sheets = {
        kind: sheet_of(out / f"{kept}-{kind}.json", where, commit, flops, copy, compute)
        for kind, compute in kinds.items()
    }
    wanted = [item for item in problems if again or item not in sheets[kind_of(item)].rows]
    SHOWN.print(f"{len(problems) - len(wanted)} of {len(problems)} shapes are there already")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        options = Search(seconds=budget, seed=seed, jobs=jobs_of(used))
        most = {kind: sheet.most for kind, sheet in sheets.items()}
        run, left = SuiteRun(Path(empty), options, most, trials, triton), [*wanted]
        for problem, made in side_by_side(wanted, used, ends, run.attempt):
            if isinstance(made, str):
                SHOWN.print(f"{problem}: {made}", style="red", markup=False)
                continue
            record, row = made
            left.remove(problem)
            sheets[kind_of(problem)].add(problem, record, row)
            SHOWN.print(results.table([row]), row["config"], markup=False)
            if records is not None:
                add_records(records, [record])
    for kind, sheet in sheets.items():
        rows = [row for problem, row in sheet.rows.items() if problem in problems]
        show(kind, kinds[kind], rows, layouts)
    if left:
        SHOWN.print("no result:", ", ".join(map(str, left)), style="red")
        raise typer.Exit(1)


def jobs_of(gpus: Sequence[DeviceLike]) -> int:
    """Compiler threads for each of several GPUs of this machine."""
    return max(1, cores.available() // len(gpus) - 1)


def add_records(path: Path, new: Iterable[Record]) -> None:
    """Adds measured records to a bundle, in place of those of the same problems; stale ones go.

    The bundle names what it was measured with, its versions of cuBLAS included, as a submission
    does.
    """
    today, versions = targets.here(), [cublaslt.version()]
    latest: dict[Problem, Record] = {}
    if path.exists():
        earlier = bundle.loads(path.read_bytes())
        latest = {each.problem: each for each in earlier.records if not stale(each, today)}
        if latest and earlier.submission:
            versions = [*earlier.submission.cublas.split(", "), *versions]
    latest |= {each.problem: each for each in new}
    content = bundle.Bundle([latest[problem] for problem in sorted(latest)])
    made = exchange.submitted(content, today, ", ".join(dict.fromkeys(versions)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(bundle.written(made)))


def sheet_of(
    path: Path, device: Device, commit: str, flops: float | None, copy: float | None, compute: str
) -> Sheet:
    """The sheet of a precision, with the file's rows of the current kernels on the device."""
    measured = results.ceilings(device, compute)
    most = results.Ceilings(flops or measured.flops, copy or measured.bytes)
    sheet = Sheet(path, device.name, source_hash(*registry.kernel_sources()), commit, most)
    sheet.resume()
    return sheet


def kind_of(problem: Problem) -> str:
    """The precision in the name of a file, such as `f8-row` and `f8-fast`; one scale a tensor, or
    none, goes without saying."""
    scale = () if problem.scale in ("none", "tensor") else (problem.scale,)
    fast = () if problem.accumulate == "exact" else (problem.accumulate,)
    return "-".join((problem.compute, *scale, *fast))


def show(kind: str, compute: str, rows: Sequence[Row], layouts: bool) -> None:
    """Prints the rows of one file as tables."""
    SHOWN.print(f"{kind} beside cuBLAS in {results.of_vendor(compute)}", style="bold")
    SHOWN.print(results.table(rows))
    if layouts:
        SHOWN.print(results.layout_table(rows))


class OnGpu(Generic[T, R]):
    """Work on one GPU, whose runners stay open from item to item.

    Args:
        gpu: the device.
        work: makes a result of an item and the opener of the GPU's target.
    """

    def __init__(self, gpu: DeviceLike, work: Callable[[T, TargetOpener], R]) -> None:
        self._opener, self._work = TargetOpener(gpu), work

    def result(self, item: T) -> R:
        """The result of an item."""
        return self._work(item, self._opener)


def workers(
    gpus: Sequence[DeviceLike], work: Callable[[T, TargetOpener], R], opened: ExitStack
) -> list[Callable[[T], R]]:
    """A function for each GPU, which returns the result of an item.

    Several GPUs have a process each, with its share of the cores: listing the candidates of a shape
    takes Python up to 1.4 s, which the GPUs would spend waiting for one interpreter.
    """
    if len(gpus) == 1:
        opener = opened.enter_context(TargetOpener(gpus[0]))
        return [lambda item: work(item, opener)]
    placed = zip(gpus, shares(len(gpus)), strict=True)
    processes = [Apart(partial(OnGpu, gpu, work), {}, own) for gpu, own in placed]
    return [partial(opened.enter_context(closing(each)), "result") for each in processes]


def side_by_side(
    items: Iterable[T],
    gpus: Sequence[DeviceLike],
    ends: float,
    work: Callable[[T, TargetOpener], R],
) -> Iterator[tuple[T, R]]:
    """The result of each item, as it comes. A GPU takes the next item as soon as it is free. None
    starts after `ends`, a time of `time.monotonic`.

    Raises:
        Failed: if a process of several ends, or its work raises an error.
    """
    with ThreadPoolExecutor(len(gpus)) as pool, ExitStack() as opened:
        idle = workers(gpus, work, opened)
        running: dict[Future[R], tuple[T, Callable[[T], R]]] = {}
        waiting, finished = iter(items), list[tuple[T, R]]()
        while True:
            while idle and monotonic() < ends and (item := next(waiting, None)) is not None:
                worker = idle.pop()
                running[pool.submit(worker, item)] = item, worker
            yield from finished  # while the GPUs work
            if not running:
                return
            finished.clear()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                item, worker = running.pop(future)
                idle.append(worker)
                finished.append((item, future.result()))


def chosen(
    shapes: Sequence[str] | None, layouts: bool, computes: Sequence[str] = ("f32",)
) -> list[Problem]:
    """The problems in tuning order, precision by precision; a shape that states its own precision
    keeps it."""
    texts = shapes or (IN_EVERY_LAYOUT if layouts else SUITE)
    problems = []
    for kind, text, layout in product(computes, texts, LAYOUTS if layouts else ("nn",)):
        compute, *words = kind.split(":")
        stated: ProblemFields = {"compute": compute, "layout": layout}
        problems.append(Problem.parse(":".join((text, *words)), **stated))
    return [*dict.fromkeys(problems)]


@dataclass(frozen=True)
class SuiteRun:
    """The settings that all shapes of a run share.

    Attributes:
        empty: folder of programs and records, empty at the start.
        options: the tuning options.
        most: the ceilings of each kind.
        trials: folder for the trials; None keeps none.
        triton: whether Triton kernels are timed where cuBLASLt is.
    """

    empty: Path
    options: Search
    most: Mapping[str, results.Ceilings]
    trials: Path | None
    triton: bool = False

    def attempt(self, problem: Problem, opener: TargetOpener) -> tuple[Record, Row] | str:
        """The record and the row of a shape, or why there are none."""
        try:
            return self.row(problem, opener.target(problem))
        except AutotuneError as error:
            return str(error)

    def row(self, problem: Problem, target: Target) -> tuple[Record, Row]:
        """Tunes one shape and times its winners again beside the baselines.

        Raises:
            AutotuneError: if nothing could be measured.
        """
        began = monotonic()
        keeper, compiled = Keeper(), partial(compile, cache=self.empty)
        runner, origin = target.runner, target.origin
        record = tune(
            *(GemmTunable(problem), runner, Store(self.empty), self.options),
            compile=compiled,
            origin=origin,
            observer=keeper,
        )
        seconds = monotonic() - began
        if self.trials is not None:
            path = recording.path_of(self.trials.name, problem, self.trials.parent)
            keeper.recording(record, origin).save(path)
        winners = record.best.config, record.best_by(COLD).config
        last = finals(*winners, problem, runner, compiled, self.further(problem))
        most = self.most[kind_of(problem)]
        return record, results.row(problem, record, last, seconds, most)

    def further(self, problem: Problem) -> list[str]:
        """The baselines beside cuBLAS."""
        if problem.scale == "block":
            return [TRITON_BASELINE]
        return [ALGORITHMS, TRITON_BASELINE] if self.triton else [ALGORITHMS]


class Keeper(Observer):
    """An observer that keeps every trial of a run."""

    def __init__(self) -> None:
        self._trials: list[Trial] = []
        self._leaders: set[Config] = set()

    def trial(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Keeps a trial."""
        self._trials.append(trial)

    def rematch(self, leaders: Sequence[Trial]) -> None:
        """Notes which trials are timed again."""
        self._leaders = {trial.config for trial in leaders}

    def recording(self, record: Record, origin: Origin) -> Recording:
        """All trials, except leaders that failed in the rematch.

        The other leaders have their times from the rematch.
        """
        again = {entry.config: entry.measurement for entry in record.entries}
        rows = tuple(
            recording.SweepRow(
                trial.config,
                trial.resources
                or registry.find(trial.config.family).estimate(trial.config, record.problem),
                again.get(trial.config, trial.outcome),
            )
            for trial in self._trials
            if trial.config in again or trial.config not in self._leaders
        )
        date, baseline = record.provenance.date, record.baseline
        return Recording(record.problem, record.device, origin, date, baseline, rows)


@runtime_checkable
class Comparing(Protocol):
    """A runner that also times further baselines, as a GPU's does."""

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> Mapping[str, Measurement | Failure]:
        """Outcomes by configuration, the vendor baseline as `BASELINE`, and further baselines."""
        ...


def finals(
    hot: Config,
    cold: Config,
    problem: Problem,
    runner: Runner,
    compiled: Compile,
    further: Sequence[str] = (),
) -> Finals:
    """Times the hot and the cold winner, cuBLAS if available and further baselines, interleaved.

    Raises:
        AutotuneError: if a winner fails.
    """
    candidates = []
    for config in dict.fromkeys((hot, cold)):
        candidate = prepare(registry.plan(config, problem), runner, compiled)
        if isinstance(candidate, Failure):
            raise AutotuneError(f"{config}: {candidate.stage}: {candidate.reason}")
        candidates.append(candidate)
    outcomes = compared(candidates, runner, further)
    ours: dict[Config, Measurement] = {}
    for config in (candidate.config for candidate in candidates):
        outcome = outcomes.pop(str(config))
        if isinstance(outcome, Failure):
            raise AutotuneError(f"{config}: {outcome.stage}: {outcome.reason}")
        ours[config] = outcome
    timed = {name: item for name, item in outcomes.items() if isinstance(item, Measurement)}
    cublas, triton = timed.pop(BASELINE, None), timed.pop(results.TRITON, None)
    return Finals(ours[hot], cublas, timed, ours[cold], triton)


def compared(
    candidates: Sequence[Candidate], runner: Runner, further: Sequence[str] = ()
) -> dict[str, Measurement | Failure]:
    """The outcomes of the final round, by name as in `Comparing`, with further baselines."""
    if not isinstance(runner, Comparing):
        names = [str(candidate.config) for candidate in candidates]
        ours, baseline = runner.rematch(candidates), runner.baseline()
        outcomes = dict(zip(names, ours, strict=True))
        return outcomes | ({BASELINE: baseline} if baseline else {})
    try:
        return {**runner.compare(candidates, further)}
    except RunnerError as error:
        if not further:
            raise
        # A missing or crashing library only costs its own times.
        SHOWN.print(f"without {', '.join(further)}: {error}", style="red", markup=False)
        return {**runner.compare(candidates, [])}


def open_triton(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """A run of C = op(A) op(B), named `TRITON`; none if no kernel computes the problem, or without
    Triton."""
    try:
        torch, kernels = import_module("torch"), import_module("triton_kernels")
    except ImportError:
        return []
    problem = operands.problem
    kernel = kernel_of(problem, kernels)
    if kernel is None:
        return []
    device = torch.device("cuda", session.index)
    stream = torch.cuda.ExternalStream(session.stream, device=device)
    matrices = [operands.a, operands.b, operands.c]
    if problem.scale == "block":
        matrices += [operands.scale_a.vector, operands.scale_b.vector]
    tensors = [
        torch.as_tensor(FlatView(matrix), device=device).view(
            getattr(torch, ELEMENT_TYPES[matrix.type].dtype)
        )
        for matrix in matrices
    ]

    def grid(tile: dict[str, int]) -> tuple[int]:
        return (tile_count(problem, tile["BM"], tile["BN"]),)

    def run() -> None:
        with torch.cuda.stream(stream):
            kernel[grid](*tensors, problem.m, problem.n, problem.k)

    return [(TRITON, run)]


def kernel_of(problem: Problem, kernels: ModuleType) -> Any:
    """The kernel of `triton_kernels.py` that computes the problem; None if none does."""
    if problem.batch > 1 or problem.epilogue != "none":
        return None
    if (problem.scale, problem.layout) == ("block", "nt"):
        return kernels.block_scaled
    plain = problem.compute in ("bf16", "f16") and problem.layout == "nn"
    return kernels.product if plain else None


if __name__ == "__main__":
    typer.run(main)
