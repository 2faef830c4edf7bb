"""Measures look-ups and quick races of shapes that nobody tuned, beside tuning and cuBLAS.

    python scripts/measure/untuned.py drawn docs/results/h200/left-out.json --count 120
    python scripts/measure/untuned.py versions OUT.json ../earlier-checkout 96x8192x2048:f32

`drawn` draws shapes by a seed, log-uniform in each size, over precisions and layouts. It leaves out
those that this machine or the package has records of. Each is looked up, raced and tuned, none of
which sees what the others found; the three kernels and cuBLAS are then timed interleaved, hot. The
file is written after each shape. A second run continues: shapes that the file has for these kernel
sources are skipped. Shapes in the file of `--tuned` are not tuned again: an earlier run's tuned
configurations are timed beside new look-ups and races.

All shapes share compiled programs and the process that measures, so that the seconds of a race are
those of a program that tunes one shape after the other. Each race is run twice. The second finds
its programs compiled, unless other times make it choose another second round.

`versions` times the look-ups of two versions of the package in one run. Both look each shape up
with the shipped records alone, as `matmul` does. Their kernels and cuBLAS are then timed
interleaved, hot; this version compiles and verifies them all. `--tuned FILE` adds the shapes of a
file of `drawn`, with their tuned kernels.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import autotune
from autotune import settings
from autotune.api.tuning import raced
from autotune.cuda import compiler
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import write_whole
from autotune.lookup.answer import vendor_wins
from autotune.lookup.lookup import lookup
from autotune.measure import devices, targets
from autotune.measure.bench import BASELINE
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT
from autotune.measure.oracle import checked_accuracy
from autotune.measure.runner import Candidate, Runner
from autotune.measure.targets import Target, TargetOpener
from autotune.problem import Problem
from autotune.records import Record, Records, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import prepare

sys.path.append(str(Path(__file__).resolve().parents[1] / "fit"))

from programs import drawn_sizes
from results import geomean, of_this_machine, rows_in
from shipped import tune_at
from suite import compared

SHOWN = Console(width=110, soft_wrap=True)


PRECISIONS = ("f32", "bf16", "tf32", "f16", "tf32x3", "f8:scale=row", "i8")
"""Precisions, and scales of 8 bits; they take turns."""


LAYOUTS = ("nn", "nt", "tn")


STEPS = (1, 8, 64)
"""Sizes of a shape are multiples of one of these."""


MOST_FLOPS = 2e12


def main(
    out: Annotated[Path, typer.Argument(help="JSON file for the rows.")],
    count: Annotated[int, typer.Option(help="Number of shapes.")] = 24,
    each: Annotated[float, typer.Option(help="Tuning seconds for each shape.")] = 10.0,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 3600.0,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
    tuned: Annotated[
        Path | None, typer.Option(help="File of a run whose shapes are not tuned again.")
    ] = None,
) -> None:
    """Prints a line for each shape, and the geometric means."""
    began, where = monotonic(), targets.resolve(device)
    known = Store(settings.cache_dir())
    recorded = {record.problem for record in Records(known).records(where)}
    problems = [problem for problem in drawn(count, seed) if problem not in recorded]
    rows = {row.problem: row for row in kept(out)}
    before = {row.problem: row for row in read(tuned)} if tuned else {}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        TargetOpener(device, seed=seed) as places,
    ):
        os.environ["AUTOTUNE_CACHE_DIR"] = str(Path(name) / "programs")
        folders = ("races", "again", "searches")
        races, again, searches = (Store(Path(name) / folder) for folder in folders)
        options = Search(seconds=each, seed=seed)
        contest = Contest(known, races, again, searches, places, options)
        for problem in problems:
            if monotonic() - began > seconds:
                break
            if str(problem) in rows:
                continue
            try:
                row = contest.row(problem, where, before.get(str(problem)))
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                continue
            rows[row.problem] = row
            SHOWN.print(line(row), markup=False, highlight=False)
            write(out, where, [*rows.values()], commit)
    SHOWN.print(table([*rows.values()]))
    if second := seconds_again([*rows.values()]):
        SHOWN.print(f"second races: {second['median_s']:.2f} s, the median")


@dataclass(frozen=True)
class Contest:
    """Where the kernels of a shape come from.

    Attributes:
        known: the records that look-ups and races see.
        races, again, searches: where the records of races, second races and searches go.
        places: where kernels are measured.
        options: those of searches.
    """

    known: Store
    races: Store
    again: Store
    searches: Store
    places: TargetOpener
    options: Search

    def row(self, problem: Problem, device: Device, before: Row | None = None) -> Row:
        """Looks a problem up, races it twice, tunes it, and times the three kernels interleaved.

        Args:
            problem: what to multiply.
            device: the GPU's properties.
            before: an earlier row of the problem, which is not tuned again.

        Raises:
            AutotuneError: if there is no answer, or nothing could be measured.
        """
        began = monotonic()
        answer = lookup(problem, device, self.known)
        if answer is None:
            raise NotFoundError(f"nothing can run {problem}")
        seconds = {LOOKUP: monotonic() - began}
        target, began = self.places.target(problem), monotonic()
        race = self.race(problem, target, self.races)
        seconds[RACE], began = monotonic() - began, monotonic()
        self.race(problem, target, self.again)
        seconds[AGAIN], began = monotonic() - began, monotonic()
        if before:
            tuned, seconds[TUNED] = Config.parse(before.configs[TUNED]), before.seconds[TUNED]
        else:
            tuned = tune_at(problem, self.places, self.searches, self.options).best.config
            seconds[TUNED] = monotonic() - began
        configs = {LOOKUP: answer.config, RACE: race.best.config, TUNED: tuned}
        outcomes = timed(configs, problem, target.runner)
        return Row(
            problem=str(problem),
            how=answer.how,
            expected=answer.expected_loss,
            configs={kind: str(config) for kind, config in configs.items()},
            times_us={
                kind: item.time_us
                for kind, item in outcomes.items()
                if isinstance(item, Measurement)
            },
            failures={
                kind: f"{item.stage}: {item.reason}"
                for kind, item in outcomes.items()
                if isinstance(item, Failure)
            },
            left_to_vendor=[LOOKUP] * answer.vendor + [RACE] * vendor_wins(race, problem, HOT),
            seconds=seconds,
        )

    def race(self, problem: Problem, target: Target, store: Store) -> Record:
        """The record of a quick race that knows what look-ups know; `store` keeps it."""
        return tune(
            raced(problem, target.runner, self.known, HOT),
            *(target.runner, store, Search(effort="quick")),
            compile=partial(compiler.compile, cache=settings.cache_dir()),
            origin=target.origin,
        )


def timed(
    configs: Mapping[str, Config], problem: Problem, runner: Runner
) -> dict[str, Measurement | Failure]:
    """Interleaved outcomes by kind, and that of cuBLAS where it multiplies."""
    build = partial(compiler.compile, cache=settings.cache_dir())
    prepared = {
        config: prepare(registry.plan(config, problem), runner, build)
        for config in dict.fromkeys(configs.values())
    }
    outcomes: dict[Config, Measurement | Failure] = {}
    candidates: list[Candidate] = []
    for config, item in prepared.items():
        outcome = item if isinstance(item, Failure) else runner.measure(item, None)
        if isinstance(item, Candidate) and isinstance(outcome, Measurement):
            candidates.append(item)
        else:
            outcomes[config] = outcome
    named = compared(candidates, runner)
    vendor = named.pop(BASELINE, None)
    error = vendor.relative_error if isinstance(vendor, Measurement) else None
    configs_timed = (item.config for item in candidates)
    outcomes |= {
        config: checked_accuracy(problem, named[str(config)], error) for config in configs_timed
    }
    every = {kind: outcomes[config] for kind, config in configs.items()}
    return every | ({VENDOR: vendor} if vendor else {})


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems of all precisions and layouts; the seed fixes them."""
    random = Random(seed)
    problems: list[Problem] = []
    while len(problems) < count:
        m, n, k = drawn_sizes(random, STEPS)
        precision = PRECISIONS[len(problems) % len(PRECISIONS)]
        problem = Problem.parse(f"{m}x{n}x{k}:{precision}", layout=random.choice(LAYOUTS))
        if problem.flops <= MOST_FLOPS:
            problems.append(problem)
    return problems


