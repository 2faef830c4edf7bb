"""The search of a record: its trials one after another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measure.measurement import Failure
from autotune.report.pages.figures import (
    COLOURS,
    FAILED,
    SYMBOLS,
    WINNER,
    Figure,
    axis,
    config_text,
    figure,
    scatter,
    text,
    vendor_line,
)
from autotune.report.pages.page import Section, count, escape, paragraph, plot, time_us
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
        final_us: median hot time in the final round; None if it was not timed again.
    """

    number: int
    seconds: float | None
    family: str
    config: str
    time_us: float | None
    best_us: float | None
    stage: str | None
    final_us: float | None = None


def search_steps(subject: Subject) -> tuple[SearchStep, ...]:
    """The trials in the order in which they finished, with the best time so far."""
    finals = {entry.config: entry.time_us for entry in subject.entries}
    if all(
        finals.get(row.trial.config, row.trial.time_us) == row.trial.time_us
        for row in subject.trials
    ):
        finals = {}  # the search was interrupted before its final round
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
                finals.get(trial.config),
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
    if not subject.trials:
        took = f" in {_duration(made.seconds)}" if made.seconds >= 1 else ""
        return f"The search made {made.trials:,} trials{took}; only the best are in the record."
    last = next((row.seconds for row in reversed(subject.trials) if row.seconds is not None), None)
    times = "" if last is None else f", the last {_duration(last)} after the first began"
    return f"The search stopped after {count:,} trials{times}."


def final_sentence(steps: Sequence[SearchStep], winner: str) -> str:
    """The winner's time in the final round beside the times of the search; empty without a final
    round.

    Args:
        steps: the trials in their order.
        winner: the winner's configuration as text.
    """
    finalists = [step for step in steps if step.final_us is not None]
    won = next((step for step in finalists if step.config == winner), None)
    timed = [step for step in steps if step.time_us is not None]
    if won is None or not timed:
        return ""
    lowest = min(timed, key=lambda step: step.time_us or math.inf)
    text = (
        f"The final round timed {count(len(finalists))} finalists again, interleaved: the winner "
        f"took {time_us(won.final_us)} there and {time_us(won.time_us)} in the search."
    )
    if lowest is won:
        return text
    again = (
        "a configuration that did not reach the record"
        if lowest.final_us is None
        else f"a configuration that took {time_us(lowest.final_us)} when timed again"
    )
    return f"{text} The lowest time of the search, {time_us(lowest.time_us)}, is of {again}."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def search_figure(
    steps: Sequence[SearchStep],
    winner: str,
    vendor_us: float | None = None,
    vendor: str = "cuBLAS",
) -> Figure:
    """The trials by their number: times by family, the best so far, failures by stage at the top,
    times of the final round, and the vendor's time as a line."""
    times = [step.time_us for step in steps if step.time_us is not None]
    families = list(dict.fromkeys(step.family for step in steps))
    data = [
        _trials(family, [step for step in steps if step.family == family], number % 6)
        for number, family in enumerate(families)
    ]
    better = [step for step in steps if step.best_us is not None]
    data.append(
        scatter(
            "best of the search",
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
    data += _finals([step for step in steps if step.final_us is not None], winner)
    failed = [step for step in steps if step.stage is not None]
    for number, stage in enumerate(dict.fromkeys(step.stage for step in failed)):
        points = [step for step in failed if step.stage == stage]
        data.append(_failures(str(stage), points, max(times, default=1.0) * 1.1, number))
    return figure(data, axis("trial"), axis("time in µs", log=True))


def _finals(steps: Sequence[SearchStep], winner: str) -> list[dict[str, Any]]:
    """The final times of finalists and winner, each joined to its time in the search."""
    if not steps:
        return []
    moves = scatter(
        "from the search to the final round",
        (x for step in steps for x in (step.number, step.number, None)),
        (y for step in steps for y in (step.time_us, step.final_us, None)),
        "",
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        line={"color": WINNER, "width": 1},
    )
    kinds = (("finalist, final time", "circle-open", 9), ("winner, final time", "star", 15))
    return [moves] + [
        scatter(
            name,
            (step.number for step in points),
            (step.final_us for step in points),
            f"trial %{{x}}, {name}: %{{y:.4g}} µs<br>%{{text}}<extra></extra>",
            text=[config_text(step.config) for step in points],
            marker={"symbol": symbol, "size": size, "color": WINNER},
        )
        for won, (name, symbol, size) in enumerate(kinds)
        if (points := [step for step in steps if (step.config == winner) == bool(won)])
    ]


def _trials(family: str, steps: Sequence[SearchStep], number: int) -> dict[str, Any]:
    timed = [step for step in steps if step.time_us is not None]
    return scatter(
        family,
        (step.number for step in timed),
        (step.time_us for step in timed),
        "trial %{x}: %{y:.4g} µs<br>%{text}<extra></extra>",
        text=[config_text(step.config) for step in timed],
        marker={
            "color": COLOURS[number],
            "symbol": SYMBOLS[number],
            "size": 6,
            "opacity": 0.75,
        },
    )


def _failures(
    stage: str, steps: Sequence[SearchStep], height: float, number: int
) -> dict[str, Any]:
    return scatter(
        f"failed: {stage}",
        (step.number for step in steps),
        [height] * len(steps),
        f"trial %{{x}}: {text(stage)}<br>%{{text}}<extra></extra>",
        text=[config_text(step.config) for step in steps],
        marker={"symbol": FAILED[number % 6], "size": 7, "color": COLOURS[(number + 3) % 6]},
    )


def search_section(
    steps: Sequence[SearchStep], failed: Mapping[str, int], stop: str, winner: str
) -> Section:
    """The picture of the search with the numbers of its trials and failures."""
    if not steps:
        return Section("search", "The search", paragraph(stop))
    total = sum(failed.values())
    stages = ", ".join(f"{stage} {count(number)}" for stage, number in failed.items())
    trials = "1 trial" if len(steps) == 1 else f"{count(len(steps))} trials"
    caption = f"{trials}; {count(total)} failed" + (f" ({escape(stages)})." if total else ".")
    description = (
        f"Time of each of {len(steps)} trials in the order of the search, the best so far, and "
        "the times of the final round. The table of all trials has the numbers."
    )
    sentences = f"{stop} {final_sentence(steps, winner)}".strip()
    content = plot("search", description, caption, "tall") + paragraph(sentences)
    return Section("search", "The search", content)
