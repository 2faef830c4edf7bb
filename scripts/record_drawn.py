"""Records a few configurations of many drawn shapes: what the cost model learns from best.

    python scripts/record_drawn.py docs/results/h200/drawn --count 400 --seconds 500

draws shapes as `untuned.py` does, with a seed of its own. Half of a shape's configurations are
those that a race would try, and half are drawn from all that the model expects to take at most 3
times as long as its best: trials of a search lie near what the model believed, and these do not. A
recording for each shape goes into the folder; shapes that it holds are skipped, so that a run
continues.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from sweep import record
from untuned import drawn

from autotune import settings
from autotune.cuda import compiler
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.lookup.promising import contenders
from autotune.measure import devices, recording, targets
from autotune.measure.targets import TargetOpener
from autotune.model import cost
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.records import Records, Store

SEED = 1
"""Not the seed of `untuned.py`, whose shapes test the model that is fitted to these."""


SLOWEST = 3.0


SHOWN = Console(width=110, soft_wrap=True)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the recordings.")],
    count: Annotated[int, typer.Option(help="Number of shapes.")] = 400,
    configs: Annotated[int, typer.Option(help="Configurations of a shape.")] = 20,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 3600.0,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    seed: Annotated[int, typer.Option(help="Random seed.")] = SEED,
) -> None:
    """Records and prints a line for each shape."""
    began, where = monotonic(), targets.resolve(device)
    paths = {
        problem: recording.path_of(folder.name, problem, folder.parent)
        for problem in drawn(count, seed)
    }
    left = [problem for problem, path in paths.items() if not path.exists()]
    SHOWN.print(f"{len(paths) - len(left)} of {len(paths)} shapes are there already")
    pick = partial(chosen, device=where, count=configs, seed=seed)
    with TargetOpener(device) as opener, ThreadPoolExecutor(1, "choose") as pool:
        coming = [pool.submit(pick, problem) for problem in left[:1]]
        for place, problem in enumerate(left):
            if monotonic() - began > seconds:
                break
            picked = coming.pop().result()
            coming = [pool.submit(pick, after) for after in left[place + 1 : place + 2]]
            try:
                with opener.starting(problem) as ready:
                    target = ready()
                    recorded = record(
                        *(problem, target.runner, picked, paths[problem]),
                        compile=partial(compiler.compile, cache=settings.cache_dir()),
                        origin=target.origin,
                    )
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                continue
            took = f"{monotonic() - began:.0f} s"
            SHOWN.print(f"{problem!s:32} {len(recorded.rows)} configurations, {took}", markup=False)


def chosen(problem: Problem, device: Device, count: int, seed: int) -> list[Config]:
    """The configurations to measure: promising ones, and drawn ones that are not hopeless."""
    records = Records(Store(settings.cache_dir()))
    best = contenders(problem, device, records, count=count // 2).first
    surveyed = sample(problem, device)
    times = cost.times(surveyed, problem, device)
    slowest = SLOWEST * min(times, default=0.0)
    others = [
        config
        for config, time_us in zip(surveyed, times, strict=True)
        if time_us <= slowest and config not in best
    ]
    random = Random(f"{seed} {problem}")
    return [*best, *random.sample(others, min(len(others), count - len(best)))]


if __name__ == "__main__":
    typer.run(main)
