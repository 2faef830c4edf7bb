"""The ladder of kernels: the speed of each step, and the bound that its tiles allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from autotune import roofline
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure import oracle
from autotune.measure.measurement import Failure, Measurement
from autotune.problem import PRECISIONS, Problem
from autotune.report import cell, vendor
from autotune.report.tables import FittedTable
from autotune.tuning.ladder import BEST, Ladder, Part
from autotune.tuning.trials import Trial

VENDOR = "cuBLAS"

NOTE = (
    "FLOP/B: operations for each byte that a block loads (a naive kernel: a thread). Bounds in "
    "TFLOP/s: what memory feeds if every block loads its own bytes (block), and if it moves each "
    "matrix once, at most the peak (matrix). Caches that serve several blocks lift a kernel above "
    "the first bound; nothing lifts it above the second."
)

SHORT = {" and ": ", ", "registers": "regs", "shared memory": "smem"}
"""Limiters in a narrow column."""


@dataclass(frozen=True)
class Rung:
    """A step of the ladder, or the vendor baseline; None is unknown.

    Attributes:
        name: the step's name.
        compute: the precision.
        config: the configuration as text; None for the vendor baseline.
        time_us: microseconds of one run.
        gflops: GFLOP/s.
        cublas_share: its speed as a share of cuBLAS's in the same precision; for `tf32x3`, which
            cuBLAS does not have, in fp32.
        peak_share: its speed as a share of the device's peak in the precision.
        flop_per_byte: operations for each byte that its blocks load.
        bound_gflops: GFLOP/s that the memory bandwidth can feed at that intensity.
        roofline_gflops: GFLOP/s if memory moves each matrix once, at most the peak.
        occupancy: share (0..1) of an SM's warps that are resident.
        limiter: the resource that binds the occupancy.
        relative_error: Frobenius norm of the error over that of the float64 reference.
        inaccuracy: how far that error exceeds what a search allows beside the vendor's library;
            None if it does not.
        failure: why there is no time.
    """

    name: str
    compute: str
    config: str | None = None
    time_us: float | None = None
    gflops: float | None = None
    cublas_share: float | None = None
    peak_share: float | None = None
    flop_per_byte: float | None = None
    bound_gflops: float | None = None
    roofline_gflops: float | None = None
    occupancy: float | None = None
    limiter: str | None = None
    relative_error: float | None = None
    inaccuracy: str | None = None
    failure: str | None = None


def rungs(ladder: Ladder) -> tuple[Rung, ...]:
    """The steps of each precision, followed by cuBLAS where it was timed."""
    return tuple(rung for part in ladder.parts for rung in _rungs(part, ladder.device))


def render(ladder: Ladder) -> RenderableType:
    """The ladder as a table, precision by precision; the evidence is in its title."""
    title = Text(f"{ladder.problem} on {ladder.device.name}  ", style="bold")
    title.append(ladder.evidence.upper())
    table = FittedTable()
    table.add("kernel", kind="text")
    table.add(
        "TFLOP/s", "of\ncuBLAS", "of\npeak", "FLOP/B", "bound\nblock", "bound\nmatrix", "occ."
    )
    table.add("limiter", kind="prose")
    for part in ladder.parts:
        if ladder.higher:
            peak = ladder.device.peak(part.problem.compute)
            table.add_row(f"{part.problem.compute}, the peak", _tflops(peak / 1e9), style="dim")
        for rung in _rungs(part, ladder.device):
            table.add_row(rung.name, *_cells(rung))
    return Group(title, table, Text("\n".join(_notes(ladder)), style="dim"))


def to_json(ladder: Ladder) -> dict[str, object]:
    """The content of `render` in full."""
    return {
        "problem": str(ladder.problem),
        "device": ladder.device.name,
        "evidence": ladder.evidence,
        "rungs": [asdict(rung) for rung in rungs(ladder)],
        "missing": dict(ladder.missing),
        "untuned": [*ladder.untuned],
        "interrupted": [*ladder.interrupted],
    }


def _cells(rung: Rung) -> tuple[str, ...]:
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
    yield f"the best: {ladder.steps[BEST].config}"
    for part in ladder.higher:
        yield from (f"{name}: {trial.config}" for name, trial in part.steps.items())
    if ladder.untuned:
        yield f"the model's choice, as not tuned: {'; '.join(ladder.untuned)}"
    if ladder.interrupted:
        yield f"of an interrupted search, so not final: {'; '.join(ladder.interrupted)}"
    reasons = dict.fromkeys(ladder.missing.values())
    for reason in reasons:
        names = (name for name, why in ladder.missing.items() if why == reason)
        yield f"left out: {'; '.join(names)}: {reason}"
    for rung in rungs(ladder):
        if rung.failure is not None:
            yield f"failed: {rung.name}: {rung.failure}"
        if rung.inaccuracy is not None:
            yield f"less accurate than a search allows: {rung.name}: {rung.inaccuracy}"
    for part in ladder.higher:
        compute = part.problem.compute
        if _vendor_precision(compute) != compute:
            yield f"{compute}: of {vendor(compute)}"
    yield NOTE


def _rungs(part: Part, device: Device) -> Iterator[Rung]:
    for name, trial in part.steps.items():
        yield _rung(name, trial, part, device)
    baseline = part.baseline
    if baseline is not None:
        compute, speed = part.problem.compute, part.problem.speed(baseline.time_us)
        yield Rung(
            VENDOR if compute == "f32" else f"{VENDOR}, {_vendor_precision(compute)}",
            compute,
            time_us=baseline.time_us,
            gflops=speed / 1e9,
            cublas_share=1.0,
            peak_share=speed / device.peak(compute),
            roofline_gflops=_roofline(part.problem, device),
            relative_error=baseline.relative_error,
        )


def _vendor_precision(compute: str) -> str:
    """The precision of the vendor baseline."""
    return PRECISIONS[compute].vendor or compute


def _rung(name: str, trial: Trial, part: Part, device: Device) -> Rung:
    problem, outcome, baseline = part.problem, trial.outcome, part.baseline
    flop_per_byte = roofline.intensity(
        *_tile(trial.config, problem), element_bytes=problem.element_bytes
    )
    bound = roofline.bandwidth_bound(device.memory_bandwidth, flop_per_byte) / 1e9
    rung = Rung(
        name=name,
        compute=problem.compute,
        config=str(trial.config),
        flop_per_byte=flop_per_byte,
        bound_gflops=bound,
        roofline_gflops=_roofline(problem, device),
        occupancy=trial.occupancy,
        limiter=trial.limiter,
    )
    if isinstance(outcome, Failure):
        return replace(rung, failure=f"{outcome.stage}: {outcome.reason}")
    speed = problem.speed(outcome.time_us)
    return replace(
        rung,
        time_us=outcome.time_us,
        gflops=speed / 1e9,
        cublas_share=None if baseline is None else baseline.time_us / outcome.time_us,
        peak_share=speed / device.peak(problem.compute),
        relative_error=outcome.relative_error,
        inaccuracy=_inaccuracy(problem, outcome, baseline),
    )


def _roofline(problem: Problem, device: Device) -> float:
    """GFLOP/s if memory moves each matrix once, at most the peak."""
    return problem.flops / roofline.least_seconds(problem, device) / 1e9


def _inaccuracy(problem: Problem, outcome: Measurement, baseline: Measurement | None) -> str | None:
    """Why a search would refuse the outcome beside the vendor baseline; None if it would not."""
    if baseline is None:
        return None
    checked = oracle.checked_accuracy(problem, outcome, baseline.relative_error)
    return checked.reason if isinstance(checked, Failure) else None


def _tile(config: Config, problem: Problem) -> tuple[int, int]:
    """Rows and columns of C that use a value loaded once: the tile of a block, in the naive kernel
    that of a thread, which shares nothing."""
    family = registry.find(config.family)
    return (1, 1) if family.name == "naive" else family.work(config, problem).tile
