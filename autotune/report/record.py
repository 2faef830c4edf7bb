"""A record or an answer to a look-up, as a screenful of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.families.config import Config
from autotune.families.source_text import shortened
from autotune.lookup.answer import Answer, recorded_objective
from autotune.measure.measurement import Evidence, Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.records import Entry, FamilyRecord, KernelRecord, Provenance, Record, TuningRecord
from autotune.records.codec import encode
from autotune.records.kernel_record import NOT_VERIFIED
from autotune.report import joules, over_vendor, precision, us, us_of, vendor
from autotune.report.tables import ConfigText, FittedTable, OneLine, Titled

RUNNERS_UP = 5

Facts = list[tuple[str, str]]
"""Labels with their texts."""

_STYLES = {"measured": "bold green", "replayed": "bold yellow", "predicted": "bold red"}

_SOURCES = {"range": "tuned at", "nearest": "nearest", "related": "related"}
"""The label of the record that an answer takes from another problem or device."""


def render(result: TuningRecord | Answer, objective: Objective = HOT) -> RenderableType:
    """At most 24 lines of 80 columns for up to 16 parameters; the first names the evidence.

    A record shows its best by the objective.
    """
    if isinstance(result, KernelRecord):
        title = f"{result.title} on {result.device.name}"
        return _screen(title, result, result.best.config, _kernel_facts(result))
    assert isinstance(result, (Record, Answer))
    answer = _answer(result, objective)
    title, facts = f"{_subject(answer)} on {answer.device.name}", _facts(answer)
    if (record := _own_record(answer)) is not None:
        return _screen(title, record, answer.config, facts)
    notes = filter(None, (answer.note, answer.advice))
    return Group(
        _titled(title, answer.evidence),
        _grid(facts),
        *(Text(note, style="yellow") for note in notes),
    )


def _screen(title: str, record: TuningRecord, best: Config, facts: Facts) -> RenderableType:
    parts = [_titled(title, record.evidence), _grid(facts)]
    if len(record.entries) > 1:
        parts += [Text(), _runners_up(best, record)]
    return Group(*parts, Text(), Text(_provenance(record.provenance), style="dim"))


def _grid(facts: Facts) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in facts:
        grid.add_row(label, ConfigText(value))
    return grid


def to_json(result: Record | Answer, objective: Objective = HOT) -> dict[str, object]:
    """The content of `render` in full: times in microseconds, shares and ratios as fractions.

    `ratio` is cuBLAS's time over the kernel's (above 1 the kernel is faster); these times and
    `vendor` are of `objective`. `vendor` is whether cuBLAS is faster and not tied, so that `matmul`
    calls it. `cublas_result` is the outcome of verifying it (`TuningRecord.vendor_result`).
    `best_cold` is the best configuration with L2 flushed, with `cold_us` and `cold_ratio`.
    `joules`, `power_w` and `clock_mhz` belong to a run of the kernel, `cublas_joules` to one of
    cuBLAS; `least_energy` is the configuration that takes the fewest joules.
    `expected_loss` is relative to full tuning, `expected_cublas_loss` to cuBLAS. `family`
    is the family that was tuned alone, `order` the order of summation of a batch-invariant range.
    `ties` are the other configurations whose hot times differ by at most 0.5 % from that of the
    fastest. Unknown values are None.
    """
    answer = _answer(result, objective)
    rate = None if answer.time_us is None else answer.problem.speed(answer.time_us)
    record = _own_record(answer)
    baseline = record.baseline if record else None
    cublas = us_of(baseline, answer.objective)
    cold = record.best_cold if record else None
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
        "cublas_result": (record and record.vendor_result) or None,
        "ratio": cublas / answer.time_us if cublas and answer.time_us else None,
        "vendor": answer.vendor,
        "expected_loss": answer.expected_loss,
        "expected_cublas_us": answer.vendor_us,
        "expected_cublas_loss": answer.vendor_loss,
        "best_cold": str(cold.config) if cold else None,
        "cold_us": cold.measurement.cold_us if cold else None,
        "cold_ratio": over_vendor(record, cold, COLD) if record else None,
        **_energy_json(answer, record),
        "ties": [str(entry.config) for entry in record.ties] if record else [],
        "note": "" if record else answer.note,
        "interrupted": record is not None and record.provenance.interrupted,
        "family": record.family if isinstance(record, FamilyRecord) else None,
        "order": answer.record.order if isinstance(answer.record, FamilyRecord) else None,
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
        time_us=us_of(best.measurement, objective),
        note="",
        expected_loss=None if predicted else 0.0,
        vendor=result.vendor_wins_by(objective),
        objective=objective,
    )


def _subject(answer: Answer) -> str:
    if isinstance(answer.record, FamilyRecord):
        return f"{answer.problem} {answer.record.option}"
    return str(answer.problem)


def _own_record(answer: Answer) -> Record | None:
    """The record if it is of the problem and device asked about; None if it is a neighbour's."""
    return answer.record if answer.how in ("exact", "predicted") else None


