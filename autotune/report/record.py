"""A record or an answer to a look-up, as a screenful of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.lookup.answer import Answer, recorded_objective
from autotune.measure.measurement import Measurement
from autotune.measure.objective import HOT, Objective
from autotune.records import Entry, FamilyRecord, OrderedRecord, Record
from autotune.records.codec import encode
from autotune.report import precision, vendor
from autotune.report.entries import (
    accuracy_facts,
    difference,
    energy_facts,
    least_energy_facts,
    occupancy_facts,
    provenance,
    runners_up,
    titled,
    us,
)
from autotune.report.tables import ConfigText

# The label of the record that an answer takes from another problem or device.
_SOURCES = {"range": "tuned at", "nearest": "nearest", "related": "related"}


def render(
    result: Record | Answer, objective: Objective = HOT, overall: Record | None = None
) -> RenderableType:
    """At most 24 lines of 80 columns for up to 16 parameters; the first names the evidence.

    Of a record it shows the best by the objective. `overall` is the record of all families beside
    that of one; its best follows in a line.
    """
    answer = _answer(result, objective)
    title = titled(f"{_subject(answer)} on {answer.device.name}", answer.evidence)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in (*_facts(answer), *_overall(answer, overall)):
        facts.add_row(label, ConfigText(value))
    record = _own_record(answer)
    if record is None:
        notes = filter(None, (answer.note, answer.advice))
        return Group(title, facts, *(Text(note, style="yellow") for note in notes))
    parts = [title, facts]
    if len(record.entries) > 1:
        parts += [Text(), runners_up(answer.config, record)]
    return Group(*parts, Text(), Text(provenance(record.provenance), style="dim"))


def to_json(
    result: Record | Answer, objective: Objective = HOT, overall: Record | None = None
) -> dict[str, object]:
    """The content of `render` in full: times in microseconds, shares and ratios as fractions.

    `ratio` is cuBLAS's time over the kernel's (above 1 the kernel is faster); these times and
    `vendor` are of `objective`. `vendor` is whether cuBLAS is faster and not tied, so that `matmul`
    calls it. `coldest` is the best configuration with L2 flushed, with `cold_us` and `cold_ratio`.
    `joules`, `power_w` and `clock_mhz` are those of a run of the kernel, `cublas_joules` of cuBLAS;
    `least_energy` is the configuration that takes the fewest joules. `regret` is the expected loss
    against full tuning. `family` is the one that was tuned alone, `order` the order of summation of
    a batch-invariant range, and `best_of_all` the best of the `overall` record. `ties` are the
    other configurations whose hot times differ by at most 0.5 % from that of the fastest. Unknown
    values are None.
    """
    answer = _answer(result, objective)
    rate = None if answer.time_us is None else answer.problem.speed(answer.time_us)
    record = _own_record(answer)
    baseline = record.baseline if record else None
    cublas = _us_of(baseline, answer.objective)
    coldest = record.best_cold if record else None
    cold_us = coldest.measurement.cold_us if coldest else None
    cublas_cold = baseline.cold_us if baseline else None
    return {
        "problem": str(answer.problem),
        "device": answer.device.name,
        "how": answer.how,
        "objective": str(answer.objective),
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
        "expected_cublas_us": answer.vendor_us,
        "cublas_regret": answer.vendor_loss,
        "coldest": str(coldest.config) if coldest else None,
        "cold_us": cold_us,
        "cold_ratio": cublas_cold / cold_us if cublas_cold and cold_us else None,
        **_energy_json(answer, record),
        "ties": [str(entry.config) for entry in record.ties] if record else [],
        "note": "" if record else answer.note,
        "interrupted": record is not None and record.provenance.interrupted,
        "family": record.family if isinstance(record, FamilyRecord) else None,
        "best_of_all": overall and _best_json(overall, answer.objective),
        "order": answer.record.order if isinstance(answer.record, OrderedRecord) else None,
        "record": encode(answer.record) if answer.record else None,
    }


def _energy_json(answer: Answer, record: Record | None) -> dict[str, object]:
    entry = answer.entry if record else None
    energy = entry.measurement.energy if entry else None
    baseline = record.baseline.energy if record and record.baseline else None
    least = record.best_energy if record else None
    return {
        "joules": energy and energy.joules,
        "power_w": energy and energy.power_w,
        "clock_mhz": energy and energy.clock_mhz,
        "cublas_joules": baseline and baseline.joules,
        "least_energy": str(least.config) if least else None,
    }


def _answer(result: Record | Answer, objective: Objective) -> Answer:
    if isinstance(result, Answer):
        return result
    objective = recorded_objective(result, objective)
    best = result.best_by(objective)
    predicted = result.evidence == "predicted"
    return Answer(
        problem=result.problem,
        device=result.device,
        config=best.config,
        how="predicted" if predicted else "exact",
        evidence=result.evidence,
        record=result,
        time_us=_us_of(best.measurement, objective),
        note="",
        expected_loss=None if predicted else 0.0,
        vendor=result.vendor_wins_by(objective),
        objective=objective,
    )


def _subject(answer: Answer) -> str:
    """The problem, with the family if that was tuned alone, or that it keeps an order."""
    if isinstance(answer.record, OrderedRecord):
        return f"{answer.problem} --batch-invariant"
    alone = isinstance(answer.record, FamilyRecord)
    return answer.record.title if alone and answer.record else str(answer.problem)


def _overall(answer: Answer, overall: Record | None) -> list[tuple[str, str]]:
    """The best of all families, and how much faster it is than the answer."""
    if overall is None or answer.time_us is None:
        return []
    objective = recorded_objective(overall, answer.objective)
    best = overall.best_by(objective)
    time_us = _us_of(best.measurement, objective)
    if time_us is None:
        return []
    gain = f"{answer.time_us / time_us:.2f} times as fast"
    return [("best of all", f"{us(time_us)}, {gain}, {overall.evidence}: {best.config}")]


def _best_json(overall: Record, objective: Objective) -> dict[str, object]:
    objective = recorded_objective(overall, objective)
    best = overall.best_by(objective)
    return {
        "config": str(best.config),
        "time_us": _us_of(best.measurement, objective),
        "evidence": overall.evidence,
    }


def _own_record(answer: Answer) -> Record | None:
    """The record if it is of the problem and device asked about; None if it is a neighbour's."""
    return answer.record if answer.how in ("exact", "predicted") else None


