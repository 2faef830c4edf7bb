"""Everything that a report shows of one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from autotune.report.analysis.headline import Headline, headline
from autotune.report.analysis.parameters import (
    HeatMap,
    ParameterCost,
    heat_map,
    parameter_costs,
    varied,
)
from autotune.report.analysis.rejections import RejectionRow, rejections
from autotune.report.analysis.residency import Residency, residency
from autotune.report.analysis.roofline import Roofline, roofline
from autotune.report.analysis.search import (
    SearchStep,
    failures,
    remaining,
    search_steps,
    stop_sentence,
)
from autotune.report.analysis.subject import Subject
from autotune.report.analysis.trials import Leader, TrialTable, leaders, trial_table


@dataclass(frozen=True)
class Analysis:
    """The data of a record's report; see the modules of `analysis`.

    Attributes:
        source: where the trials are from.
        note: why there are no trials; empty if there are.
        headline: the winner.
        steps: the trials in their order; none if the record stands alone.
        failures: failed trials by stage.
        stop: a sentence on where the search stopped and what the rest promises.
        roofline: None for a user kernel.
        costs: what the values of each parameter cost.
        varied: the parameters for the heat map, tile sides first.
        heat: the heat map of the first two of them; None with fewer.
        residency: None where the rules of the device are unknown.
        leaders: the record's entries.
        rejections: by reason.
        trials: the table of all trials.
    """

    source: str
    note: str
    headline: Headline
    steps: tuple[SearchStep, ...]
    failures: Mapping[str, int]
    stop: str
    roofline: Roofline | None
    costs: tuple[ParameterCost, ...]
    varied: tuple[str, ...]
    heat: HeatMap | None
    residency: Residency | None
    leaders: tuple[Leader, ...]
    rejections: tuple[RejectionRow, ...]
    trials: TrialTable

    @property
    def summary(self) -> str:
        """The headline in one line of ASCII."""
        top = self.headline
        speed = "" if top.tflops is None else f", {top.tflops:.2f} TFLOP/s"
        over = "" if top.over_hot is None else f", {top.over_hot:.1%} of {top.vendor}'s speed"
        shown = f"{len(self.steps)} trials" if self.steps else f"best {len(self.leaders)} entries"
        time = f"{top.time_us:.2f} us{speed}{over}, {top.evidence}"
        return f"{top.title} on {top.device}: {time}; {shown}"

    def to_json(self) -> dict[str, object]:
        """All of it as JSON values: times in microseconds, shares and losses as fractions."""
        return asdict(self)


def analysed(
    subject: Subject,
    *,
    stale: str | None,
    now: datetime,
    device_option: str | None = None,
    changed: str | None = None,
) -> Analysis:
    """The data of a record's report; the arguments are those of `headline`.

    Takes some seconds, mostly for the outlook of the search.
    """
    names = varied(subject)
    return Analysis(
        source=subject.source,
        note=subject.note,
        headline=headline(
            subject, stale=stale, now=now, device_option=device_option, changed=changed
        ),
        steps=search_steps(subject),
        failures=failures(subject),
        stop=stop_sentence(subject, remaining(subject)),
        roofline=roofline(subject),
        costs=parameter_costs(subject),
        varied=names,
        heat=heat_map(subject, *names[:2]) if len(names) > 1 else None,
        residency=residency(subject),
        leaders=leaders(subject),
        rejections=rejections(subject),
        trials=trial_table(subject),
    )