def _facts(answer: Answer) -> Facts:
    facts: Facts = []
    if answer.time_us is not None:
        facts += _speed(answer, answer.time_us)
    facts.append(("config", str(answer.config)))
    entry = answer.entry
    if entry is not None:
        facts += _occupancy_facts(entry)
        if (record := _own_record(answer)) is not None:
            name = vendor(answer.problem.compute)
            facts += _energy_facts(entry.measurement, record.baseline, name)
            facts += _least_energy_facts(record, answer.config)
            facts += _accuracy_facts(entry) + _best_by_second(answer, record)
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


def _speed(answer: Answer, time_us: float) -> Facts:
    rate = answer.problem.speed(time_us)
    compute = answer.problem.compute
    share = rate / answer.device.peak(compute)
    record = _own_record(answer)
    measured = answer.entry.measurement if record and answer.entry else None
    estimate = answer.objective.estimate(measured) if measured else None
    spread = f" +- {us(estimate.spread_us)}" if estimate and estimate.spread_us else ""
    second = answer.objective.second
    second_us = us_of(measured, second)
    facts = [
        (
            answer.objective.label,
            f"{us(time_us)}{spread}" + (f", {second} {us(second_us)}" if second_us else ""),
        ),
        ("speed", f"{rate / 1e12:.2f} TFLOP/s, {share:.1%} of peak {precision(compute)}"),
    ]
    baseline = record.baseline if record else None
    if (vendor_us := us_of(baseline, answer.objective)) is not None:
        wins = answer.vendor and answer.objective.is_time
        faster = ": faster, `matmul` calls it" if wins else ""
        second_vendor_us = us_of(baseline, second)
        times, speed = us(vendor_us), f"{vendor_us / time_us:.1%} of its speed"
        if second_us and second_vendor_us:
            times += f", {second} {us(second_vendor_us)}"
            speed += f", {second} {second_vendor_us / second_us:.1%}"
        facts.append((vendor(compute), f"{times}; {speed}{faster}"))
    if record and record.vendor_result:
        facts.append(("vendor" if baseline else vendor(compute), record.vendor_result))
    if record and record.library:
        facts.append(("best algorithm", record.library_text))
    return facts


def _best_by_second(answer: Answer, record: Record) -> Facts:
    """The best entry by the second objective, with its share of cuBLAS's speed, if it is not the
    answer."""
    second = answer.objective.second
    best = record.best_by(second)
    time_us, vendor_us = us_of(best.measurement, second), us_of(record.baseline, second)
    if time_us is None or best.config == answer.config:
        return []
    name = vendor(answer.problem.compute)
    share = f", {vendor_us / time_us:.1%} of {name}'s speed" if vendor_us else ""
    return [(f"best {second}", f"{us(time_us)}{share}: {difference(best.config, answer.config)}")]


def _neighbour(answer: Answer, record: Record) -> str:
    where = "" if record.device.name == answer.device.name else f" on {record.device.name}"
    if (entry := answer.entry) is None:
        return f"{record.problem}{where}"
    time_us = entry.measurement.time_us
    rate = record.problem.speed(time_us) / 1e12
    return f"{record.problem}{where}: {us(time_us)}, {rate:.2f} TFLOP/s {record.evidence} there"


def _titled(text: str, evidence: Evidence) -> RenderableType:
    """A line with the evidence at its right end; below it where the line has no room."""
    return Titled(Text(text, style="bold"), Text(evidence.upper(), style=_STYLES[evidence]))


