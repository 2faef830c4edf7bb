"""The page of one record: its headline, its leaders, and a section for each analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.families.plan import OWN
from autotune.measure import targets
from autotune.measure.measurement import Evidence
from autotune.measure.objective import COLD, HOT, Objective
from autotune.measure.recording import Origin
from autotune.records import Entry, KernelRecord, Record, Store, TuningRecord
from autotune.records.kernel_record import NOT_VERIFIED
from autotune.records.merging import changes, stale
from autotune.report import local, over_vendor, us_of, vendor
from autotune.report.explanation import why_it_won
from autotune.report.pages import page
from autotune.report.pages.figures import Figure
from autotune.report.pages.occupancy import Residency, curve_figure, residency, residency_section
from autotune.report.pages.page import Section, count, escape, percent, ratio, time_us
from autotune.report.pages.parameters import (
    ParameterCost,
    cost_figure,
    parameter_costs,
    parameter_section,
)
from autotune.report.pages.roofline import Roofline, roofline, roofline_figure, roofline_section
from autotune.report.pages.search import (
    SearchStep,
    failures,
    search_figure,
    search_section,
    search_steps,
    stop_sentence,
)
from autotune.report.record import difference
from autotune.report.selection import Selection
from autotune.report.trials import Subject, TrialTable, subject_of, table_of


@dataclass(frozen=True, kw_only=True)
class Result:
    """A problem or a call of a user kernel, and how fast it runs.

    Attributes:
        title: the problem or call.
        device: the device's name.
        evidence: evidence of the times.
        family: the winner's kernel family.
        tflops: TFLOP/s; None for a user kernel.
        roofline_share: the least hot time of the roofline over the time, for which what L2 holds is
            not moved again; None for a user kernel.
        cold_roofline_share: the least time with every matrix moved once over the cold time of the
            best cold configuration; None for a user kernel, or if none was measured.
        over_hot, over_cold: the vendor baseline's times over the winner's (above 1 the winner is
            faster); None if it was not timed.
        date: when the record was saved, in ISO 8601.
        changed: driver, compiler or kernel sources of this machine that changed since; None if
            nothing did.
        stale: `changed` if it includes the kernel sources, else None.
        interrupted: whether the search ended before its limits, so that it is not final.
    """

    title: str
    device: str
    evidence: Evidence
    family: str
    tflops: float | None
    roofline_share: float | None
    cold_roofline_share: float | None = None
    over_hot: float | None = None
    over_cold: float | None = None
    date: str = ""
    changed: str | None = None
    stale: str | None = None
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class Headline(Result):
    """The winner of a record.

    Attributes:
        config: the winner as text.
        time_us, spread_us: median hot time and half the distance between the quartiles.
        samples: number of hot samples.
        cold_us: median time with L2 flushed; None if not measured.
        peak_share: share of the precision's peak; None for a user kernel.
        vendor: the vendor baseline's label.
        vendor_us: its time; None if it was not timed.
        vendor_result: the outcome of verifying it; empty if nothing was measured.
        occupancy, limiter: resident warps as a share of an SM's, and what limits them.
        why: a sentence that says why this configuration won.
    """

    config: str
    time_us: float
    spread_us: float
    samples: int
    cold_us: float | None
    peak_share: float | None
    vendor: str
    vendor_us: float | None
    vendor_result: str
    occupancy: float
    limiter: str
    why: str


def result_fields(record: TuningRecord, today: Origin) -> dict[str, Any]:
    """The fields of a `Result` from a record; `today` is what this machine would measure with."""
    best, problem = record.best, record.problem if isinstance(record, Record) else None
    return {
        "title": record.title,
        "device": record.device.name,
        "evidence": record.evidence,
        "family": best.config.family,
        "tflops": problem.speed(best.measurement.time_us) / 1e12 if problem else None,
        "roofline_share": roofline_share(record, best, HOT),
        "cold_roofline_share": roofline_share(record, record.best_cold, COLD),
        "over_hot": over_vendor(record, best, HOT),
        "over_cold": over_vendor(record, record.best_cold, COLD),
        "date": record.provenance.date,
        "changed": changes(record, today),
        "stale": stale(record, today),
        "interrupted": record.provenance.interrupted,
    }


def headline(subject: Subject, today: Origin) -> Headline:
    """The headline of a record; `today` is what this machine would measure with."""
    record, problem = subject.record, subject.problem
    best = record.best
    measured = best.measurement
    speed = problem.speed(measured.time_us) if problem else 0.0
    unverified = isinstance(record, KernelRecord) and record.verified == NOT_VERIFIED
    return Headline(
        **result_fields(record, today),
        config=str(best.config),
        time_us=measured.time_us,
        spread_us=measured.spread_us,
        samples=measured.samples,
        cold_us=measured.cold_us,
        peak_share=speed / record.device.peak(problem.compute) if problem else None,
        vendor=vendor(problem.compute) if problem else "",
        vendor_us=record.baseline.time_us if record.baseline else None,
        vendor_result=record.vendor_result,
        occupancy=best.occupancy,
        limiter=best.limiter,
        why="Its results were not verified. " * unverified + why_it_won(record.entries, best),
    )


def roofline_share(record: TuningRecord, entry: Entry | None, objective: Objective) -> float | None:
    """The roofline's least time over an entry's time, each hot or each cold: L2 serves hot inputs.

    None for a user kernel, or if the time is unknown.
    """
    time_us = us_of(entry.measurement if entry else None, objective)
    if time_us is None or not isinstance(record, Record):
        return None
    return objective.least_seconds(record.problem, record.device) * 1e6 / time_us


@dataclass(frozen=True)
class Leader:
    """An entry of a record: its time with the spread, the loss against the fastest (0.05 is 5 %
    longer), its time with L2 flushed, and the parameters in which it differs from the winner."""

    config: str
    time_us: float
    spread_us: float
    loss: float
    cold_us: float | None
    occupancy: float
    limiter: str
    registers: int
    shared: int
    differs: str


def leaders(subject: Subject) -> tuple[Leader, ...]:
    """The record's entries, fastest first."""
    entries = sorted(subject.record.entries, key=lambda entry: entry.measurement.time_us)
    fastest, best = entries[0].measurement.time_us, subject.record.best
    return tuple(
        Leader(
            config=str(entry.config),
            time_us=entry.measurement.time_us,
            spread_us=entry.measurement.spread_us,
            loss=entry.measurement.time_us / fastest - 1,
            cold_us=entry.measurement.cold_us,
            occupancy=entry.occupancy,
            limiter=entry.limiter,
            registers=entry.resources.registers,
            shared=entry.resources.shared,
            differs="the winner" if entry == best else difference(entry.config, best.config),
        )
        for entry in entries
    )


