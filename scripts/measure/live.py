"""How soon `autotune tune` finds a good kernel, counted from the start of the command.

    python scripts/measure/live.py results 4096x4096x4096 4096x4096x4096:bf16 --budget 12 --warm 5

tunes each shape on the GPU of this machine twice, each time in a new process: with an empty cache,
and with the programs that the first run compiled. A kernel is good if it takes at most 2 % longer
than the shape's fastest known time, of all timed here and of its recording under `--recordings`.
Writes `live.json`, whole after each shape.

Single times are compared with the fastest of many, which noise favours.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from autotune import cores
from autotune.errors import NotFoundError
from autotune.files import write_whole
from autotune.measure import recording
from autotune.measure.devices import numbered
from autotune.measure.measurement import Measurement
from autotune.problem import Problem

GOOD = 1.02
SHOWN = Console(width=120, soft_wrap=True)

# One run: prints the events of tuning as JSON lines, with the time of each.
PROGRAM = """
import json, sys, time
from autotune import cli
from autotune.api import tuning
from autotune.tuning.trials import Observer
from autotune.tuning.options import Search
from autotune.problem import Problem

def say(**event):
    print(json.dumps({"at_s": time.time() - float(sys.argv[1]), **event}), flush=True)

class Reporter(Observer):
    def started(self, feasible, rejected, progress):
        say(kind="started", feasible=feasible)

    def baseline(self, measurement):
        say(kind="baseline", time_us=measurement and measurement.time_us)

    def trial(self, trial, progress):
        time_us = trial.time_us if trial.time_us < float("inf") else None
        say(kind="trial", time_us=time_us, busy=progress.busy, seconds=progress.seconds)

    def enough(self, gain):
        say(kind="enough", outlook=gain)

    def finished(self, record, progress):
        made = record.provenance
        say(kind="finished", time_us=record.best.measurement.time_us, driver=made.driver,
            compiler=made.compiler, device=record.device.name, config=str(record.best.config))

options = Search(seconds=float(sys.argv[3]), seed=int(sys.argv[4]))
devices = sys.argv[5] or None
tuning.search(Problem.parse(sys.argv[2]), options, devices=devices, progress=Reporter())
"""


@dataclass(frozen=True)
class Run:
    """The events of one command, in order, with seconds since it started."""

    told: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.told if event["kind"] == kind]

    @property
    def fastest_us(self) -> float:
        """The time of the fastest trial."""
        return min(float(trial["time_us"]) for trial in self.of("trial") if trial["time_us"])

    @property
    def busy_after_first_second(self) -> float | None:
        """The share of the time during which the GPUs were busy, from the last trial of the first
        second on; None if that was the last of all."""
        trials = self.of("trial")
        early = [trial for trial in trials if trial["seconds"] <= 1.0]
        begun, begun_busy = (early[-1]["seconds"], early[-1]["busy"]) if early else (1.0, 0.0)
        last = trials[-1]
        if last["seconds"] <= begun:
            return None
        busy_s = last["busy"] * last["seconds"] - begun_busy * begun
        return float(busy_s / (last["seconds"] - begun))

    def summary(self, best_us: float) -> dict[str, Any]:
        """Statistics of the run; the seconds until a good kernel are None if none was found."""
        trials, ends = self.of("trial"), self.of("finished")
        good = [trial["at_s"] for trial in trials if (trial["time_us"] or 1e99) <= GOOD * best_us]
        last = trials[-1]
        return {
            "started_s": self.of("started")[0]["at_s"],
            "first_s": trials[0]["at_s"],
            "good_s": good[0] if good else None,
            "trials_until_good": sum(trial["at_s"] <= good[0] for trial in trials)
            if good
            else None,
            "searched_s": last["at_s"],
            "ended_s": ends[0]["at_s"],
            "stopped": bool(self.of("enough")),
            "trials": len(trials),
            "trials_a_second": len(trials) / (last["at_s"] - self.of("started")[0]["at_s"]),
            "busy": last["busy"],
            "busy_after_first_second": self.busy_after_first_second,
            "chosen_us": ends[0]["time_us"],
            "config": ends[0]["config"],
        }


def main(
    out: Annotated[Path, typer.Argument(help="Folder of the result file.")],
    shapes: Annotated[list[str], typer.Argument(help="Problems to tune.")],
    budget: Annotated[float, typer.Option(help="Tuning seconds with an empty cache.")] = 15.0,
    warm: Annotated[float, typer.Option(help="Tuning seconds with compiled programs.")] = 6.0,
    recordings: Annotated[Path, typer.Option(help="Folder of recordings.")] = recording.ROOT
    / "h100",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    devices: Annotated[
        str, typer.Option(help="GPUs to tune on at once, such as 0,1 or all; by default one.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the result file.")] = "live",
    commit: Annotated[str, typer.Option(help="Commit to record in the results.")] = "",
) -> None:
    """Tunes SHAPES and writes `live.json`, or NAME.json, to OUT."""
    rows: list[dict[str, Any]] = []
    for text in shapes:
        problem = Problem.parse(text)
        with tempfile.TemporaryDirectory() as temporary:
            cache = Path(temporary)
            cold = run(problem, budget, seed, cache, devices)
            for folder in ("studies", "records"):
                shutil.rmtree(cache / folder, ignore_errors=True)
            again = run(problem, warm, seed, cache, devices)
        best_us = min(cold.fastest_us, again.fastest_us, recorded_us(problem, recordings))
        rows.append(
            {
                "problem": str(problem),
                "best_known_us": best_us,
                "cold": cold.summary(best_us),
                "warm": again.summary(best_us),
            }
        )
        SHOWN.print(f"{problem}: {shown(rows[-1])}")
        write(out / f"{name}.json", rows, cold.of("finished")[0], devices, commit)
    SHOWN.print(table(medians_of(rows)))


def write(
    path: Path, rows: list[dict[str, Any]], end: dict[str, Any], devices: str, commit: str
) -> None:
    """Writes the rows and their medians; `end` is the last event of a run."""
    content = {
        **{name: end[name] for name in ("device", "driver")},
        "toolkit": end["compiler"],
        "cublas": "not used",
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": cores.available(),
        "gpus": len([*numbered(devices)]) if devices else 1,
        "rows": rows,
        "median": medians_of(rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def medians_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The medians of the runs with an empty cache, and of those with compiled programs."""
    return {kind: medians([row[kind] for row in rows]) for kind in ("cold", "warm")}


