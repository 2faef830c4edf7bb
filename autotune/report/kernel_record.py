"""The record of a user kernel as a screenful of text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.records import KernelRecord
from autotune.report.entries import (
    accuracy_facts,
    energy_facts,
    least_energy_facts,
    occupancy_facts,
    provenance,
    runners_up,
    titled,
    us,
)
from autotune.report.tables import ConfigText


def render(record: KernelRecord) -> RenderableType:
    """The best configuration, its time and resources, the runners-up and the run."""
    best = record.best
    measured = best.measurement
    spread = f" +- {us(measured.spread_us)}" if measured.spread_us else ""
    cold = f", cold {us(measured.cold_us)}" if measured.cold_us else ""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in (
        ("time", f"{us(measured.time_us)}{spread}{cold}"),
        *([] if best.score is None else [("objective", f"{best.score:.6g}")]),
        *((name, f"{value:.6g}") for name, value in best.metrics),
        *energy_facts(measured, None, ""),
        *least_energy_facts(record, best.config),
        ("config", str(best.config)),
        *occupancy_facts(best),
        *accuracy_facts(best),
        *([("verified", f"against {record.verified}: no reference")] if record.verified else []),
    ):
        facts.add_row(label, ConfigText(value))
    parts = [titled(f"{record.title} on {record.device.name}", record.evidence), facts]
    if len(record.entries) > 1:
        parts += [Text(), runners_up(best.config, record)]
    return Group(*parts, Text(), Text(provenance(record.provenance), style="dim"))
