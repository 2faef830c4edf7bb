"""The search of a record: its trials one after another, and why it stopped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.families.registry import families_of
from autotune.report.analysis.subject import Subject
from autotune.runners import recording
from autotune.runners.base import Failure, Runner
from autotune.runners.predicted import PredictedRunner
from autotune.runners.replay import ReplayRunner
from autotune.tuning.proposals import ENOUGH
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.tunable import RANKED, GemmTunable


@dataclass(frozen=True)
class Outlook:
    """The untried configurations of a search.

    Attributes:
        untried: how many there are.
        gain: the share by which all of them together are expected to beat the best time.
    """

    untried: int
    gain: float


@dataclass(frozen=True)
class SearchStep:
    """A trial in the order of the search.

    Attributes:
        number: from 1 on.
        seconds: since the search began; None if unknown.
        family: the kernel family.
        config: the configuration as text.
        time_us: median hot time; None for a failure.
        best_us: the best time so far; None before there is one.
        stage: where it failed; None if it did not.
    """

    number: int
    seconds: float | None
    family: str
    config: str
    time_us: float | None
    best_us: float | None
    stage: str | None


def search_steps(subject: Subject) -> tuple[SearchStep, ...]:
    """The trials in the order in which they finished, with the best time so far."""
    steps, best = [], math.inf
    for number, row in enumerate(subject.trials, start=1):
        trial = row.trial
        best = min(best, trial.time_us)
        steps.append(
            SearchStep(
                number,
                row.seconds,
                trial.config.family,
                str(trial.config),
                trial.time_us if math.isfinite(trial.time_us) else None,
                best if math.isfinite(best) else None,
                trial.outcome.stage if isinstance(trial.outcome, Failure) else None,
            )
        )
    return tuple(steps)


def failures(subject: Subject) -> Mapping[str, int]:
    """Failed trials by stage, the most frequent first."""
    outcomes = (row.trial.outcome for row in subject.trials)
    stages = Counter(outcome.stage for outcome in outcomes if isinstance(outcome, Failure))
    return dict(stages.most_common())


def remaining(subject: Subject) -> Outlook | None:
    """The gain that the search's own model expects of the configurations that were not tried.

    None for a user kernel, for trials that are no search, and with too few trials for the model.
    Takes a second or two, for the model's fit to all configurations that can be measured.
    """
    problem = subject.problem
    runner = _runner(subject)
    if problem is None or runner is None or subject.source != "log":
        return None
    try:
        families = "+".join(subject.families)
        family = "auto" if families == "+".join(families_of("auto", problem)) else families
        tunable = GemmTunable(problem, family)
        configs = tunable.candidates(runner, lambda _: False, ranked=RANKED).configs
    except AutotuneError:  # the families of today do not serve what was searched
        return None
    trials = [row.trial for row in subject.trials]
    search = Proposer(configs, told=trials, describe=tunable.describe(runner.device))
    gain = search.expected_gain()
    if gain is None:
        return None
    return Outlook(len(configs) - len({trial.config for trial in trials} & set(configs)), gain)


def _runner(subject: Subject) -> Runner | None:
    """A runner that could measure the configurations of the search; None if there is none."""
    problem, device = subject.problem, subject.device
    if problem is None:
        return None
    if subject.record.evidence != "replayed":
        return PredictedRunner(problem, device)
    names = (name for name, problems in recording.names().items() if problem in problems)
    recorded = (recording.find(name, problem) for name in names)
    return next((ReplayRunner(row) for row in recorded if row.device.name == device.name), None)


def stop_sentence(subject: Subject, rest: Outlook | None) -> str:
    """Where the search stopped, and what the rest was expected to give."""
    count, made = len(subject.trials), subject.record.provenance
    if subject.source == "recording":
        return f"{count:,} configurations were recorded one after another, not searched."
    if subject.source == "record":
        took = f" in {_duration(made.seconds)}" if made.seconds >= 1 else ""
        return f"The search made {made.trials:,} trials{took}; only the best are in the record."
    last = next((row.seconds for row in reversed(subject.trials) if row.seconds is not None), None)
    times = "" if last is None else f", the last {_duration(last)} after the first began"
    sentence = f"The search stopped after {count:,} trials{times}."
    if rest is None:
        return sentence
    verdict = "below" if rest.gain < ENOUGH else "above"
    return (
        f"{sentence} The model expects the {rest.untried:,} configurations that were not tried to "
        f"beat the best by {rest.gain:.2%} together, {verdict} the {ENOUGH:.2%} at which a search "
        "stops by itself."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"
