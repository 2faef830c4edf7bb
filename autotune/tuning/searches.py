"""The search of a tuning run: what it starts with, and what it need not try."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.device import Device
from autotune.families.config import Config
from autotune.records import TuningRecord
from autotune.runners.base import Measurement
from autotune.tuning import objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Options
from autotune.tuning.search import Search
from autotune.tuning.search.axes import Axis
from autotune.tuning.tunable import Candidates, Tunable


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