@dataclass(frozen=True)
class Analysis:
    """The data of a record's report.

    Attributes:
        source: source of the trials: a trial `log`; `record` if there are none.
        note: why there are no trials; empty if there are.
        headline: the winner.
        steps: the trials in their order; none if the record stands alone.
        failures: failed trials by stage.
        stop: a sentence on where the search stopped.
        roofline: None for a user kernel.
        costs: cost of each parameter's values.
        residency: None where the rules of the device are unknown.
        leaders: the record's entries.
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
    residency: Residency | None
    leaders: tuple[Leader, ...]
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

    def page(self) -> str:
        """The text of the page.

        Raises:
            MissingError: if plotly is not installed or is too old.
        """
        top = self.headline
        trials = {
            **asdict(self.trials),
            "caption": "All trials, in the order of the search",
            "file": "trials.csv",
        }
        return page.pictures_page(
            f"{top.title} on {top.device}",
            tuple(_sections(self)),
            head=_head(self),
            figures=self.figures(),
            tables={"trials": trials} if self.steps else {},
            remark=f"Saved {local(top.date)}.",
        )

    def figures(self) -> dict[str, Figure]:
        """The pictures of a record by name: those that it has data for."""
        top = self.headline
        vendor_us, vendor = top.vendor_us, top.vendor
        figures: dict[str, Figure] = {}
        if self.steps:
            figures["search"] = search_figure(self.steps, top.config, vendor_us, vendor)
        if self.roofline is not None:
            figures["roofline"] = roofline_figure(self.roofline)
        if self.costs:
            figures["parameters"] = cost_figure(self.costs)
        if self.residency is not None:
            for curve in self.residency.curves:
                figures[f"occupancy-{curve.resource}"] = curve_figure(curve)
        return figures


def analysis_of(selection: Selection, store: Store) -> Analysis:
    """The analysis of a single record, beside what this machine measures with."""
    (record,) = selection.records
    return analysed(subject_of(record, store.root), targets.here())


def analysed(subject: Subject, today: Origin) -> Analysis:
    """The analysis of a record; `today` is what this machine would measure with."""
    return Analysis(
        source="log" if subject.trials else "record",
        note=subject.note,
        headline=headline(subject, today),
        steps=search_steps(subject),
        failures=failures(subject),
        stop=stop_sentence(subject),
        roofline=roofline(subject),
        costs=parameter_costs(subject),
        residency=residency(subject),
        leaders=leaders(subject),
        trials=table_of([row.trial for row in subject.trials], subject.problem),
    )


_EVIDENCE = {
    "measured": ("good", "measured", "timed on the device"),
    "replayed": ("warn", "replayed", "from a recording of the device"),
    "predicted": ("bad", "predicted", "by the cost model; nothing ran"),
}


def _head(analysis: Analysis) -> str:
    top = analysis.headline
    kind, evidence, meaning = _EVIDENCE[top.evidence]
    badge = f'<span class="badge {kind}">{evidence}</span>'
    states = [f"Stale: {top.stale}."] if top.stale else []
    if top.interrupted:
        states.append("The search was interrupted, so this is not its final result.")
    return (
        f"<p>{badge} {meaning}. Saved {escape(local(top.date))}.</p>"
        + "".join(page.paragraph(state, "warn") for state in states)
        + (page.paragraph(f"Measured with {top.changed}.") if top.changed != top.stale else "")
        + page.facts(_facts(top))
        + f"<p>Winner: <code>{page.breakable(top.config)}</code></p><p>{escape(top.why)}</p>"
        + (
            page.paragraph(f"{analysis.note[0].upper()}{analysis.note[1:]}.", "warn")
            if analysis.note
            else ""
        )
    )


def _facts(top: Headline) -> Iterator[tuple[str, str, str]]:
    spread = f"± {time_us(top.spread_us)}, {count(top.samples)} samples" if top.samples else ""
    yield "time, hot", time_us(top.time_us), spread
    if top.cold_us is not None:
        yield "time, cold", time_us(top.cold_us), "L2 flushed"
    if top.tflops is not None:
        yield "TFLOP/s", f"{top.tflops:,.1f}", f"{percent(top.peak_share)} of the peak"
        yield (
            "share of the roofline, hot",
            percent(top.roofline_share),
            "without the data that L2 holds",
        )
        if top.cold_roofline_share is not None:
            share = percent(top.cold_roofline_share)
            yield "share of the roofline, cold", share, "every matrix moved once"
    if top.over_hot is not None:
        takes = f"{top.vendor} takes {time_us(top.vendor_us)}"
        checked = f"{takes}; {top.vendor_result}" if top.vendor_result else takes
        yield f"over {top.vendor}, hot", ratio(top.over_hot), checked
    elif top.vendor_result:
        yield f"over {top.vendor}, hot", "none", top.vendor_result
    if top.over_cold is not None:
        yield f"over {top.vendor}, cold", ratio(top.over_cold), "L2 flushed"
    if top.limiter == OWN:
        yield "resources", OWN, ""
    else:
        yield "occupancy", percent(top.occupancy), f"limited by {top.limiter}"


def _sections(analysis: Analysis) -> Iterator[Section]:
    winner = analysis.headline.config
    yield search_section(analysis.steps, analysis.failures, analysis.stop, winner)
    if analysis.roofline is not None:
        yield roofline_section()
    if analysis.costs:
        yield parameter_section(analysis.costs)
    if analysis.residency is not None:
        yield residency_section(analysis.residency, analysis.headline.limiter)
    yield _leader_section(analysis.leaders)
    if analysis.steps:
        yield Section("trials", "All trials", '<div id="table-trials"></div>')


def _leader_section(leaders: Sequence[Leader]) -> Section:
    rows = [
        (
            number,
            time_us(row.time_us),
            f"± {time_us(row.spread_us)}",
            percent(row.loss, 2),
            time_us(row.cold_us),
            percent(row.occupancy, 0),
            row.limiter,
            row.registers,
            count(row.shared),
            row.differs,
        )
        for number, row in enumerate(leaders, start=1)
    ]
    names = ("rank", "time, hot", "spread", "slower", "time, cold", "occupancy")
    headings: dict[str, page.Kind] = dict.fromkeys(names, "number")
    headings |= {"limiter": "word", "registers a thread": "number"}
    headings |= {"shared bytes a block": "number"}
    headings["differs from the winner in"] = "prose"
    caption = "The record's configurations, timed interleaved in the final round"
    return Section("leaders", "Leaders", page.table(headings, rows, caption))
