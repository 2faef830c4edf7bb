"""Parts of the texts of all records: the title, facts of an entry, the runners-up, the run."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from autotune.families.config import Config
from autotune.families.source_text import shortened
from autotune.measure.measurement import Evidence, Measurement
from autotune.records import Entry, Provenance, Record, TuningRecord
from autotune.report.tables import FittedTable, OneLine, Titled

RUNNERS_UP = 5

Facts = list[tuple[str, str]]
"""Labels with their texts."""

_STYLES = {"measured": "bold green", "replayed": "bold yellow", "predicted": "bold red"}


def titled(text: str, evidence: Evidence) -> RenderableType:
    """A line with the evidence at its right end; below it where the line has no room."""
    return Titled(Text(text, style="bold"), Text(evidence.upper(), style=_STYLES[evidence]))


def runners_up(best: Config, record: TuningRecord) -> FittedTable:
    """The entries that follow the best, each with the parameters in which it differs."""
    table = FittedTable()
    ties = {entry.config for entry in record.ties} if best == record.best.config else set()
    speeds = ("TFLOP/s",) if isinstance(record, Record) else ()
    for heading in ("runner-up", *speeds, "regs", "shared", "occ."):
        table.add(heading)
    table.add("differs in", "prose", worth=-0.5)
    followers = [entry for entry in record.entries if entry.config != best]
    for entry in followers[:RUNNERS_UP]:
        time_us = entry.measurement.time_us
        speed = (
            [f"{record.problem.speed(time_us) / 1e12:.2f}"] if isinstance(record, Record) else []
        )
        table.add_row(
            ("tied " if entry.config in ties else "") + us(time_us),
            *speed,
            str(entry.resources.registers),
            str(entry.resources.shared),
            f"{entry.occupancy:.0%}",
            OneLine(difference(entry.config, best)),
        )
    return table


def occupancy_facts(entry: Entry) -> list[tuple[str, str]]:
    """The resources of a block, and the resident warps that follow."""
    resources = entry.resources
    return [
        (
            "block",
            f"{resources.threads} threads, {resources.registers} registers a thread, "
            f"{resources.shared} bytes shared, {resources.local} local",
        ),
        ("occupancy", f"{entry.occupancy:.1%}, bound by {entry.limiter}"),
    ]


def energy_facts(measurement: Measurement, baseline: Measurement | None, vendor: str) -> Facts:
    """The energy of a run, with the power and the clock; nothing if it was not measured."""
    energy = measurement.energy
    if energy is None:
        return []
    rival = baseline.energy if baseline else None
    beside = f"; {vendor} {joules(rival.joules)}" if rival else ""
    spread = f" +- {joules(energy.spread_j)}" if energy.spread_j else ""
    clock = f"{energy.power_w:.0f} W at {energy.clock_mhz:.0f} MHz"
    return [("energy", f"{joules(energy.joules)}{spread} a run, {clock}{beside}")]


def least_energy_facts(record: TuningRecord, config: Config) -> Facts:
    """The configuration of the least energy, if that is another one."""
    least = record.best_energy
    if least is None or least.measurement.energy is None or least.config == config:
        return []
    amount = joules(least.measurement.energy.joules)
    return [("least energy", f"{amount}: {difference(least.config, config)}")]


def accuracy_facts(entry: Entry) -> list[tuple[str, str]]:
    """The error and its bound; nothing if nothing ran."""
    error, tolerance = entry.measurement.error, entry.measurement.tolerance
    if error is None or tolerance is None:
        return []
    return [("error", f"{error:.2e} largest, {tolerance:.2e} allowed")]


def difference(config: Config, best: Config) -> str:
    """The parameters in which a configuration differs from the best."""
    if config.family != best.family:
        return str(config)
    differing = tuple(pair for pair in config.params if pair not in best.params)
    return pairs(Config(config.family, differing))


def provenance(run: Provenance) -> str:
    """The run that saved a record, in a line or two."""
    driver = f"driver {run.driver}, " if run.driver else ""
    ended = "quick race, " if run.quick else "interrupted after " if run.interrupted else ""
    return (
        f"{run.date}, {ended}{run.trials} trials in {run.seconds:.0f} s, seed {run.seed}; "
        f"{driver}{run.compiler}, autotune {run.autotune}, source {shortened(run.source)}"
    )


def pairs(config: Config) -> str:
    """Such as `tile_width=16 specialized=1`."""
    return " ".join(f"{name}={value}" for name, value in config.params)


def joules(amount: float) -> str:
    """Such as `0.1234 J`, `12.34 mJ` or `123.4 uJ`: four digits."""
    for unit, factor in (("J", 1.0), ("mJ", 1e-3)):
        if amount >= 0.1 * factor:
            return f"{amount / factor:.4g} {unit}"
    return f"{amount * 1e6:.4g} uJ"


def us(time_us: float) -> str:
    """Microseconds with four to six digits."""
    return f"{time_us:.1f} us" if time_us >= 100 else f"{time_us:.2f} us"
