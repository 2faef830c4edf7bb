"""Configurations that were not timed, by reason: rejected by a rule, or failed later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.model import space
from autotune.report.analysis.reasons import STAGES, sentence
from autotune.report.analysis.subject import Subject
from autotune.runners.base import Failure


@dataclass(frozen=True)
class RejectionRow:
    """A reason with the number of configurations that it kept from being timed.

    Attributes:
        when: `before compilation`, or `failed`.
        family: the kernel family; empty for a failure, which counts over all.
        reason: the rule's name or the stage.
        count: the number of configurations.
        sentence: what the reason means.
        example: a configuration, and what is wrong with its numbers.
    """

    when: str
    family: str
    reason: str
    count: int
    sentence: str
    example: str


def rejections(subject: Subject) -> tuple[RejectionRow, ...]:
    """Failures by stage, then rejections by rule for each searched family, most frequent first."""
    return (*_failures(subject), *_rejected(subject))


def _failures(subject: Subject) -> Iterator[RejectionRow]:
    failed = [
        (trial.config, trial.outcome)
        for row in subject.trials
        if isinstance((trial := row.trial).outcome, Failure)
    ]
    counts = Counter(outcome.stage for _, outcome in failed)
    for stage, count in counts.most_common():
        config, outcome = next(pair for pair in failed if pair[1].stage == stage)
        example = f"{config}: {outcome.reason}"
        yield RejectionRow("failed", "", stage, count, STAGES[stage], example)


def _rejected(subject: Subject) -> Iterator[RejectionRow]:
    problem = subject.problem
    if problem is None:
        return
    for family in subject.families:
        try:
            legal = space.feasible(problem, subject.device, family)
            rules = registry.find(family).rules
        except AutotuneError:  # the family is gone, or does not serve the precision any more
            continue
        sentences = {rule.reason: sentence(rule.reason, rule.needs) for rule in rules}
        for reason, count in legal.rejected.items():
            example = legal.examples[reason]
            meaning = sentences[reason]
            yield RejectionRow("before compilation", family, reason, count, meaning, example)
