"""Chooses the configurations that look-ups fall back on, and that a wheel brings compiled.

    python scripts/fit/portfolio.py autotune/data/portfolio.json

needs no GPU. For each architecture and precision it draws problems log-uniformly and predicts the
times of a survey of their configurations and of all recorded ones, corrected by the records. The
fastest of each problem are adapted to all others, as look-ups adapt them. A greedy cover then lists
configurations, each the one that makes the listed ones' best time on all problems together the
shortest. 400 problems for each precision take 16 minutes on two cores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from programs import drawn_sizes

from autotune.cores import available
from autotune.device import Device, find
from autotune.families.config import Config
from autotune.lookup import neighbours
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.nearest import CAUTION
from autotune.lookup.neighbours import TEACHERS, accuracy_filter
from autotune.measure.objective import HOT
from autotune.model import cost
from autotune.model.legality import Legality, for_compute
from autotune.model.model_error import ModelError
from autotune.model.space import Adaptation, rejection, sample
from autotune.problem import LAYOUTS as ALL_LAYOUTS
from autotune.problem import PRECISIONS, Problem
from autotune.records import Records

DEVICES = {"sm_90": "h200", "sm_80": "a100", "sm_89": "l40s"}
"""A card of each architecture."""


KINDS = ("f32", "tf32", "tf32x3", "bf16", "f8", "i8")
"""Precisions; twins share a list (`Precision.twin`)."""


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


STEPS = (1, 8, 64, 64)
"""Sizes of a problem are multiples of one of these."""


KEPT = 4
"""Configurations of a problem that are considered for all, the fastest."""


LISTED = 160
"""Configurations of a list."""


LARGEST_RATIO = 4.0
"""The ratio of a problem that no listed configuration can run."""


app = typer.Typer(pretty_exceptions_enable=False)


Floats = NDArray[np.float64]


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="JSON file to write.")],
    problems: Annotated[int, typer.Option(help="Problems for each precision.")] = 400,
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
                fastest = [*pool.map(partial(best_of, name=name), asked, chunksize=4)]
                texts = [*dict.fromkeys(text for best, _ in fastest for text in best)]
                if not texts:
                    continue
                adapted = partial(ratios, texts=texts, name=name)
                least = [time_us for _, time_us in fastest]
                rows = np.array([*pool.map(adapted, asked, least, chunksize=4)])
                places = cover(rows)
                members = [texts[place] for place in places]
                content[arch][kind] = members + missing(members, kind, find(name))
                print(arch, kind, summary(rows, places), flush=True)
                out.write_text(json.dumps(content, indent=0) + "\n")


def drawn(compute: str, count: int, seed: int) -> list[Problem]:
    """Random problems of a precision; the seed fixes them."""
    random = Random(f"{seed} {compute}")

    def problem() -> Problem:
        m, n, k = drawn_sizes(random, STEPS)
        scale = random.choice(PRECISIONS[compute].scales)
        return Problem(m, n, k, compute, random.choice(LAYOUTS), scale=scale)

    return [problem() for _ in range(count)]


def best_of(problem: Problem, name: str) -> tuple[list[str], float]:
    """The texts of the configurations expected to be the fastest, and the time of the first."""
    device = find(name)
    pool = recorded(problem, device)
    configs = dict.fromkeys(sample(problem, device)) | dict.fromkeys(legal(pool, problem, device))
    times, accurate = expected([*configs], problem, device, pool)
    ranked = sorted(zip(times, map(str, accurate), strict=True))[:KEPT]
    runs = [(time_us, text) for time_us, text in ranked if math.isfinite(time_us)]
    return [text for _, text in runs], runs[0][0] if runs else math.inf


def ratios(problem: Problem, least: float, texts: Sequence[str], name: str) -> Floats:
    """The expected time of each configuration, adapted to the problem, over the least one."""
    device = find(name)
    members = [for_compute(config, problem) for config in map(Config.parse, texts)]
    fits = [*map(Adaptation(problem, device), members)]
    pool = recorded(problem, device)
    times, accurate = expected([*dict.fromkeys(filter(None, fits))], problem, device, pool)
    by_config = dict(zip(accurate, times, strict=True))
    found = [math.inf if config is None else by_config.get(config, math.inf) for config in fits]
    return np.minimum(np.array(found) / least, LARGEST_RATIO)


def expected(
    configs: Sequence[Config], problem: Problem, device: Device, pool: Sequence[RecordDigest]
) -> tuple[list[float], Sequence[Config]]:
    """The expected times of the configurations that are accurate on a problem, by the records of a
    pool, the nearest first; and these configurations."""
    near = [row for row in pool if row.problem == problem]
    errors = ModelError(device, samples(pool[:TEACHERS], HOT))
    accurate = accuracy_filter(problem, device, near).accurate([*configs])
    return errors.predict(accurate, problem).cautious(CAUTION / 2).tolist(), accurate


def recorded(problem: Problem, device: Device) -> list[RecordDigest]:
    """The digests of what is recorded on the device's architecture, the nearest first."""
    pool = neighbours.of_architecture(device, Records.shipped_only())
    return [row for _, row in pool.nearest(problem, device, len(pool.problems))]


def legal(pool: Iterable[RecordDigest], problem: Problem, device: Device) -> Iterable[Config]:
    """The recorded configurations that are worth a try on a problem."""
    every = {config for row in pool for config, _ in row.entries()}
    asked = sorted({for_compute(config, problem) for config in every})
    served = filter(Legality(problem, device), asked)
    return (config for config in served if rejection(config, problem, device) is None)


def cover(rows: Floats) -> list[int]:
    """A greedy cover of the problems, each a row: the columns chosen, in order."""
    logs, chosen = np.log(rows), list[int]()
    best = np.full(len(rows), math.log(LARGEST_RATIO))
    while len(chosen) < min(LISTED, logs.shape[1]):
        totals = np.minimum(logs, best[:, None]).sum(axis=0)
        gained = int(totals.argmin())
        if totals[gained] >= best.sum():
            break
        chosen.append(gained)
        best = np.minimum(best, logs[:, gained])
    return chosen


def missing(listed: Sequence[str], compute: str, device: Device) -> list[str]:
    """The model's choice for each kind of problem that no listed configuration can run."""
    members = [Config.parse(text) for text in listed]
    added: list[Config] = []
    for layout in ALL_LAYOUTS:
        for sizes in SIZES:
            problem = Problem(*sizes, compute, layout)
            if not any(map(Adaptation(problem, device), [*members, *added])):
                accurate = accuracy_filter(problem, device, ()).accurate(sample(problem, device))
                added += [config for _, config in cost.rank(accurate, problem, device)[:2]]
    return [*dict.fromkeys(map(str, added))]


def summary(rows: Floats, chosen: Sequence[int]) -> str:
    """How near some of the listed and all of them come to the best, as geometric means."""
    counts = (28, 96, len(chosen))
    means = (math.exp(-np.log(rows[:, chosen[:count]].min(axis=1)).mean()) for count in counts)
    shown = (f"{count}: {mean:.3f}" for count, mean in zip(counts, means, strict=True))
    return f"{rows.shape[1]} considered; {', '.join(shown)}"


if __name__ == "__main__":
    app()
