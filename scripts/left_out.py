"""Measures how good look-ups are for shapes that were never tuned.

    python scripts/left_out.py recorded docs/results/h100/trials --fit
    python scripts/left_out.py live left_out.json --count 24 --each 10

`recorded` needs no GPU. It looks each recorded problem up from the records of the other recordings,
without those of the same sizes, and compares the time of the picked configuration with the fastest
recorded one. `--fit` writes the losses to `autotune/data/expected_loss.json`, from which look-ups
take their expected loss.

`live` draws shapes by a seed, log-uniform in each size, over precisions and layouts, without those
that this machine or the package has records of. Each shape is looked up and then tuned for `--each`
seconds into an empty store; the picked and the tuned configuration are timed interleaved.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated, Any

import typer
from left_out_rows import SHOWN, Row, geomean, line, show, write
from shipped import Places, tune_at
from shipped_files import record_of

from autotune import compiler, settings
from autotune.candidates.model_error import ModelError
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup import nearest, neighbours
from autotune.lookup.answer import Answer
from autotune.lookup.expected_loss import expected_loss
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.problem.sizes import log_uniform
from autotune.records import Record, Records, Store
from autotune.runners.base import Candidate, Measurement, Runner
from autotune.runners.recording import Recording
from autotune.targets import sources, targets
from autotune.targets.targets import Target
from autotune.tuning.evaluate import prepare
from autotune.tuning.loop import Options

LOSSES = Path("autotune/data/expected_loss.json")
FEWEST = 10
"""Problems with fewer recorded configurations are skipped: they cannot rank a choice."""
BINS = 3
"""Bins by standard deviation, with equally many look-ups each."""

COMPUTES = ("f32", "tf32", "f16", "bf16")
LAYOUTS = ("nn", "nt", "tn")
SMALLEST, LARGEST = (1, 16, 16), (8192, 16384, 16384)
MOST_FLOPS = 2e12
app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def recorded(
    folder: Annotated[Path, typer.Argument(help="Folder of recordings.")],
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit the expected losses and write them.")
    ] = False,
    losses: Annotated[Path, typer.Option(help="JSON file that --fit writes.")] = LOSSES,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Leave each recorded problem out in turn and look it up."""
    recordings = [Recording.load(path) for path in sorted(folder.glob("*.json.gz"))]
    records = {
        recording.problem: record
        for recording in recordings
        if (record := record_of(recording)) is not None
    }
    rich = [recording for recording in recordings if len(times(recording)) >= FEWEST]
    rows = [row_of(recording, records) for recording in rich]
    models = [by_model(recording) for recording in rich]
    show(rows)
    SHOWN.print(f"the cost model alone: geomean {geomean(models):.3f}, worst {min(models):.3f}")
    if out is not None:
        write(out, rich[0].device, rows)
    if fit:
        source = f"scripts/left_out.py, {len(rows)} problems recorded on {rich[0].device.name}"
        content = {"source": source, "losses": fitted(rows, models)}
        losses.write_text(json.dumps(content, indent=1) + "\n")


