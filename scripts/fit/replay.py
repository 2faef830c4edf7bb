"""Replays searches on a recorded space and reports how soon they find good configurations.

    python scripts/fit/replay.py docs/results/spaces/xgemm_rtx3090_4096.csv.gz \\
        --sampler gp --sampler tpe --kernel-tuner adaptive_tabu_greywolf
    python scripts/fit/replay.py autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz --blind

print a table with one row a method. No GPU is needed; Kernel Tuner's strategies need
`pip install --group compare`. A space is a recording of this package
(`.json.gz`) or a table (`.csv`, `.csv.gz`) with one row a configuration: a column for each
parameter, `time_ms`, and optionally `compile_ms`, which is not used, and `failure`, the reason why
a configuration did not run.

A run sees each configuration with the recorded noise, the same for all methods of one seed, and is
scored by the recorded times. It chooses the configuration with the shortest time it saw. With
`--rematch` it first times its leaders again, as `autotune tune` does.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from autotune.cores import available
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import winner
from autotune.measure.recording import Recording
from autotune.measure.without_gpu import ROUNDS, ReplayRunner, noisy
from autotune.model.features import Describe
from autotune.report import cell
from autotune.tuning.options import Sampler
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Leaderboard, Trial
from autotune.tuning.tunable import GemmTunable, guesses

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))


TIME, COMPILE, FAILURE = "time_ms", "compile_ms", "failure"


Outcome = Measurement | Failure


@dataclass(frozen=True)
class Space:
    """A problem's configurations and their outcomes.

    Attributes:
        outcomes: by configuration, in the order a search gets them.
        resources: of an SM, by configuration, as far as they were recorded.
        guesses: the configurations to try first; none for a blind search.
        recording: the source; None if that is a table.
        describe: features and predicted times of configurations; None for a blind search.
    """

    outcomes: Mapping[Config, Outcome]
    resources: Mapping[Config, Resources]
    guesses: tuple[Config, ...] = ()
    recording: Recording | None = None
    describe: Describe | None = None

    @property
    def configs(self) -> tuple[Config, ...]:
        """All configurations, failing ones included."""
        return tuple(self.outcomes)

    @property
    def failures(self) -> int:
        """The number of configurations that did not run."""
        return sum(isinstance(outcome, Failure) for outcome in self.outcomes.values())

    @cached_property
    def optimum_us(self) -> float:
        """The shortest recorded time."""
        ran = (outcome for outcome in self.outcomes.values() if isinstance(outcome, Measurement))
        return min(measurement.time_us for measurement in ran)

    def share(self, config: Config) -> float:
        """The optimum over the configuration's recorded time; 0 if it did not run."""
        outcome = self.outcomes[config]
        return self.optimum_us / outcome.time_us if isinstance(outcome, Measurement) else 0.0

    def again(self, config: Config, random: Random, samples: int = 1) -> Outcome:
        """The outcome a search sees: the recorded one with the noise of `samples` samples."""
        outcome = self.outcomes[config]
        return outcome if isinstance(outcome, Failure) else noisy(outcome, random, samples)

    def drawn(self, random: Random) -> dict[Config, Outcome]:
        """The outcomes of a run, each with its noise."""
        return {config: self.again(config, random) for config in self.outcomes}


@lru_cache(1)
def load(path: Path, blind: bool) -> Space:
    """The space of a file; `blind` leaves only the parameters of a recording.

    Raises:
        NotFoundError: if there is no such recording.
        AutotuneError: if the file is not a space, or nothing in it ran.
    """
    table = path.name.endswith((".csv", ".csv.gz"))
    space = _of_table(path) if table else _of_recording(Recording.load(path), blind)
    if space.failures == len(space.outcomes):
        raise AutotuneError(f"{path}: no configuration of it has a time")
    return space


