"""Compares Kernel Tuner with autotune on the GPU of this machine.

    pip install --group compare  # and CuPy for the GPU's CUDA
    python scripts/kernel_tuner_live.py results/live 4096x4096x4096 --budget 60 --runs 3

writes `live-4096x4096x4096-f32-nn.json` into the folder and prints a table.

Both search the same configurations of `simt`: single launches without a workspace, so neither
split-K nor packed operands. `--only copy=async --only stages=2,3` restricts the values of a
parameter, `--configs` draws at most that many evenly. Each starts with empty caches in its own
process and ends after `--budget` seconds. The clock starts when the tuner is called. Imports and,
for Kernel Tuner, the preparations of `kernel_tuner_gpu.py` are not counted; starting the measuring
process and timing cuBLAS are, as parts of `autotune tune`.

At the end, one runner verifies every configuration that was ever the best of either tuner and times
them interleaved, so that one clock judges both. The shortest of these times is the best known;
`--recording` adds the fastest configurations of a sweep. The table says when each tuner first had a
configuration within 2 and 5 % of it, and where it ended.

`--dry-run` needs no GPU: it stops before the first launch for `--device`, such as `h100`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timezone
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Annotated, Any

import replay
import typer
from contenders import (
    BACKENDS,
    FAMILY,
    OURS,
    THEIRS,
    Contest,
    RestrictedGemm,
    Trace,
    row,
    run_autotune,
    run_kernel_tuner,
    table,
)
from rich.console import Console

from autotune.cuda.compiler import compile
from autotune.cuda.program import CompileFailure
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure import devices, targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate, Runner
from autotune.measure.targets import Target
from autotune.model import space
from autotune.problem import Problem
from autotune.report import cell
from autotune.tuning.pipeline import prepare

# Number of fastest configurations of a recording that are timed too.
RECORDED = 10


SHOWN = Console(width=110, soft_wrap=True)


def main(
    out: Annotated[Path, typer.Argument(help="Folder of the results.")],
    shape: Annotated[str, typer.Argument(help="Problem in fp32, such as 4096x4096x4096.")],
    budget: Annotated[float, typer.Option(help="Seconds for each tuner in a run.")] = 60.0,
    runs: Annotated[
        int, typer.Option(min=1, help="Runs of each tuner, each with its own seed.")
    ] = 3,
    only: Annotated[
        list[str] | None, typer.Option(help="Values of a parameter to keep, as name=value,value.")
    ] = None,
    configs: Annotated[int, typer.Option(help="Most configurations; 0 takes all.")] = 0,
    strategy: Annotated[
        str, typer.Option(help="Strategy of Kernel Tuner.")
    ] = "adaptive_tabu_greywolf",
    backend: Annotated[str, typer.Option(help="Backend of Kernel Tuner: cupy or nvcuda.")] = "cupy",
    sampler: Annotated[str, typer.Option(help="Sampler of autotune.")] = "gp",
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recording", help="Recording whose fastest configurations are timed too."),
    ] = None,
    commit: Annotated[str, typer.Option(help="Commit to record in the results.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Stop before the first launch.")
    ] = False,
) -> None:
    """Tunes SHAPE with both tuners and writes how soon each found fast configurations."""
    replay.chosen([sampler], [strategy])
    if backend not in BACKENDS:
        raise typer.BadParameter(f"no backend {backend!r}; there is {', '.join(BACKENDS)}")
    problem = Problem.parse(shape)
    where = targets.resolve(device)
    chosen = common(problem, where, kept(only or []), configs)
    SHOWN.print(f"{problem}: {len(chosen)} configurations of {FAMILY} on {where.name}")
    contest = Contest(problem, chosen, device, budget, strategy, backend, sampler)
    if dry_run:
        rehearse(contest, where)
        return
    traces = [
        apart(contend, contest, seed)
        for seed in range(runs)
        # The order alternates, so that neither tuner always gets the warmer device.
        for contend in (
            (run_autotune, run_kernel_tuner) if seed % 2 == 0 else (run_kernel_tuner, run_autotune)
        )
    ]
    with targets.opened(problem, device) as target, tempfile.TemporaryDirectory() as folder:
        judged = judge(
            contest, target.runner, finalists(traces, recordings or [], chosen), Path(folder)
        )
        content = results(contest, target, traces, judged, commit)
    path = out / f"live-{problem.slug}.json"
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    SHOWN.print(table(content))


def kept(texts: Sequence[str]) -> dict[str, frozenset[str]]:
    """The values to keep of some parameters."""
    pairs = (text.partition("=") for text in texts)
    return {name: frozenset(values.split(",")) for name, _, values in pairs}


def common(
    problem: Problem, device: Device, keep: Mapping[str, frozenset[str]], most: int
) -> tuple[Config, ...]:
    """The configurations both tuners search: single launches without a workspace.

    Raises:
        typer.BadParameter: if nothing is left.
    """
    configs = [
        config
        for config in space.feasible(problem, device, FAMILY).configs
        if all(str(config.values.get(name)) in values for name, values in keep.items())
        and _single(config, problem)
    ]
    if not configs:
        raise typer.BadParameter(f"no configuration of {FAMILY} is left for {problem}")
    if 0 < most < len(configs):
        configs = Random(0).sample(configs, most)
    return tuple(configs)


def _single(config: Config, problem: Problem) -> bool:
    plan = registry.plan(config, problem)
    return len(plan.launches) == 1 and plan.workspace == plan.counters == 0


def apart(contend: Callable[[Contest, int, Path], Trace], contest: Contest, seed: int) -> Trace:
    """Runs a tuner in its own process with its own empty caches."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ |= {
            "CUPY_CACHE_DIR": f"{folder}/cupy",
            "CUDA_CACHE_PATH": f"{folder}/driver",
            "AUTOTUNE_CACHE_DIR": f"{folder}/autotune",
        }
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            trace = pool.submit(contend, contest, seed, Path(folder)).result()
    last = trace.steps[-1].seen_us if trace.steps else None
    SHOWN.print(
        f"{trace.tuner}, seed {seed}: {trace.evaluations} evaluations, "
        f"best {cell(last, '{:.2f} us') or 'none'}{trace.broken and ': ' + trace.broken}",
        markup=False,
    )
    return trace


