"""The search of a record: its trials one after another, and what was not timed for which reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError
from autotune.families import cublaslt
from autotune.measure.measurement import Failure
from autotune.model import space
from autotune.report.pages.figures import (
    COLOURS,
    WINNER,
    Figure,
    axis,
    config_text,
    figure,
    scatter,
    text,
    vendor_line,
)
from autotune.report.pages.page import Kind, Section, count, escape, paragraph, plot, table
from autotune.report.trials import Subject


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
        stage: stage that failed; None if none did.
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


def stop_sentence(subject: Subject) -> str:
    """The number of trials that the search made, and when the last began."""
    count, made = len(subject.trials), subject.record.provenance
    if subject.source == "record":
        took = f" in {_duration(made.seconds)}" if made.seconds >= 1 else ""
        return f"The search made {made.trials:,} trials{took}; only the best are in the record."
    last = next((row.seconds for row in reversed(subject.trials) if row.seconds is not None), None)
    times = "" if last is None else f", the last {_duration(last)} after the first began"
    return f"The search stopped after {count:,} trials{times}."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def search_figure(
    steps: Sequence[SearchStep], vendor_us: float | None = None, vendor: str = "cuBLAS"
) -> Figure:
    """The trials by their number: times by family, the best so far, failures by stage at the top,
    and the vendor's time as a line."""
    times = [step.time_us for step in steps if step.time_us is not None]
    families = list(dict.fromkeys(step.family for step in steps))
    data = [
        _trials(family, [step for step in steps if step.family == family], COLOURS[number % 6])
        for number, family in enumerate(families)
    ]
    better = [step for step in steps if step.best_us is not None]
    data.append(
        scatter(
            "best so far",
            (step.number for step in better),
            (step.best_us for step in better),
            "",
            mode="lines",
            line={"color": WINNER, "width": 2, "shape": "hv"},
            hoverinfo="skip",
        )
    )
    if vendor_us is not None:
        data.append(vendor_line(vendor, [1, max(2, len(steps))], [vendor_us] * 2, "y"))
    failed = [step for step in steps if step.stage is not None]
    for number, stage in enumerate(dict.fromkeys(step.stage for step in failed)):
        points = [step for step in failed if step.stage == stage]
        data.append(_failures(str(stage), points, max(times, default=1.0) * 1.1, number))
    return figure(data, axis("trial"), axis("time in µs", log=True))


def _trials(family: str, steps: Sequence[SearchStep], colour: str) -> dict[str, Any]:
    timed = [step for step in steps if step.time_us is not None]
    return scatter(
        family,
        (step.number for step in timed),
        (step.time_us for step in timed),
        "trial %{x}: %{y:.4g} µs<br>%{text}<extra></extra>",
        text=[config_text(step.config) for step in timed],
        marker={"color": colour, "size": 6, "opacity": 0.75},
    )


def _failures(
    stage: str, steps: Sequence[SearchStep], height: float, number: int
) -> dict[str, Any]:
    """The trials that failed at a stage, at a height above all times."""
    return scatter(
        f"failed: {stage}",
        (step.number for step in steps),
        [height] * len(steps),
        f"trial %{{x}}: {text(stage)}<br>%{{text}}<extra></extra>",
        text=[config_text(step.config) for step in steps],
        marker={"symbol": "x", "size": 7, "color": COLOURS[(number + 3) % 6]},
    )


def search_section(steps: Sequence[SearchStep], failed: Mapping[str, int], stop: str) -> Section:
    """The picture of the search with the numbers of its trials and failures."""
    if not steps:
        return Section("search", "The search", paragraph(stop))
    total = sum(failed.values())
    stages = ", ".join(f"{stage} {count(number)}" for stage, number in failed.items())
    trials = "1 trial" if len(steps) == 1 else f"{count(len(steps))} trials"
    caption = f"{trials}; {count(total)} failed" + (f" ({escape(stages)})." if total else ".")
    description = (
        f"Time of each of {len(steps)} trials in the order of the search, and the best so far. "
        "The table of all trials has the numbers."
    )
    content = plot("search", description, caption) + paragraph(stop)
    return Section("search", "The search", content)


@dataclass(frozen=True)
class RejectionRow:
    """A reason with the number of configurations that it kept from being timed.

    Attributes:
        when: `before compilation`, or `failed`.
        family: the kernel family; empty for a failure, which counts over all.
        reason: the rule's name or the stage.
        count: the number of configurations.
        example: a configuration, and what is wrong with its numbers.
    """

    when: str
    family: str
    reason: str
    count: int
    example: str


def rejections(subject: Subject) -> tuple[RejectionRow, ...]:
    """Failures by stage, then rejections by rule for each searched family, most frequent first."""
    return (*_failed(subject), *_rejected(subject))


def _failed(subject: Subject) -> Iterator[RejectionRow]:
    examples: dict[str, str] = {}
    for trial in (row.trial for row in subject.trials):
        if isinstance(failure := trial.outcome, Failure):
            examples.setdefault(failure.stage, f"{trial.config}: {failure.reason}")
    for stage, failed_count in failures(subject).items():
        yield RejectionRow("failed", "", stage, failed_count, examples[stage])


def _rejected(subject: Subject) -> Iterator[RejectionRow]:
    problem = subject.problem
    if problem is None:
        return
    for family in subject.families:
        if family == cublaslt.NAME:  # its heuristic lists what runs
            continue
        try:
            legal = space.feasible(problem, subject.device, family)
        except AutotuneError:  # the family is gone, or does not serve the precision any more
            continue
        for reason, rejected_count in legal.rejected.items():
            example = legal.examples[reason]
            yield RejectionRow("before compilation", family, reason, rejected_count, example)


def rejection_section(rejections: Sequence[RejectionRow]) -> Section:
    """The configurations that were not timed, as a table."""
    rows = [(row.when, row.family, row.reason, count(row.count), row.example) for row in rejections]
    if not rows:
        return Section("rejections", "Not timed", paragraph("No configuration was rejected."))
    headings: dict[str, Kind] = {
        "when": "word",
        "family": "word",
        "reason": "word",
        "configurations": "number",
        "example": "prose",
    }
    caption = "Configurations that were not timed, by the first reason"
    return Section("rejections", "Not timed", table(headings, rows, caption))