def _of_recording(recording: Recording, blind: bool) -> Space:
    rows = {row.config: row for row in recording.rows}
    first: tuple[Config, ...] = ()
    configs = tuple(rows)
    describe: Describe | None = None
    if not blind:
        runner, problem = ReplayRunner(recording), recording.problem
        ranked = GemmTunable(problem).candidates(runner, (), ranked=None)
        configs, first = tuple(ranked.configs), guesses(ranked.ranked, problem)
        describe = GemmTunable(problem).describe(recording.device)
    return Space(
        outcomes={config: rows[config].outcome for config in configs},
        resources={config: rows[config].resources for config in configs},
        guesses=first,
        recording=recording,
        describe=describe,
    )


def _of_table(path: Path) -> Space:
    outcomes: dict[Config, Outcome] = {}
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for row in csv.DictReader(io.StringIO(text)):
            config, outcome = _row(row)
            if config in outcomes:
                raise ValueError(f"{config} appears twice")
            outcomes[config] = outcome
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise AutotuneError(f"{path}: not a table of configurations: {why}") from error
    return Space(outcomes, {})


def _row(row: Mapping[str, str]) -> tuple[Config, Outcome]:
    params = (f"{key}={row[key]}" for key in row if key not in (TIME, COMPILE, FAILURE))
    config = Config.parse(f"table:{','.join(params)}")
    if row.get(FAILURE):
        return config, Failure("launch", row[FAILURE])
    return config, Measurement(float(row[TIME]) * 1e3)


KERNEL_TUNER = "kernel-tuner:"


UNKNOWN = Resources(threads=0, registers=0, shared=0, barriers=0)


SHOWN = Console(width=120, soft_wrap=True)