def finalists(
    traces: Sequence[Trace], recordings: Sequence[Path], configs: Sequence[Config]
) -> list[Config]:
    """Every best configuration of either tuner, and the fastest recorded ones of the contest."""
    bests = dict.fromkeys(step.config for trace in traces for step in trace.steps)
    bests |= dict.fromkeys(trace.chosen for trace in traces if trace.chosen)
    common = frozenset(configs)
    for path in recordings:
        rows = Recording.load(path).rows
        times = {
            row.config: row.outcome.time_us
            for row in rows
            if isinstance(row.outcome, Measurement) and row.config in common
        }
        bests |= dict.fromkeys(sorted(times, key=times.__getitem__)[:RECORDED])
    return [*bests]


def judge(
    contest: Contest, runner: Runner, configs: Sequence[Config], folder: Path
) -> dict[Config, float]:
    """The time of each correct configuration in microseconds, timed interleaved."""
    compiled = partial(compile, cache=folder)
    ready = [
        candidate
        for config in configs
        if isinstance(
            candidate := prepare(registry.plan(config, contest.problem), runner, compiled),
            Candidate,
        )
    ]
    outcomes = zip(ready, runner.rematch(ready), strict=True)
    return {
        candidate.config: outcome.time_us
        for candidate, outcome in outcomes
        if isinstance(outcome, Measurement)
    }


def results(
    contest: Contest,
    target: Target,
    traces: Sequence[Trace],
    judged: Mapping[Config, float],
    commit: str,
) -> dict[str, Any]:
    """The content of the result file."""
    best = min(judged, key=judged.__getitem__)
    return {
        "device": target.runner.device.name,
        "evidence": target.runner.evidence,
        "driver": target.origin.driver,
        "toolkit": target.origin.compiler,
        "source": target.origin.source,
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": replay.versions(
            "tile-autotune", "kernel_tuner", "cupy-cuda13x", "numpy", "optuna"
        ),
        "problem": str(contest.problem),
        "configs": len(contest.configs),
        "budget_s": contest.budget_s,
        "strategy": contest.strategy,
        "backend": contest.backend,
        "sampler": contest.sampler,
        "best": {"config": str(best), "us": judged[best]},
        "judged": {str(config): time_us for config, time_us in judged.items()},
        "rows": [row(trace, judged) for trace in traces],
    }


def rehearse(contest: Contest, device: Device) -> None:
    """Prepares the first launch of both tuners.

    Raises:
        AutotuneError: if Kernel Tuner would launch a kernel differently.
    """
    with targets.opened(contest.problem, contest.device) as target:
        candidates = RestrictedGemm(contest.problem, FAMILY, contest.configs).candidates(
            target.runner, lambda _: False, ranked=None
        )
    first = candidates.ranked[0]
    launch = registry.plan(first, contest.problem).main
    program = compile(launch.template, device.arch, cache=None)
    SHOWN.print(f"{OURS} would begin with {first}", markup=False)
    if isinstance(program, CompileFailure):
        raise AutotuneError(f"{first}: {program.reason}")

    import kernel_tuner_gpu as gpu

    kernel = gpu.Kernel(contest.problem, contest.configs)
    arguments = kernel.arguments(gpu.operands(contest.problem, 0))
    size = gpu.size_of(kernel)
    for config in (contest.configs[0], first, contest.configs[-1]):
        instance, launch = gpu.instance(kernel, config), registry.plan(config, contest.problem).main
        expected = launch.grid, launch.block, launch.shared
        if (instance.grid, instance.threads, instance.shared) != expected:
            raise AutotuneError(f"{config}: Kernel Tuner would launch {instance}, not {expected}")
        code = instance.compile(device.arch)
        SHOWN.print(f"{THEIRS} has {len(code)} bytes of code for {config}", markup=False)
    SHOWN.print(f"{THEIRS} sees {size} configurations and gives {len(arguments)} arguments")


if __name__ == "__main__":
    typer.run(main)