@app.command()
def live(
    out: Annotated[Path, typer.Argument(help="JSON file for the rows.")],
    count: Annotated[int, typer.Option(help="Number of shapes.")] = 24,
    each: Annotated[float, typer.Option(help="Tuning seconds for each shape.")] = 10.0,
    seconds: Annotated[float, typer.Option(help="Total seconds for all shapes.")] = 3600.0,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = sources.DEFAULT,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Look untuned shapes up, tune them and compare."""
    began, where = monotonic(), targets.resolve(device)
    store = Store(settings.cache_dir())
    recorded_problems = {record.problem for record in Records(store).records(where)}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        places = Places(device, stack, seed)
        scratch = Store(Path(name))
        new = (problem for problem in drawn(2 * count, seed) if problem not in recorded_problems)
        for problem in islice(new, count):
            if monotonic() - began + each > seconds:
                break
            try:
                rows.append(against_tuned(problem, where, store, scratch, places, each, seed))
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                places.end()
                continue
            SHOWN.print(line(rows[-1]), markup=False, highlight=False)
            write(out, where, rows)
    show(rows)


def row_of(recording: Recording, records: dict[Problem, Record]) -> Row:
    """The row of a recorded problem, looked up from the records of other sizes."""
    problem, device, measured = recording.problem, recording.device, times(recording)
    rest = [
        record
        for neighbour, record in records.items()
        if (neighbour.m, neighbour.n, neighbour.k) != (problem.m, problem.n, problem.k)
    ]
    began = monotonic()
    resources = {row.config: row.resources for row in recording.rows}
    configs = [*measured]
    judge = neighbours.learn_errors(problem, device, rest).predict
    belief = judge(configs, problem, [resources[config] for config in configs])
    place = int(belief.cautious(nearest.CAUTION).argmin())
    picked, doubt = configs[place], float(belief.deviations[place])
    best = min(measured, key=lambda config: measured[config])
    return Row(
        problem=str(problem),
        how="nearest",
        ratio=measured[best] / measured[picked],
        expected=expected_loss("near", doubt),
        doubt=doubt,
        picked=str(picked),
        best=str(best),
        picked_us=measured[picked],
        best_us=measured[best],
        lookup_s=monotonic() - began,
    )


def by_model(recording: Recording) -> float:
    """The ratio of the cost model's choice among the recorded configurations."""
    measured = times(recording)
    resources = {row.config: row.resources for row in recording.rows}
    configs = [*measured]
    belief = ModelError((), recording.device).predict(
        configs, recording.problem, [resources[config] for config in configs]
    )
    return min(measured.values()) / measured[configs[int(belief.times.argmin())]]


def times(recording: Recording) -> dict[Config, float]:
    """The time in microseconds of each configuration that has one."""
    return {
        row.config: row.outcome.time_us
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
    }


def fitted(rows: Sequence[Row], models: Sequence[float]) -> dict[str, Any]:
    """The mean loss by standard deviation, made non-decreasing, and that of the cost model."""
    ordered = sorted((row.doubt or 0.0, row.ratio) for row in rows)
    size = math.ceil(len(ordered) / BINS)
    bins = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    losses = [round(1 / geomean([ratio for _, ratio in pairs]) - 1, 3) for pairs in bins]
    rising = [max(losses[: place + 1]) for place in range(len(losses))]
    return {
        "near": {"doubts": [round(pairs[0][0], 3) for pairs in bins[1:]], "losses": rising},
        "model": {"doubts": [], "losses": [round(1 / geomean(models) - 1, 3)]},
    }


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems of all precisions and layouts; the seed fixes them."""
    random = Random(seed)
    problems: list[Problem] = []
    while len(problems) < count:
        sizes = [*map(round, log_uniform(random, SMALLEST, LARGEST))]
        step = random.choice((1, 8, 64))
        m, n, k = (max(1, size // step) * step if size >= step else size for size in sizes)
        compute = COMPUTES[len(problems) % len(COMPUTES)]
        problem = Problem(m, n, k, compute, random.choice(LAYOUTS))
        if problem.flops <= MOST_FLOPS:
            problems.append(problem)
    return problems


def against_tuned(
    problem: Problem,
    device: Device,
    store: Store,
    scratch: Store,
    places: Places,
    each: float,
    seed: int,
) -> Row:
    """Looks a problem up, tunes it and times both configurations interleaved.

    Raises:
        AutotuneError: if there is no answer, or the tuning fails.
    """
    began = monotonic()
    answer = lookup(problem, device, store)
    took = monotonic() - began
    if answer is None:
        raise NotFoundError(f"nothing can run {problem}")
    record = tune_at(problem, places, scratch, Options(budget_s=each, seed=seed))
    picked_us, best_us = timed(answer, record, places.current)
    return Row(
        problem=str(problem),
        how=answer.how,
        ratio=0.0 if picked_us is None else best_us / picked_us,
        expected=answer.expected_loss,
        doubt=None,
        picked=str(answer.config),
        best=str(record.best.config),
        picked_us=picked_us,
        best_us=best_us,
        lookup_s=took,
    )


def timed(answer: Answer, record: Record, target: Target) -> tuple[float | None, float]:
    """Interleaved times of the answer (None if it fails) and of the record's best, in us."""
    best = record.best
    if answer.config == best.config:
        return best.measurement.time_us, best.measurement.time_us
    build = partial(compiler.compile, cache=settings.cache_dir())
    runner: Runner = target.runner
    ready = [
        prepare(registry.plan(config, answer.problem), runner, build)
        for config in (answer.config, best.config)
    ]
    candidates = [candidate for candidate in ready if isinstance(candidate, Candidate)]
    outcomes = {
        candidate.config: outcome
        for candidate, outcome in zip(candidates, runner.rematch(candidates), strict=True)
    }
    picked, tuned = outcomes.get(answer.config), outcomes.get(best.config)
    best_us = tuned.time_us if isinstance(tuned, Measurement) else best.measurement.time_us
    return picked.time_us if isinstance(picked, Measurement) else None, best_us


if __name__ == "__main__":
    app()