def main(
    path: Annotated[Path, typer.Argument(help="Recording (.json.gz) or table (.csv or .csv.gz).")],
    samplers: Annotated[
        list[str] | None, typer.Option("--sampler", help="Sampler of this package.")
    ] = None,
    strategies: Annotated[
        list[str] | None, typer.Option("--kernel-tuner", help="Strategy of Kernel Tuner.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 50,
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations of each run.")] = 200,
    blind: Annotated[
        bool, typer.Option("--blind", help="Search without guesses and features.")
    ] = False,
    rematch: Annotated[bool, typer.Option("--rematch", help="Time the leaders again.")] = False,
    window: Annotated[int, typer.Option(min=1, help="Number of configurations in flight.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = available(),
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for all results.")] = None,
    commit: Annotated[str, typer.Option(help="Commit to record in the results.")] = "",
) -> None:
    """Prints how soon methods find good configurations in PATH; `gp` if none is named."""
    methods = chosen(samplers or ([] if strategies else ["gp"]), strategies or [])
    try:
        space = load(path, blind)
    except AutotuneError as error:
        raise typer.BadParameter(str(error)) from error
    tasks = [
        Task(path, blind, method, seed, evaluations, window, rematch)
        for method in methods
        for seed in range(seeds)
    ]
    runs = [*track(done(tasks, jobs), total=len(tasks), transient=True, console=SHOWN)]
    rows = [row(method, [run for run in runs if run.method == method]) for method in methods]
    SHOWN.print(f"{path.name}: {len(space.outcomes)} configurations, {space.failures} fail")
    SHOWN.print(table(rows))
    if out is not None:
        settings = asdict(tasks[0])
        del settings["path"], settings["method"], settings["seed"]
        results = {**header(path, space, commit), "seeds": seeds, **settings, "rows": rows}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


def chosen(samplers: Sequence[str], strategies: Sequence[str]) -> list[str]:
    """The names of all methods, each once.

    Raises:
        typer.BadParameter: if a name is unknown, or Kernel Tuner is not installed.
    """
    ours: tuple[str, ...] = get_args(Sampler)
    for name in samplers:
        if name not in ours:
            raise typer.BadParameter(f"no sampler is named {name!r}; there is {', '.join(ours)}")
    if strategies:
        theirs = kernel_tuner_strategies()
        for name in strategies:
            if name not in theirs:
                names = ", ".join(theirs)
                raise typer.BadParameter(f"Kernel Tuner has no strategy {name!r}, but {names}")
    return [*dict.fromkeys((*samplers, *(KERNEL_TUNER + name for name in strategies)))]


def kernel_tuner_strategies() -> tuple[str, ...]:
    """The names of Kernel Tuner's strategies.

    Raises:
        typer.BadParameter: if Kernel Tuner is not installed.
    """
    try:
        import kernel_tuner_strategies
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"--kernel-tuner needs Kernel Tuner ({error}); pip install --group compare"
        ) from error
    return kernel_tuner_strategies.STRATEGIES


@dataclass(frozen=True)
class Task:
    """One run of a method."""

    path: Path
    blind: bool
    method: str
    seed: int
    evaluations: int
    window: int
    rematch: bool


def done(tasks: Sequence[Task], jobs: int) -> Iterator[Run]:
    """The runs, in order."""
    if jobs == 1:
        yield from map(run, tasks)
        return
    # With a process on every core, the threads of numpy would only compete.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(run, tasks)


def run(task: Task) -> Run:
    """Runs a method on its space."""
    space = load(task.path, task.blind)
    seen = space.drawn(Random(task.seed))
    name = task.method.removeprefix(KERNEL_TUNER)
    if name != task.method:
        import kernel_tuner_strategies

        answer = kernel_tuner_strategies.search(space, name, task.seed, task.evaluations, seen)
        trials, seconds = [Trial(config, seen[config]) for config in answer.configs], answer.seconds
    else:
        trials, seconds = searched(space, task, seen)
    again = Random(f"again {task.seed}") if task.rematch else None
    return Run(
        method=task.method,
        tried=tuple(space.share(trial.config) for trial in trials),
        chosen=tuple(choices(space, trials, again)),
        ask_ms=1e3 * seconds / len(trials),
    )


def search_of(space: Space, sampler: str, seed: int) -> Proposer:
    """This package's search of a space."""
    named: dict[str, Sampler] = {name: name for name in get_args(Sampler)}
    return Proposer(
        space.configs,
        sampler=named[sampler],
        seed=seed,
        guesses=space.guesses,
        describe=space.describe,
    )


def searched(space: Space, task: Task, seen: dict[Config, Outcome]) -> tuple[list[Trial], float]:
    """The trials of this package's search, and the seconds it took to choose."""
    search = search_of(space, task.method, task.seed)
    trials: list[Trial] = []
    in_flight: list[Config] = []
    asked, began = 0, perf_counter()
    while True:
        while len(in_flight) < task.window and asked < task.evaluations:
            config = search.ask()
            if config is None:
                break
            asked += 1
            in_flight.append(config)
        if not in_flight:
            return trials, perf_counter() - began
        config = in_flight.pop(0)
        trials.append(Trial(config, seen[config], space.resources.get(config)))
        search.tell(trials[-1])


def choices(space: Space, trials: Iterable[Trial], again: Random | None) -> Iterator[float]:
    """The share of the optimum of the choice after each trial.

    `again` draws the noise of the leaders' second times; without it the first times decide.
    """
    leaderboard = Leaderboard()
    for trial in trials:
        leaderboard.add(trial)
        if leaderboard.best is None:
            yield 0.0
        elif again is None:
            yield space.share(leaderboard.best.config)
        else:
            leaders = (
                RetimedLeader.of(space, trial.config, again) for trial in leaderboard.leaders
            )
            yield space.share(winner(leaders).config)


@dataclass(frozen=True)
class RetimedLeader:
    """A leader with its second time."""

    config: Config
    measurement: Measurement
    resources: Resources

    @classmethod
    def of(cls, space: Space, config: Config, random: Random) -> RetimedLeader:
        """The configuration with its second time."""
        outcome = space.again(config, random, ROUNDS)
        assert isinstance(outcome, Measurement)
        return cls(config, outcome, space.resources.get(config, UNKNOWN))


def header(path: Path, space: Space, commit: str) -> dict[str, Any]:
    """The space and the provenance of the results."""
    recorded = space.recording
    return {
        "space": path.name,
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "problem": recorded and str(recorded.problem),
        "device": recorded and recorded.device.name,
        "driver": recorded and recorded.origin.driver,
        "toolkit": recorded and recorded.origin.compiler,
        "cublas": "not used",
        "configs": len(space.outcomes),
        "failures": space.failures,
        "optimum_us": space.optimum_us,
        "versions": versions("tile-autotune", "optuna", "numpy", "kernel_tuner"),
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of the packages that are installed."""
    installed: dict[str, str] = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


AFTER = (20, 50, 100, 200)
REACHED = (0.95, 0.98)
# A choice is right if it takes at most this times as long as the best configuration tried.
RIGHT = 1.005


@dataclass(frozen=True)
class Run:
    """The results of a run, as shares of the optimum.

    Attributes:
        method: the searching method.
        tried: share of each evaluated configuration; 0 for a failure.
        chosen: share of the choice after each evaluation.
        ask_ms: mean milliseconds to propose a configuration and to take in its outcome.
    """

    method: str
    tried: tuple[float, ...]
    chosen: tuple[float, ...]
    ask_ms: float

    def after(self, evaluations: int) -> float:
        """The choice after that many evaluations; a search that had ended keeps its last."""
        return self.chosen[min(evaluations, len(self.chosen)) - 1]

    def until(self, share: float) -> float:
        """Evaluations until one reached the share; infinite if none did."""
        return next(
            (count for count, reached in enumerate(self.tried, 1) if reached >= share), math.inf
        )

    @property
    def right(self) -> bool:
        """Whether the last choice is as good as any tried, so that noise did not pick it."""
        return self.chosen[-1] * RIGHT >= max(self.tried)


def row(method: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The statistics of a method's runs; None where a share was not reached."""
    until = {share: sorted(run.until(share) for run in runs) for share in REACHED}
    longest = max(len(run.chosen) for run in runs)
    curve = [statistics.fmean(run.after(count) for run in runs) for count in range(1, longest + 1)]
    return {
        "method": method,
        "runs": len(runs),
        "after": {str(count): curve[count - 1] for count in AFTER if count <= longest},
        "until": {
            f"{share:.0%}": {
                "median": quantile(counts, 0.5),
                "p90": quantile(counts, 0.9),
                "runs": sum(count < math.inf for count in counts),
            }
            for share, counts in until.items()
        },
        "right": statistics.fmean(run.right for run in runs),
        "ask_ms": statistics.fmean(run.ask_ms for run in runs),
        "curve": [round(share, 5) for share in curve],
    }


def quantile(counts: Sequence[float], share: float) -> int | None:
    """The smallest sorted count that `share` of them do not exceed; None if it is infinite."""
    count = counts[math.ceil(share * len(counts)) - 1]
    return None if count == math.inf else int(count)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows as a table of 120 columns: mean shares of the optimum, counts of evaluations."""
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("method", no_wrap=True)
    shares = [f"{share:.0%}" for share in REACHED]
    for header in (
        *(f"after\n{count}" for count in AFTER),
        *(f"until\n{share}" for share in shares),
        f"p90 to\n{shares[0]}",
        *(f"runs at\n{share}" for share in shares),
        "chose\nright",
        "ms an\nask",
    ):
        shown.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        reached = [row["until"][share] for share in shares]
        beyond = f">{len(row['curve'])}"
        shown.add_row(
            row["method"],
            *(cell(row["after"].get(str(count)), "{:.1%}") for count in AFTER),
            *(cell(counts["median"], "{}") or beyond for counts in reached),
            cell(reached[0]["p90"], "{}") or beyond,
            *(f"{counts['runs']}/{row['runs']}" for counts in reached),
            f"{row['right']:.0%}",
            f"{row['ask_ms']:.2f}",
        )
    return shown


if __name__ == "__main__":
    typer.run(main)