LOOKUP, RACE, TUNED, VENDOR = "lookup", "quick", "tuned", "vendor"
UNTUNED = (LOOKUP, RACE)
AGAIN = "quick_again"
"""A second race, most of whose programs the first one compiled: its seconds alone are kept."""
ENOUGH = 0.98
"""The speed from which a kernel counts as no slower than cuBLAS."""


@dataclass(frozen=True)
class Row:
    """A shape, its three kernels, and what they cost. Times are None for a kernel that failed.

    Attributes:
        problem: its text.
        how: where the look-up's answer comes from, as `lookup.Answer`.
        expected: the loss that the look-up expects, 0.05 for 5 %.
        configs: the configuration of each kind.
        times_us: the time of each kind and of cuBLAS (`vendor`).
        failures: why a kernel is wrong or too inaccurate.
        left_to_vendor: the kinds in whose place `matmul` calls cuBLAS, as it expects that to win.
        seconds: of the look-up, of the race, of a second race and of the search. Rows of earlier
            versions of this script have no second race.
    """

    problem: str
    how: str
    expected: float | None
    configs: Mapping[str, str]
    times_us: Mapping[str, float]
    failures: Mapping[str, str]
    left_to_vendor: Sequence[str]
    seconds: Mapping[str, float]

    def of_tuned(self, kind: str) -> float:
        """The kernel's speed over that of the tuned one; 0 if it failed."""
        return self.times_us[TUNED] / self.times_us.get(kind, math.inf)

    def over_vendor(self, kind: str) -> float | None:
        """The speed of `matmul` over cuBLAS; None without a time of cuBLAS."""
        if VENDOR not in self.times_us:
            return None
        if kind in self.left_to_vendor:
            return 1.0
        return self.times_us[VENDOR] / self.times_us.get(kind, math.inf)


