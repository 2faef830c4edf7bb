"""The search of a tuning run: what it starts with, and what it need not try."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.device import Device
from autotune.families.config import Config
from autotune.records import Store, TuningRecord
from autotune.runners.base import Measurement, Runner
from autotune.tuning import objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Options
from autotune.tuning.pipeline import Compiler
from autotune.tuning.search import Search
from autotune.tuning.search.axes import Axis
from autotune.tuning.tunable import SURVEY, Candidates, Tunable


def listed(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    options: Options,
    compiler: Compiler,
    barred: Callable[[Config], bool],
) -> tuple[Candidates, tuple[Config, ...]]:
    """The candidates that are not `barred`, and what to try first.

    The first guesses begin to compile: listing 100,000 candidates takes a second, and setting the
    search up another.
    """
    promising: tuple[Config, ...] = ()
    device, compiles = runner.device, options.guided and runner.known() is None
    if compiles:
        raced = tunable.promising(device, store, options.objective)
        promising = tuple(config for config in raced if not barred(config))
        _begin(promising, compiler, options)
    survey = None if options.sampler == "exhaustive" else SURVEY
    candidates = tunable.candidates(runner, barred, survey=survey)
    further = tunable.guesses(candidates, device, store, options.objective)
    guesses = tuple(dict.fromkeys((*promising, *further)))
    if compiles:
        _begin(guesses, compiler, options)
    return candidates, guesses


def _begin(guesses: Sequence[Config], compiler: Compiler, options: Options) -> None:
    """Begins to compile as many guesses as there are compilers."""
    for guess in guesses[: options.trials][: compiler.jobs]:
        compiler.begin(guess)


def search_of(
    tunable: Tunable[TuningRecord],
    device: Device,
    options: Options,
    candidates: Candidates,
    guesses: Sequence[Config],
    axes: tuple[Axis, ...],
    told: Sequence[Trial],
) -> Search:
    """The search among the candidates that continues from the trials `told`."""
    return Search(
        candidates.configs,
        axes,
        sampler=options.sampler,
        seed=options.seed,
        guesses=guesses,
        told=told,
        describe=tunable.describe(device),
        value=options.score or (lambda trial: objective.value(trial, options.objective)),
    )


def refuse_inaccurate(
    search: Search,
    tunable: Tunable[TuningRecord],
    candidates: Candidates,
    baseline: Measurement | None,
) -> None:
    """Spares the search what is predicted to be less accurate than the vendor baseline allows."""
    if baseline is not None:
        search.refuse(tunable.inaccurate(candidates.configs, baseline))
