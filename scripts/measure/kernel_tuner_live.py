"""Compares Kernel Tuner with autotune on the GPU of this machine.

    pip install --group compare  # and CuPy for the GPU's CUDA
    python scripts/measure/kernel_tuner_live.py results/live 4096x4096x4096 --budget 60 --runs 3

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
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import time
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table

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
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.records import Store
from autotune.report import cell
from autotune.tuning.loop import Search, tune
from autotune.tuning.options import Sampler
from autotune.tuning.pipeline import prepare
from autotune.tuning.trials import Progress, Silent, Trial
from autotune.tuning.tunable import Candidates, GemmTunable

sys.path.append(str(Path(__file__).resolve().parents[1] / "fit"))

import replay

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
        "cublas": "not used",
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
            target.runner, (), ranked=None
        )
    first = candidates.ranked[0]
    launch = registry.plan(first, contest.problem).main
    program = compile(launch.template, device.arch, cache=None)
    SHOWN.print(f"{OURS} would begin with {first}", markup=False)
    if isinstance(program, CompileFailure):
        raise AutotuneError(f"{first}: {program.reason}")

    import kernel_tuner_strategies as gpu

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


FAMILY = "simt"


OURS, THEIRS = "autotune", "kernel tuner"


BACKENDS = {"cupy": "CUPY", "nvcuda": "NVCUDA"}  # Kernel Tuner's names of the languages


WITHIN = 0.05, 0.02


@dataclass(frozen=True)
class Contest:
    """The task of both tuners.

    Attributes:
        problem: the problem.
        configs: the configurations to choose from.
        device: the device, as for `autotune tune`.
        budget_s: seconds for each tuner.
        strategy: strategy of Kernel Tuner.
        backend: backend of Kernel Tuner.
        sampler: sampler of autotune.
    """

    problem: Problem
    configs: tuple[Config, ...]
    device: str
    budget_s: float
    strategy: str
    backend: str
    sampler: str


@dataclass(frozen=True)
class Step:
    """A configuration that was the best when it was tried.

    Attributes:
        seconds: time since the tuner was called.
        evaluations: number of evaluations by then, this one included.
        config: the configuration.
        seen_us: the time that the tuner measured.
    """

    seconds: float
    evaluations: int
    config: Config
    seen_us: float


@dataclass(frozen=True)
class Trace:
    """One run of a tuner.

    Attributes:
        tuner: name of the tuner.
        seed: random seed.
        seconds: total time.
        evaluations: number of evaluations.
        failures: number of failed evaluations.
        steps: the successive best configurations.
        chosen: the final choice; None if nothing ran.
        broken: error that ended it early; empty if none.
    """

    tuner: str
    seed: int
    seconds: float
    evaluations: int
    failures: int
    steps: tuple[Step, ...]
    chosen: Config | None
    broken: str = ""


@dataclass(frozen=True)
class RestrictedGemm(GemmTunable):
    """A GEMM restricted to the contest's configurations."""

    configs: tuple[Config, ...] = ()

    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The configurations, ranked by the cost model."""
        safe = [config for config in self.configs if config not in barred]
        most = ranked or len(safe)
        sampled, rest = space.spread(safe, most), space.skipped(safe, most)
        by_time = cost.rank(sampled, self.problem, runner.device)
        return Candidates(tuple(config for _, config in by_time), tuple(rest), {})


def run_autotune(contest: Contest, seed: int, folder: Path) -> Trace:
    """Runs autotune and traces its best configurations."""
    began = time()
    clock = Clock(began)
    named: dict[str, Sampler] = {name: name for name in get_args(Sampler)}
    with targets.opened(contest.problem, contest.device) as target:
        record = tune(
            RestrictedGemm(contest.problem, FAMILY, contest.configs),
            target.runner,
            Store(folder),
            Search(seconds=contest.budget_s, seed=seed, sampler=named[contest.sampler]),
            compile=partial(compile, cache=folder),
            origin=target.origin,
            observer=clock,
        )
    return Trace(
        tuner=OURS,
        seed=seed,
        seconds=time() - began,
        evaluations=clock.evaluations,
        failures=clock.failures,
        steps=tuple(clock.steps),
        chosen=record.best.config,
    )


class Clock(Silent):
    """An observer that records when each best configuration was found."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.evaluations = self.failures = 0
        self.steps: list[Step] = []

    def trial(self, trial: Trial, progress: Progress) -> None:
        """Records a trial."""
        self.evaluations, self.failures = progress.trials, progress.failures
        if isinstance(trial.outcome, Measurement) and improves(self.steps, trial.time_us):
            seconds = time() - self._began
            self.steps.append(Step(seconds, self.evaluations, trial.config, trial.time_us))