def kept(path: Path) -> list[Row]:
    """The rows that the file has for these kernel sources."""
    return [Row(**fields) for fields in rows_in(path, {"source": targets.here().source})]


def read(path: Path) -> list[Row]:
    """The rows of a file, made with any kernel sources."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Row(**fields) for fields in content["rows"]]


def line(row: Row) -> str:
    """A row in one line, such as `300x4096x4096:bf16  nearest 0.974, quick 0.991, over cuBLAS 1.03;
    0.04, 0.61, 0.41, 5.20 s`."""
    lookup, race = (f"{row.of_tuned(kind):.3f}" for kind in UNTUNED)
    over = row.over_vendor(RACE)
    vendor = "" if over is None else f", over cuBLAS {over:.2f}"
    times = ", ".join(f"{seconds:.2f}" for seconds in row.seconds.values())
    wrong = "".join(f"; {kind} {failure}" for kind, failure in row.failures.items())
    return f"{row.problem:32} {row.how} {lookup}, quick {race}{vendor}; {times} s{wrong}"


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Geometric means, worst cases and median seconds of look-ups and races."""
    return {kind: figures(rows, kind) for kind in UNTUNED}


def seconds_again(rows: Sequence[Row]) -> dict[str, float]:
    """The median seconds of second races, if there are any, and their number."""
    seconds = [row.seconds[AGAIN] for row in rows if AGAIN in row.seconds]
    return {"median_s": statistics.median(seconds), "shapes": len(seconds)} if seconds else {}


def figures(rows: Sequence[Row], kind: str) -> dict[str, Any]:
    """The figures of one kind; a kernel that failed has a speed of 0.01 in geometric means."""
    beside_tuned = [row.of_tuned(kind) for row in rows]
    beside_vendor = [speed for row in rows if (speed := row.over_vendor(kind)) is not None]
    return {
        "geomean": geomean(beside_tuned),
        "worst": min(beside_tuned),
        "below_0.9": sum(speed < 0.9 for speed in beside_tuned),
        "over_vendor": geomean(beside_vendor) if beside_vendor else None,
        "slower_than_vendor": sum(speed < ENOUGH for speed in beside_vendor),
        "failures": sum(kind in row.failures for row in rows),
        "median_s": statistics.median(row.seconds[kind] for row in rows),
    }


def table(rows: Sequence[Row]) -> Table:
    """The figures of each precision, and of all."""
    names = ("geomean of tuned", "worst", "failed", "over cuBLAS", f"under {ENOUGH}", "median s")
    shown = Table("precision", "shapes", "kernel", *names)
    computes = [Problem.parse(row.problem).compute for row in rows]
    for name in (*dict.fromkeys(computes), "all"):
        group = [
            row for row, compute in zip(rows, computes, strict=True) if name in (compute, "all")
        ]
        for kind, values in summary(group).items():
            over = values["over_vendor"]
            shown.add_row(
                *(name, str(len(group)), kind),
                *(f"{values['geomean']:.3f}", f"{values['worst']:.3f}", str(values["failures"])),
                *(f"{over:.2f}" if over else "", str(values["slower_than_vendor"])),
                f"{values['median_s']:.2f}",
            )
    return shown


def write(path: Path, device: Device, rows: Sequence[Row], commit: str) -> None:
    """Writes the rows with their summary."""
    origin = targets.here()
    content = {
        **of_this_machine(device.name, commit),
        "source": origin.source,
        **summary(rows),
        AGAIN: seconds_again(rows),
        "rows": [asdict(row) for row in rows],
    }
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


