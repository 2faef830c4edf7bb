"""A record, or the answer to a look-up, in a screenful and as JSON."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.families.config import Config
from autotune.lookup.answer import Answer
from autotune.records import Entry, Provenance, Record
from autotune.records.codec import encode
from autotune.report import precision, vendor

RUNNERS_UP = 5

# How answers from another problem's record name it.
_SOURCES = {"range": "tuned at", "nearest": "nearest", "related": "related"}
_STYLES = {"measured": "bold green", "replayed": "bold yellow", "predicted": "bold red"}


def render(found: Record | Answer) -> RenderableType:
    """At most 24 lines of 80 columns for up to 16 parameters; the evidence is in the first."""
    answer = _answer(found)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in _facts(answer):
        facts.add_row(label, Text(value))
    record = _own_record(answer)
    if record is None:
        return Group(_title(answer), facts, Text(answer.note, style="yellow"))
    parts = [_title(answer), facts]
    if len(record.entries) > 1:
        parts += [Text(), _runners_up(answer.config, record)]
    return Group(*parts, Text(), Text(_provenance(record.provenance), style="dim"))


def to_json(found: Record | Answer) -> dict[str, object]:
    """What `render` shows, in full: times in microseconds, shares and ratios as fractions.

    `ratio` is cuBLAS's time over ours (above 1 is faster than cuBLAS), `vendor` whether cuBLAS is
    the faster by more than the spreads, so that `matmul` calls it, `regret` the loss against full
    tuning that is expected. What is unknown is None.
    """
    answer = _answer(found)
    rate = None if answer.time_us is None else answer.problem.speed(answer.time_us)
    record = _own_record(answer)
    cublas = record.baseline.time_us if record and record.baseline else None
    coldest = record.coldest if record else None
    return {
        "problem": str(answer.problem),
        "device": answer.device.name,
        "how": answer.how,
        "evidence": answer.evidence,
        "config": str(answer.config),
        "params": answer.config.values,
        "time_us": answer.time_us,
        "tflops": rate and rate / 1e12,
        "peak_share": rate and rate / answer.device.peak(answer.problem.compute),
        "cublas_us": cublas,
        "ratio": cublas / answer.time_us if cublas and answer.time_us else None,
        "vendor": answer.vendor,
        "regret": answer.expected_loss,
        "coldest": str(coldest.config) if coldest else None,
        "cold_us": coldest.measurement.cold_us if coldest else None,
        "note": "" if record else answer.note,
        "record": encode(answer.record) if answer.record else None,
    }


def _answer(found: Record | Answer) -> Answer:
    if isinstance(found, Answer):
        return found
    best = found.best
    return Answer(
        problem=found.problem,
        device=found.device,
        config=best.config,
        how="predicted" if found.evidence == "predicted" else "exact",
        evidence=found.evidence,
        record=found,
        time_us=best.measurement.time_us,
        note="",
        expected_loss=None if found.evidence == "predicted" else 0.0,
        vendor=found.vendor_wins,
    )


def _own_record(answer: Answer) -> Record | None:
    """The record, if it is of what was asked and not of a neighbour or another GPU."""
    return answer.record if answer.how in ("exact", "predicted") else None


def _title(answer: Answer) -> RenderableType:
    title = Table.grid(expand=True)
    title.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    title.add_column(no_wrap=True, justify="right")
    label = Text(answer.evidence.upper(), style=_STYLES[answer.evidence])
    title.add_row(Text(f"{answer.problem} on {answer.device.name}", style="bold"), label)
    return title


def _facts(answer: Answer) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if answer.time_us is not None:
        facts += _speed(answer, answer.time_us)
    facts.append(("config", f"{answer.config.family} {_pairs(answer.config)}"))
    entry = answer.entry
    if entry is not None:
        facts += _residence(entry)
        if _own_record(answer) is not None:
            facts += _accuracy(entry) + _coldest(answer)
    if answer.record is not None and _own_record(answer) is None:
        facts.append((_SOURCES.get(answer.how, answer.how), _neighbour(answer, answer.record)))
    if answer.expected_loss:
        facts.append(("expected loss", f"{answer.expected_loss:.0%} against full tuning"))
    return facts


def _speed(answer: Answer, time_us: float) -> list[tuple[str, str]]:
    rate = answer.problem.speed(time_us)
    compute = answer.problem.compute
    share = rate / answer.device.peak(compute)
    record = _own_record(answer)
    own = answer.entry if record else None
    spread = f" +- {_us(own.measurement.spread_us)}" if own and own.measurement.spread_us else ""
    cold = own.measurement.cold_us if own else None
    facts = [
        ("time", f"{_us(time_us)}{spread}" + (f", cold {_us(cold)}" if cold else "")),
        ("speed", f"{rate / 1e12:.2f} TFLOP/s, {share:.1%} of peak {precision(compute)}"),
    ]
    if record is not None and record.baseline is not None:
        theirs = record.baseline.time_us
        faster = ": faster, `matmul` calls it" if answer.vendor else ""
        speed = f"{_us(theirs)}; {theirs / time_us:.1%} of its speed{faster}"
        facts.append((vendor(compute), speed))
    return facts


def _residence(entry: Entry) -> list[tuple[str, str]]:
    took = entry.resources
    return [
        (
            "block",
            f"{took.threads} threads, {took.registers} registers a thread, {took.shared} bytes "
            f"shared, {took.local} local",
        ),
        ("occupancy", f"{entry.occupancy:.1%}, bound by {entry.limiter}"),
    ]


def _accuracy(entry: Entry) -> list[tuple[str, str]]:
    measured = entry.measurement
    if measured.error is None or measured.tolerance is None:
        return []
    return [("error", f"{measured.error:.2e} largest, {measured.tolerance:.2e} allowed")]


def _coldest(answer: Answer) -> list[tuple[str, str]]:
    """The fastest with a flushed L2, if it is another one."""
    found = answer.record.coldest if answer.record else None
    if found is None or found.config == answer.config or found.measurement.cold_us is None:
        return []
    return [
        ("coldest", f"{_us(found.measurement.cold_us)}: {_difference(found.config, answer.config)}")
    ]


def _neighbour(answer: Answer, record: Record) -> str:
    where = "" if record.device.name == answer.device.name else f" on {record.device.name}"
    if (entry := answer.entry) is None:
        return f"{record.problem}{where}"
    time_us = entry.measurement.time_us
    rate = record.problem.speed(time_us) / 1e12
    return f"{record.problem}{where}: {_us(time_us)}, {rate:.2f} TFLOP/s {record.evidence} there"


def _runners_up(best: Config, record: Record) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("runner-up", "TFLOP/s", "regs", "shared", "occ."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("differs in")
    others = [entry for entry in record.entries if entry.config != best]
    for entry in others[:RUNNERS_UP]:
        time_us = entry.measurement.time_us
        table.add_row(
            _us(time_us),
            f"{record.problem.speed(time_us) / 1e12:.2f}",
            str(entry.resources.registers),
            str(entry.resources.shared),
            f"{entry.occupancy:.0%}",
            # The cell, not the column, must not wrap: only columns that may wrap give way.
            Text(_difference(entry.config, best), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _difference(config: Config, best: Config) -> str:
    if config.family != best.family:
        return f"{config.family} {_pairs(config)}"
    return _pairs(Config(config.family, tuple(p for p in config.params if p not in best.params)))


def _provenance(made: Provenance) -> str:
    driver = f"driver {made.driver}, " if made.driver else ""
    return (
        f"{made.date}, {made.trials} trials in {made.seconds:.0f} s, seed {made.seed}; "
        f"{driver}{made.compiler}, autotune {made.autotune}, source {made.source[:12]}"
    )


def _pairs(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config.params)


def _us(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us >= 100 else f"{time_us:.2f} us"
