"""How long and how to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.runner import Objective

Sampler = Literal["gp", "tpe", "random", "exhaustive"]


@dataclass(frozen=True)
class Options:
    """How long and how to search.

    Attributes:
        trials: stop once so many configurations are evaluated, those of earlier runs included;
            None sets no limit.
        budget_s: stop after so many seconds of this run, or once the first guess works if that
            takes longer; None sets no limit. Without either limit every configuration is tried,
            unless the sampler is `gp`, which stops by itself.
        seed: of the sampler.
        sampler: `gp` models the times by a Gaussian process; without a number of `trials` it stops
            when further ones are not expected to give half a per cent. `tpe` learns from the times
            by Optuna's sampler, `random` draws evenly, `exhaustive` goes from the best predicted to
            the worst.
        jobs: threads that compile; None takes one for each core but one.
        objective: the kind of time that is to become small. The best of either kind is recorded.
        storage: URL of an Optuna storage for the trials, or the path of a journal file; None takes
            a file of the store.
    """

    trials: int | None = None
    budget_s: float | None = None
    seed: int = 0
    sampler: Sampler = "gp"
    jobs: int | None = None
    objective: Objective = "hot"
    storage: str | None = None
