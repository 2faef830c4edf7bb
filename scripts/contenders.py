"""The two tuners that `kernel_tuner_live.py` compares, and a trace of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any, get_args

from rich.table import Table

from autotune.cuda.compiler import compile
from autotune.families.config import Config
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.runner import Runner
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.records import Store
from autotune.report import cell
from autotune.tuning.loop import Search, tune
from autotune.tuning.options import Sampler
from autotune.tuning.trials import Progress, Silent, Trial
from autotune.tuning.tunable import Candidates, GemmTunable

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
        self, runner: Runner, unsafe: Callable[[Config], bool], *, ranked: int | None
    ) -> Candidates:
        """The configurations, ranked by the cost model."""
        safe = [config for config in self.configs if not unsafe(config)]
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
    import kernel_tuner_gpu as gpu
    from kernel_tuner_replay import feasible

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
