"""The ladder of kernels: the speed of each rung, its source, and what changed in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff

from rich.console import Group, RenderableType
from rich.text import Text

from autotune import device as catalogue
from autotune import roofline, settings
from autotune.device import Device
from autotune.errors import NotFoundError, UsageError
from autotune.families.ladder import LAYOUTS, RUNGS, Rung
from autotune.report import cell
from autotune.report.tables import FittedTable
from autotune.tuning.ladder import (
    COUNTED_ON,
    COUNTED_SIDE,
    STALLS,
    Counted,
    Ladder,
    RungTime,
)

NOTE = (
    "FLOP/B: operations for each byte that a block loads (without tiles: a thread). Bounds in "
    "TFLOP/s: what memory feeds if every block loads its own bytes (block), and if it moves each "
    "matrix once, at most the peak (matrix). Caches that serve several blocks lift a kernel above "
    "the first bound; nothing lifts it above the second. `autotune ladder --show N` prints a rung."
)

LEAST_STALL = 0.03
"""The part of a warp's cycles from which a stall is shown."""
WHY = (
    "Little's law: instructions issued a cycle = resident warps / cycles that a warp takes for "
    "each of its instructions. The last lines are parts of these cycles, from 3 % on."
)
SHORT = {" and ": ", ", "registers": "regs", "shared memory": "smem"}
"""Limiters in a narrow column."""


def render(ladder: Ladder) -> RenderableType:
    """The ladder as a table, precision by precision; the evidence is in its title."""
    title = Text(f"{ladder.n}x{ladder.n}x{ladder.n} on {ladder.device}  ", style="bold")
    title.append(ladder.evidence.upper())
    table = FittedTable()
    table.add("kernel", kind="text")
    table.add(
        "TFLOP/s", "of\ncuBLAS", "of\npeak", "FLOP/B", "bound\nblock", "bound\nmatrix", "occ."
    )
    table.add("limiter", kind="prose")
    for compute, layout in LAYOUTS.items():
        peak = ladder.peaks[compute]
        table.add_row(f"{compute}, {layout}: the peak", _tflops(peak), style="dim")
        for rung in ladder.rungs:
            if rung.compute == compute:
                table.add_row(rung.name, *_cells(rung))
    return Group(title, table, Text("\n".join(_notes(ladder)), style="dim"))


def numbered(number: int) -> Rung:
    """The rung of that number.

    Raises:
        UsageError: if there is none.
    """
    if not 0 < number <= len(RUNGS):
        raise UsageError(f"there is no rung {number}; give 1 to {len(RUNGS)}")
    return RUNGS[number - 1]


def source(rung: Rung) -> str:
    """The CUDA source of a rung."""
    return (settings.source_dir() / rung.source).read_text(encoding="utf-8")


def difference(rung: Rung) -> str:
    """The unified diff from the rung before; empty for the first of a precision."""
    before = RUNGS[rung.number - 2] if rung.number > 1 else rung
    if before.compute != rung.compute:
        return ""
    old, new = (source(row).splitlines(keepends=True) for row in (before, rung))
    return "".join(unified_diff(old, new, before.source, rung.source))


def explained(rung: Rung) -> str:
    """The source of a rung, the diff from the one before, and what that changed."""
    parts = [source(rung)]
    if changed := difference(rung):
        parts.append(changed)
    removed = f"\nRemoved: {rung.removed}." if rung.removed else ""
    parts.append(f"{rung.name}: {rung.change}.{removed}")
    return "\n".join(parts)


def why(rung: Rung, counters: Counted) -> RenderableType:
    """The counters of a rung and of the rung before, as a table, with what the rung removed.

    Raises:
        NotFoundError: if there are none of the rung.
    """
    shown, rows = compared(rung, counters)
    table = FittedTable()
    table.add(f"at {COUNTED_SIDE} on {catalogue.find(COUNTED_ON).name}", kind="text")
    table.add(*(row.name for row in shown))
    for name, cells in rows.items():
        table.add_row(name, *cells)
    title = Text(f"{rung.name}: {rung.change}.", style="bold")
    if rung.removed:
        title.append(f"\nRemoved: {rung.removed}.")
    return Group(title, table, Text(WHY, style="dim"))