def run(problem: Problem, budget: float, seed: int, cache: Path, devices: str = "") -> Run:
    """Tunes in a new process.

    Raises:
        subprocess.CalledProcessError: if that fails.
    """
    environment = {**os.environ, "AUTOTUNE_CACHE_DIR": str(cache)}
    began = time.time()
    values = str(began), str(problem), str(budget), str(seed), devices
    arguments = [sys.executable, "-c", PROGRAM, *values]
    done = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, check=True)
    return Run([json.loads(line) for line in done.stdout.splitlines()])


def recorded_us(problem: Problem, folder: Path) -> float:
    """The fastest time of the problem's recording; infinite if there is none."""
    try:
        recorded = recording.Recording.load(folder / f"{problem.slug}.json.gz")
    except NotFoundError:
        return float("inf")
    return min(row.outcome.time_us for row in recorded.rows if isinstance(row.outcome, Measurement))


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The median of each number; a run that found nothing good counts as infinite."""
    names = ["started_s", "first_s", "good_s", "ended_s", "trials", "trials_a_second"]
    names.append("busy_after_first_second")
    middle = {
        name: statistics.median(float("inf") if run[name] is None else run[name] for run in runs)
        for name in names
    }
    late = sum(run["good_s"] is None for run in runs)
    return {name: value for name, value in middle.items() if value < float("inf")} | {"late": late}


def shown(row: dict[str, Any]) -> str:
    """A row in one line, such as `cold good after 4.1 s, 61 trials; warm ...`."""
    parts = []
    for kind in ("cold", "warm"):
        run = row[kind]
        good = "nothing good" if run["good_s"] is None else f"good after {run['good_s']:.1f} s"
        behind = run["chosen_us"] / row["best_known_us"] - 1
        busy = run["busy_after_first_second"] or run["busy"]
        parts.append(
            f"{kind} {good}, {run['trials']} trials in {run['searched_s']:.1f} s, busy {busy:.0%}, "
            f"chosen {behind:+.1%}"
        )
    return "; ".join(parts)


def table(medians: dict[str, dict[str, float]]) -> Table:
    shown = Table("medians", *medians)
    for name in medians["cold"]:
        shown.add_row(name, *(f"{medians[kind].get(name, float('nan')):.2f}" for kind in medians))
    return shown


if __name__ == "__main__":
    typer.run(main)
