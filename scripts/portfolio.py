"""Chooses the configurations that look-ups fall back on, and that a wheel brings compiled.

    python scripts/portfolio.py autotune/data/portfolio.json

needs no GPU. For each architecture and precision it draws problems log-uniformly and predicts the
times of a survey of their configurations and of all recorded ones, corrected by the records. A
greedy cover then lists configurations, each the one that makes the listed ones' best time on all
problems together the shortest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from autotune.candidates import cost
from autotune.candidates.model_error import ModelError
from autotune.candidates.recorded import Legality, for_compute
from autotune.candidates.survey import survey
from autotune.cores import available
from autotune.device import Device, find
from autotune.families.config import Config
from autotune.lookup import digests
from autotune.lookup.accuracy import accuracy_filter
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.nearest import CAUTION
from autotune.lookup.neighbours import TEACHERS, by_remoteness
from autotune.problem import LAYOUTS as ALL_LAYOUTS
from autotune.problem import Problem
from autotune.problem.sizes import log_uniform
from autotune.records import Records

DEVICES = {"sm_90": "h200", "sm_80": "a100", "sm_89": "l40s"}
"""A card of each architecture."""
KINDS = ("f32", "tf32", "tf32x3", "bf16", "f8", "i8")
"""Precisions; those of the same kernels share a list (`autotune.lookup.portfolio.KIN`)."""
LAYOUTS = ("nn", "nt", "tn")
SIZES = (
    *((4096, 4096, 4096), (1000, 1000, 1000), (8, 1000, 1000), (1000, 8, 1000)),
    *((1001, 1001, 1001), (1001, 1000, 1000), (1000, 1001, 1000), (1000, 1000, 1001)),
    *((7, 1001, 1001), (1001, 7, 1001), (1002, 1002, 1002), (1002, 1002, 1000)),
    *((1000, 1002, 1000), (1004, 1004, 1004), (1000, 1004, 1000)),
    *((1, 4096, 4096), (37, 53, 71), (8000, 24, 333), (64, 64, 65536)),
)
"""Sizes that some member has to run: of whole tiles or not, wide or narrow, with rows that start at
multiples of 16 bytes, of a few elements, or anywhere."""
SMALLEST, LARGEST = (1, 16, 16), (8192, 16384, 16384)
KEPT = 80
"""Configurations of a problem that are considered, the fastest."""
LISTED = 96
"""Configurations of a list."""
app = typer.Typer(pretty_exceptions_enable=False)
Times = dict[str, float]
"""Microseconds over the problem's best by the text of a configuration."""


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="JSON file to write.")],
    problems: Annotated[int, typer.Option(help="Problems for each precision.")] = 36,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes.")] = None,
) -> None:
    """Lists the configurations for each architecture and precision."""
    content: dict[str, dict[str, list[str]]] = {}
    with ProcessPoolExecutor(jobs or available()) as pool:
        for arch, name in DEVICES.items():
            count = problems if arch == "sm_90" else math.ceil(problems / 3)
            content[arch] = {}
            for kind in KINDS:
                asked = drawn(kind, count, seed)
                times = [row for row in pool.map(partial(ratios, name=name), asked) if row]
                if times:
                    content[arch][kind] = [*cover(times)]
                    content[arch][kind] += missing(content[arch][kind], kind, find(name))
                    print(arch, kind, summary(content[arch][kind], times), flush=True)
                out.write_text(json.dumps(content, indent=0) + "\n")


def drawn(compute: str, count: int, seed: int) -> list[Problem]:
    """Random problems of a precision; the seed fixes them."""
    random = Random(f"{seed} {compute}")

    def problem() -> Problem:
        sizes = [*map(round, log_uniform(random, SMALLEST, LARGEST))]
        step = random.choice((1, 8, 64, 64))
        m, n, k = (size // step * step if size >= step else size for size in sizes)
        return Problem(m, n, k, compute, random.choice(LAYOUTS))

    return [problem() for _ in range(count)]


def ratios(problem: Problem, name: str) -> Times:
    """The expected times of the fastest configurations, over the shortest."""
    device = find(name)
    pool = by_remoteness(problem, device, recorded(device))
    near = [row for row in pool if row.problem == problem]
    configs = dict.fromkeys(survey(problem, device)) | dict.fromkeys(legal(pool, problem, device))
    errors = ModelError((), device, samples(pool[:TEACHERS], "hot"))
    accurate = accuracy_filter(problem, device, near).accurate([*configs])
    predictions = errors.predict(accurate, problem)
    times = predictions.cautious(CAUTION / 2).tolist()
    ranked = sorted(zip(times, map(str, accurate), strict=True))[:KEPT]
    return {text: time / ranked[0][0] for time, text in ranked if math.isfinite(time)}


def recorded(device: Device) -> list[RecordDigest]:
    """The digests of what is recorded on the device's architecture."""
    records = Records.shipped_only()
    return [*digests.own(device, records), *digests.related(device, records)]


def legal(pool: Iterable[RecordDigest], problem: Problem, device: Device) -> Iterable[Config]:
    """The recorded configurations that are worth a try on a problem."""
    fits = Legality(problem, device, recorded=False)
    every = {config for row in pool for config, _ in row.entries()}
    return filter(fits, sorted({for_compute(config, problem) for config in every}))


def cover(times: Sequence[Mapping[str, float]]) -> list[str]:
    """A greedy cover of the problems."""
    worst = [max(row.values()) for row in times]
    best, listed = [2 * ratio for ratio in worst], list[str]()
    pool = sorted({text for row in times for text in row})

    def total(text: str) -> float:
        pairs = zip(times, best, strict=True)
        return sum(math.log(min(have, row.get(text, math.inf))) for row, have in pairs)

    while pool and len(listed) < LISTED:
        gained = min(pool, key=total)
        pool.remove(gained)
        listed.append(gained)
        best = [min(have, row.get(gained, have)) for row, have in zip(times, best, strict=True)]
        if max(best) <= 1.0:
            break
    return listed


def missing(listed: Sequence[str], compute: str, device: Device) -> list[str]:
    """The model's choice for each kind of problem that no listed configuration can run."""
    members = [Config.parse(text) for text in listed]
    added: list[Config] = []
    for layout in ALL_LAYOUTS:
        for sizes in SIZES:
            problem = Problem(*sizes, compute, layout)
            if not any(map(Legality(problem, device), [*members, *added])):
                accurate = accuracy_filter(problem, device, ()).accurate(survey(problem, device))
                added += [config for _, config in cost.rank(accurate, problem, device)[:2]]
    return [*dict.fromkeys(map(str, added))]


def summary(listed: Sequence[str], times: Sequence[Mapping[str, float]]) -> str:
    """How near the first 28 and all configurations come to the best, as geometric means."""

    def mean(members: Sequence[str]) -> float:
        logs = [
            math.log(min((row[text] for text in members if text in row), default=2.0))
            for row in times
        ]
        return math.exp(-sum(logs) / len(logs))

    return f"{len(listed)} listed; 28: {mean(listed[:28]):.3f}, all: {mean(listed):.3f}"


if __name__ == "__main__":
    app()