def compared(rung: Rung, counters: Counted) -> tuple[list[Rung], dict[str, list[str]]]:
    """The rung before, if it has counters, and the rung; then the texts of their counters by name.

    Raises:
        NotFoundError: if there are none of the rung.
    """
    if rung.number not in counters:
        raise NotFoundError(f"no counters of rung {rung.number} are recorded")
    shown = [row for row in RUNGS[max(0, rung.number - 2) : rung.number] if row.number in counters]
    device = catalogue.find(COUNTED_ON)
    columns = [dict(_counted(counters[row.number], row, device)) for row in shown]
    rows = {name: [column[name] for column in columns] for name in columns[0]}
    for stall, text in STALLS.items():
        cycles = [counters[row.number][stall] for row in shown]
        whole = [_cycles(counters[row.number]) for row in shown]
        if any(part >= LEAST_STALL * all_ for part, all_ in zip(cycles, whole, strict=True)):
            rows[f"    waiting for {text}"] = [f"{part:.2f}" for part in cycles]
    return shown, rows


def _counted(counted: Mapping[str, float], rung: Rung, device: Device) -> Iterator[tuple[str, str]]:
    """The rows of a rung's column."""
    flops = 2.0 * COUNTED_SIDE**3
    intensity = flops / counted["dram_bytes"]
    yield "TFLOP/s under the profiler", f"{flops / counted['time_ns'] / 1e3:.1f}"
    roof = roofline.attainable(device, intensity, rung.compute) / 1e12
    yield "roofline: TFLOP/s at most", f"{roof:,.1f}"
    yield "  FLOP/B of device memory", f"{intensity:,.0f}"
    yield "device memory, GB", f"{counted['dram_bytes'] / 1e9:.2f}"
    yield "L2 to SMs, GB", f"{counted['l2_bytes'] / 1e9:.2f}"
    requests = counted["load_requests"]
    yield "global loads, million", f"{requests / 1e6:,.1f}"
    yield "  sectors each", f"{counted['load_sectors'] / max(1.0, requests):.1f}"
    yield "shared memory, million cycles", f"{counted['shared_cycles'] / 1e6:,.1f}"
    yield "  bank conflicts of them", f"{counted['bank_conflicts'] / 1e6:,.1f}"
    yield "instructions, million", f"{counted['instructions'] / 1e6:,.0f}"
    yield "issued a cycle (a scheduler)", f"{counted['issued']:.2f}"
    yield "  = warps", f"{counted['warps']:.2f}"
    yield "  / cycles of a warp each", f"{_cycles(counted):.1f}"


def _cycles(counted: Mapping[str, float]) -> float:
    """The cycles between two instructions of a warp."""
    return counted["warps"] / counted["issued"]


def _cells(rung: RungTime) -> tuple[str, ...]:
    return (
        _tflops(rung.gflops),
        cell(rung.cublas_share, "{:.1%}"),
        cell(rung.peak_share, "{:.1%}"),
        cell(rung.flop_per_byte, "{:.3g}"),
        _bound(rung.bound_gflops),
        _bound(rung.roofline_gflops),
        cell(rung.occupancy, "{:.0%}"),
        "failed" if rung.failure else _short(rung.limiter or ""),
    )


def _tflops(gflops: float | None) -> str:
    """TFLOP/s with four digits or more."""
    return cell(gflops and gflops / 1e3, "{:,.2f}" if (gflops or 0) < 99_950 else "{:,.1f}")


def _bound(gflops: float | None) -> str:
    """TFLOP/s with four digits."""
    return _tflops(gflops) if (gflops or 0) < 999_500 else f"{(gflops or 0) / 1e3:,.0f}"


def _short(limiter: str) -> str:
    for word, short in SHORT.items():
        limiter = limiter.replace(word, short)
    return limiter


def _notes(ladder: Ladder) -> Iterator[str]:
    for rung in ladder.rungs:
        if rung.name.startswith("tuned"):
            yield f"{rung.name}: {rung.config}"
    if ladder.untuned:
        yield f"the model's choice, as not tuned: {'; '.join(ladder.untuned)}"
    if ladder.interrupted:
        yield f"of an interrupted search, so not final: {'; '.join(ladder.interrupted)}"
    for reason in dict.fromkeys(ladder.missing.values()):
        names = (name for name, why in ladder.missing.items() if why == reason)
        yield f"left out: {'; '.join(names)}: {reason}"
    for rung in ladder.rungs:
        if rung.failure is not None:
            yield f"failed: {rung.name}: {rung.failure}"
        if rung.inaccuracy is not None:
            yield f"less accurate than a search allows: {rung.name}: {rung.inaccuracy}"
    yield NOTE