def run_kernel_tuner(contest: Contest, seed: int, folder: Path) -> Trace:
    """Runs Kernel Tuner; an error that ends it early is kept with the results so far."""
    import kernel_tuner_strategies as gpu
    from kernel_tuner_strategies import feasible

    kernel, cache = gpu.Kernel(contest.problem, contest.configs), folder / "cache.json"
    arguments = kernel.arguments(gpu.operands(contest.problem, seed))
    feasible(kernel.configs)  # cached
    broken, began = "", time()
    try:
        gpu.tune(
            kernel,
            arguments,
            language=BACKENDS[contest.backend],
            strategy=contest.strategy,
            seconds=contest.budget_s,
            seed=seed,
            cache=cache,
        )
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    seconds = time() - began
    results = gpu.measured(cache)
    steps = steps_of(results, kernel.config, began)
    return Trace(
        tuner=THEIRS,
        seed=seed,
        seconds=seconds,
        evaluations=len(results),
        failures=sum("__error__" in result for result in results),
        steps=tuple(steps),
        chosen=steps[-1].config if steps else None,
        broken=broken,
    )


def steps_of(
    results: Iterable[Mapping[str, Any]],
    config: Callable[[Mapping[str, Any]], Config],
    began: float,
) -> list[Step]:
    """The successive best results in Kernel Tuner's cache: milliseconds, and UTC in ISO 8601."""
    steps: list[Step] = []
    for number, result in enumerate(results, 1):
        if "__error__" not in result and improves(steps, 1e3 * result["time"]):
            at = datetime.fromisoformat(result["timestamp"]).timestamp()
            steps.append(Step(at - began, number, config(result), 1e3 * result["time"]))
    return steps


def improves(steps: Sequence[Step], time_us: float) -> bool:
    """Whether a time is the best so far."""
    return not steps or time_us < steps[-1].seen_us


def row(trace: Trace, judged: Mapping[Config, float]) -> dict[str, Any]:
    """The figures of a run; a configuration without a time in the final round counts as 0."""
    best_us = min(judged.values())

    def share(config: Config | None) -> float:
        return best_us / judged[config] if config and config in judged else 0.0

    near = {
        within: next((step for step in trace.steps if share(step.config) >= 1 / (1 + within)), None)
        for within in WITHIN
    }
    return {
        "tuner": trace.tuner,
        "seed": trace.seed,
        "seconds": trace.seconds,
        "evaluations": trace.evaluations,
        "failures": trace.failures,
        "broken": trace.broken,
        "within": {
            f"{within:.0%}": step and {"seconds": step.seconds, "evaluations": step.evaluations}
            for within, step in near.items()
        },
        "chosen": trace.chosen and str(trace.chosen),
        "share": share(trace.chosen),
        "steps": [
            {**asdict(step), "config": str(step.config), "share": share(step.config)}
            for step in trace.steps
        ],
    }


def table(content: Mapping[str, Any]) -> Table:
    """A row for each run."""
    best = content["best"]
    shown = Table(title=f"{content['problem']}: best known {best['us']:.2f} us", box=None)
    shown.add_column("tuner", no_wrap=True)
    spans = [f"{within:.0%}" for within in WITHIN]
    for header in (
        *("seed", "evalu-\nations", "failed", "seconds"),
        *(f"{figure}\nto {span}" for span in spans for figure in ("seconds", "evals")),
        "of the\nbest",
    ):
        shown.add_column(header, justify="right", no_wrap=True)
    for run in content["rows"]:
        reached = [run["within"][span] or {} for span in spans]
        shown.add_row(
            run["tuner"],
            *(str(run[name]) for name in ("seed", "evaluations", "failures")),
            f"{run['seconds']:.1f}",
            *(
                cell(each.get(name), form)
                for each in reached
                for name, form in (("seconds", "{:.1f}"), ("evaluations", "{}"))
            ),
            f"{run['share']:.1%}",
        )
    return shown


if __name__ == "__main__":
    typer.run(main)
