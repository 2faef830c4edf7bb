"""Measures look-ups and quick races of shapes that nobody tuned, beside tuning and cuBLAS.

    python scripts/untuned.py docs/results/h200/left-out.json --count 120

draws shapes by a seed, log-uniform in each size, over precisions and layouts, without those that
this machine or the package has records of. Each is looked up, raced and tuned, none of which sees
what the others found; the three kernels and cuBLAS are then timed interleaved, hot. The file is
written after each shape. A second run continues: shapes that the file has for these kernel
sources are skipped. Shapes in the file of `--tuned` are not tuned again: an earlier run's tuned
configurations are timed beside new look-ups and races.

All shapes share compiled programs and the process that measures, so that the seconds of a race are
those of a program that tunes one shape after the other. Each race is run twice. The second finds
its programs compiled, unless other times make it choose another second round.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated

import typer
from drawn_sizes import drawn_sizes
from rich.console import Console
from shipped import tune_at
from suite import compared
from untuned_rows import (
    AGAIN,
    LOOKUP,
    RACE,
    TUNED,
    VENDOR,
    Row,
    kept,
    line,
    read,
    seconds_again,
    table,
    write,
)

from autotune import settings
from autotune.api.tuning import raced
from autotune.cuda import compiler
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
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


if __name__ == "__main__":
    typer.run(main)