def _runners_up(best: Config, record: TuningRecord) -> FittedTable:
    table = FittedTable()
    ties = {entry.config for entry in record.ties} if best == record.best.config else set()
    speeds = ("TFLOP/s",) if isinstance(record, Record) else ()
    table.add("runner-up", *speeds, "regs", "shared", "occ.")
    table.add("differs in", kind="prose", worth=-0.5)
    followers = [entry for entry in record.entries if entry.config != best]
    for entry in followers[:RUNNERS_UP]:
        time_us, needed = entry.measurement.time_us, entry.resources
        resources = str(needed.registers), str(needed.shared), f"{entry.occupancy:.0%}"
        speed = (
            [f"{record.problem.speed(time_us) / 1e12:.2f}"] if isinstance(record, Record) else []
        )
        table.add_row(
            ("tied " if entry.config in ties else "") + us(time_us),
            *speed,
            *(("", "", "") if entry.library else resources),
            OneLine(difference(entry.config, best)),
        )
    return table


def _occupancy_facts(entry: Entry) -> Facts:
    resources = entry.resources
    if entry.library:
        return [("resources", entry.limiter)]
    return [
        (
            "block",
            f"{resources.threads} threads, {resources.registers} registers a thread, "
            f"{resources.shared} bytes shared, {resources.local} local",
        ),
        ("occupancy", f"{entry.occupancy:.1%}, bound by {entry.limiter}"),
    ]


def _energy_facts(measurement: Measurement, baseline: Measurement | None, vendor: str) -> Facts:
    energy = measurement.energy
    if energy is None:
        return []
    rival = baseline.energy if baseline else None
    beside = f"; {vendor} {joules(rival.joules)}" if rival else ""
    spread = f" +- {joules(energy.spread_j)}" if energy.spread_j else ""
    clock = f"{energy.power_w:.0f} W at {energy.clock_mhz:.0f} MHz"
    return [("energy", f"{joules(energy.joules)}{spread} a run, {clock}{beside}")]


def _least_energy_facts(record: TuningRecord, config: Config) -> Facts:
    least = record.best_energy
    if least is None or least.measurement.energy is None or least.config == config:
        return []
    amount = joules(least.measurement.energy.joules)
    return [("least energy", f"{amount}: {difference(least.config, config)}")]


def _accuracy_facts(entry: Entry) -> Facts:
    error, tolerance = entry.measurement.error, entry.measurement.tolerance
    if error is None or tolerance is None:
        return []
    return [("error", f"{error:.2e} largest, {tolerance:.2e} allowed")]


def difference(config: Config, best: Config) -> str:
    """The parameters in which a configuration differs from the best."""
    if config.family != best.family:
        return str(config)
    pairs = (pair for pair in config.params if pair not in best.params)
    return " ".join(f"{name}={value}" for name, value in pairs)


def _provenance(run: Provenance) -> str:
    driver = f"driver {run.driver}, " if run.driver else ""
    ended = "quick race, " if run.quick else "interrupted after " if run.interrupted else ""
    return (
        f"{run.date}, {ended}{run.trials} trials in {run.seconds:.0f} s, seed {run.seed}; "
        f"{driver}{run.compiler}, autotune {run.autotune}, source {shortened(run.source)}"
    )


def _verified(record: KernelRecord) -> str:
    """The configuration, or the other kernel of the source, that stood in for a reference, or that
    nothing was verified."""
    if record.verified == NOT_VERIFIED:
        return "not verified: the results were compared with nothing"
    own = record.verified.partition(":")[0] == record.best.config.family
    return f"against {record.verified}: no reference" if own else f"against {record.verified}"


def _kernel_facts(record: KernelRecord) -> Facts:
    best = record.best
    measured = best.measurement
    spread = f" +- {us(measured.spread_us)}" if measured.spread_us else ""
    cold = f", cold {us(measured.cold_us)}" if measured.cold_us else ""
    return [
        ("time", f"{us(measured.time_us)}{spread}{cold}"),
        *([] if best.score is None else [("objective", f"{best.score:.6g}")]),
        *((name, f"{value:.6g}") for name, value in best.metrics),
        *_energy_facts(measured, None, ""),
        *_least_energy_facts(record, best.config),
        ("config", str(best.config)),
        *(("launch", line) for line in record.step_lines),
        *_occupancy_facts(best),
        *_accuracy_facts(best),
        *([("verified", _verified(record))] if record.verified else []),
    ]