BEFORE, AFTER = "before", "after"
_CHOOSE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from autotune import runtime
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Store

device = runtime.current().runtime.gpu(0).device
store = Store(Path(os.environ["AUTOTUNE_CACHE_DIR"]))
answers = {text: lookup(Problem.parse(text), device, store) for text in json.load(sys.stdin)}
print(json.dumps({t: [str(a.config), bool(a.vendor), a.how] for t, a in answers.items() if a}))
"""


def versions(
    out: Annotated[Path, typer.Argument(help="JSON file for the rows.")],
    earlier: Annotated[Path, typer.Argument(help="Checkout of the earlier version.")],
    shapes: Annotated[list[str] | None, typer.Argument(help="Shapes that nobody tuned.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="File of `untuned.py`.")] = None,
    count: Annotated[int, typer.Option(help="Number of shapes of that file.")] = 60,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 3600.0,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints a line for each shape, and the geometric means."""
    began, device = monotonic(), targets.resolve(devices.DEFAULT)
    taken: dict[str, dict[str, Config]] = {str(Problem.parse(text)): {} for text in shapes or ()}
    for row in read(tuned)[:count] if tuned else ():
        taken[row.problem] = {TUNED: Config.parse(row.configs[TUNED])}
    here = Path(autotune.__file__).parents[1]
    choices = {kind: looked_up(tree, [*taken]) for kind, tree in ((BEFORE, earlier), (AFTER, here))}
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as cache, TargetOpener(devices.DEFAULT) as places:
        os.environ["AUTOTUNE_CACHE_DIR"] = cache
        for text, known in taken.items():
            if monotonic() - began > seconds:
                break
            configs = {kind: Config.parse(choices[kind][text][0]) for kind in (BEFORE, AFTER)}
            problem = Problem.parse(text)
            try:
                runner = places.target(problem).runner
                outcomes = timed(configs | known, problem, runner)
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                continue
            rows.append(
                {
                    "problem": text,
                    "configs": {kind: str(config) for kind, config in configs.items()},
                    "left_to_vendor": [kind for kind in configs if choices[kind][text][1]],
                    "times_us": {
                        kind: item.time_us
                        for kind, item in outcomes.items()
                        if isinstance(item, Measurement)
                    },
                }
            )
            SHOWN.print(text, rows[-1]["times_us"], rows[-1]["left_to_vendor"], markup=False)
            content = {
                **of_this_machine(device.name, commit),
                "clusters": targets.resolve(enter=True).clusters,
                **{kind: version_figures(rows, kind) for kind in (BEFORE, AFTER)},
                "rows": rows,
            }
            write_whole(out, (json.dumps(content, indent=1) + "\n").encode())
    for kind in (BEFORE, AFTER):
        SHOWN.print(kind, version_figures(rows, kind))


def looked_up(tree: Path, texts: list[str]) -> dict[str, tuple[str, bool, str]]:
    """The configuration that a version looks up for each problem, whether it leaves the problem to
    cuBLAS, and where its answer comes from."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        answer = subprocess.run(
            [sys.executable, "-c", _CHOOSE],
            input=json.dumps(texts),
            cwd=tree,  # whose package comes first
            env=environment | {"AUTOTUNE_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    choices: dict[str, tuple[str, bool, str]] = json.loads(answer.stdout)
    return choices


def version_figures(rows: list[dict[str, object]], kind: str) -> dict[str, object]:
    """Geometric means and the worst of a version's look-ups, beside the fastest of the kernels
    and beside cuBLAS, which multiplies where they leave the product to it."""
    beside_best, beside_vendor, failed = [], [], 0
    for row in rows:
        times: dict[str, float] = dict(row["times_us"])  # type: ignore[call-overload]
        vendor = times.pop(VENDOR, None)
        if kind not in times:
            failed += 1
            continue
        beside_best.append(min(times.values()) / times[kind])
        if vendor:
            left = kind in row["left_to_vendor"]  # type: ignore[operator]
            beside_vendor.append(1.0 if left else vendor / times[kind])
    return {
        "shapes": len(rows),
        "failed": failed,
        "of_best": geomean(beside_best),
        "worst": min(beside_best),
        "below_0.9": sum(speed < 0.9 for speed in beside_best),
        "over_vendor": geomean(beside_vendor) if beside_vendor else None,
        "slower_than_vendor": sum(speed < 0.98 for speed in beside_vendor),
    }


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("drawn")(main)
    app.command("versions")(versions)
    app()