def _facts(answer: Answer) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if answer.time_us is not None:
        facts += _speed(answer, answer.time_us)
    facts.append(("config", str(answer.config)))
    entry = answer.entry
    if entry is not None:
        facts += occupancy_facts(entry)
        if _own_record(answer) is not None:
            facts += _energy(answer, entry) + accuracy_facts(entry) + _best_by_second(answer)
    if answer.record is not None and _own_record(answer) is None:
        facts.append((_SOURCES.get(answer.how, answer.how), _neighbour(answer, answer.record)))
    if losses := [*_losses(answer)]:
        facts.append(("expected loss", ", ".join(losses)))
    return facts


def _losses(answer: Answer) -> Iterator[str]:
    if answer.expected_loss:
        yield f"{answer.expected_loss:.0%} against full tuning"
    if answer.vendor_loss is not None and answer.vendor_us is not None:
        loss = f"{answer.vendor_loss:.0%}" if answer.vendor_loss > 0 else "none"
        name = vendor(answer.problem.compute)
        yield f"{loss} against {name}, which is expected to take {us(answer.vendor_us)}"


def _speed(answer: Answer, time_us: float) -> list[tuple[str, str]]:
    rate = answer.problem.speed(time_us)
    compute = answer.problem.compute
    share = rate / answer.device.peak(compute)
    record = _own_record(answer)
    measured = answer.entry.measurement if record and answer.entry else None
    estimate = answer.objective.estimate(measured) if measured else None
    spread = f" +- {us(estimate.spread_us)}" if estimate and estimate.spread_us else ""
    second = answer.objective.second
    second_us = _us_of(measured, second)
    facts = [
        (
            answer.objective.label,
            f"{us(time_us)}{spread}" + (f", {second} {us(second_us)}" if second_us else ""),
        ),
        ("speed", f"{rate / 1e12:.2f} TFLOP/s, {share:.1%} of peak {precision(compute)}"),
    ]
    baseline = record.baseline if record else None
    if (vendor_us := _us_of(baseline, answer.objective)) is not None:
        wins = answer.vendor and answer.objective.is_time
        faster = ": faster, `matmul` calls it" if wins else ""
        second_vendor_us = _us_of(baseline, second)
        times, speed = us(vendor_us), f"{vendor_us / time_us:.1%} of its speed"
        if second_us and second_vendor_us:
            times += f", {second} {us(second_vendor_us)}"
            speed += f", {second} {second_vendor_us / second_us:.1%}"
        facts.append((vendor(compute), f"{times}; {speed}{faster}"))
    elif record and record.provenance.baseline_fault:
        facts.append((vendor(compute), f"refused: {record.provenance.baseline_fault}"))
    return facts


def _energy(answer: Answer, entry: Entry) -> list[tuple[str, str]]:
    """The energy of the answer, and the configuration of the least if that is another."""
    baseline = answer.record.baseline if answer.record else None
    facts = energy_facts(entry.measurement, baseline, vendor(answer.problem.compute))
    return facts + (least_energy_facts(answer.record, answer.config) if answer.record else [])


def _best_by_second(answer: Answer) -> list[tuple[str, str]]:
    """The best entry by the second objective, with its share of cuBLAS's speed, if it is not the
    answer."""
    second = answer.objective.second
    best = answer.record.best_by(second) if answer.record else None
    time_us = _us_of(best.measurement if best else None, second)
    if best is None or time_us is None or best.config == answer.config:
        return []
    vendor_us = _us_of(answer.record.baseline if answer.record else None, second)
    name = vendor(answer.problem.compute)
    share = f", {vendor_us / time_us:.1%} of {name}'s speed" if vendor_us else ""
    return [(f"best {second}", f"{us(time_us)}{share}: {difference(best.config, answer.config)}")]


def _us_of(measurement: Measurement | None, objective: Objective) -> float | None:
    """Microseconds of the objective; None if unknown."""
    estimate = objective.estimate(measurement) if measurement else None
    return estimate.time_us if estimate else None


def _neighbour(answer: Answer, record: Record) -> str:
    where = "" if record.device.name == answer.device.name else f" on {record.device.name}"
    if (entry := answer.entry) is None:
        return f"{record.problem}{where}"
    time_us = entry.measurement.time_us
    rate = record.problem.speed(time_us) / 1e12
    return f"{record.problem}{where}: {us(time_us)}, {rate:.2f} TFLOP/s {record.evidence} there"
