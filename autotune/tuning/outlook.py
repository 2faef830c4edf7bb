"""The gain that a finished search still expects of its untried configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.problem import Problem
from autotune.runners.base import Runner
from autotune.tuning.evaluate import Trial
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.search import Proposer
from autotune.tuning.tunable import SURVEY


@dataclass(frozen=True)
class Outlook:
    """The untried configurations of a search.

    Attributes:
        untried: how many there are.
        gain: the share by which all of them together are expected to beat the best time.
    """

    untried: int
    gain: float


def outlook(
    problem: Problem, runner: Runner, family: str, trials: Sequence[Trial]
) -> Outlook | None:
    """The outlook of a search after `trials`, as far as today's families know their parameters;
    None if the model has too few trials.

    Takes a second or two, for the model's fit to all configurations that the runner can measure.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
        AutotuneError: if no configuration is legal.
    """
    tunable = GemmTunable(problem, family)
    configs = tunable.candidates(runner, lambda _: False, survey=SURVEY).configs
    search = Proposer(configs, told=trials, describe=tunable.describe(runner.device))
    gain = search.outlook()
    if gain is None:
        return None
    return Outlook(len(configs) - len({trial.config for trial in trials} & set(configs)), gain)
