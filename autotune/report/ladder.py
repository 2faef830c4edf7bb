"""The ladder of kernels: what each step reaches, and the bound that its tiles allow."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune import families, roofline
from autotune.config import Config
from autotune.evaluate import Trial
from autotune.ladder import BEST, Ladder
from autotune.problem import Problem
from autotune.report import cell
from autotune.runner import Failure, Measurement

VENDOR = "cuBLAS"
NOTE = (
    "FLOP/B: of what one block (of a naive kernel one thread) loads; "
    "caches that serve several lift a kernel above its bound"
)


@dataclass(frozen=True)
class Rung:
    """One step; None is what is not known of it.

    Attributes:
        name: of the step.
        config: what ran, as text; None for the vendor library.
        time_us: microseconds of one run.
        gflops: GFLOP/s.
        cublas_share: its speed as a share of cuBLAS's.
        flop_per_byte: operations for each byte that its blocks load.
        bound_gflops: what the memory bandwidth can feed at that, in GFLOP/s.
        occupancy: share (0..1) of an SM's warps that are resident.
        limiter: what binds it.
        failure: why there is no time.
    """

    name: str
    config: str | None = None
    time_us: float | None = None
    gflops: float | None = None
    cublas_share: float | None = None
    flop_per_byte: float | None = None
    bound_gflops: float | None = None
    occupancy: float | None = None
    limiter: str | None = None
    failure: str | None = None


def rungs(ladder: Ladder) -> tuple[Rung, ...]:
    """The steps from the slowest kernel on, and cuBLAS if it was timed."""
    vendor = None if ladder.baseline is None else ladder.baseline.time_us
    steps = tuple(_rung(name, trial, ladder, vendor) for name, trial in ladder.steps.items())
    if vendor is None:
        return steps
    speed = ladder.problem.speed(vendor) / 1e9
    return (*steps, Rung(VENDOR, time_us=vendor, gflops=speed, cublas_share=1.0))


def render(ladder: Ladder) -> RenderableType:
    """The ladder as a table; the evidence is in its title."""
    title = Text(f"{ladder.problem} on {ladder.device.name}  ", style="bold")
    title.append(ladder.evidence.upper())
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("kernel", no_wrap=True)
    for header in ("GFLOP/s", "of\ncuBLAS", "FLOP/B", "bound\nGFLOP/s", "occu-\npancy"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("limiter")
    for rung in rungs(ladder):
        table.add_row(
            rung.name,
            cell(rung.gflops, "{:,.0f}"),
            cell(rung.cublas_share, "{:.1%}"),
            cell(rung.flop_per_byte, "{:.3g}"),
            cell(rung.bound_gflops, "{:,.0f}"),
            cell(rung.occupancy, "{:.0%}"),
            rung.failure or rung.limiter or "",
        )
    notes = f"the best: {ladder.steps[BEST].config}\n{NOTE}"
    return Group(title, table, Text(notes, style="dim"))


def to_json(ladder: Ladder) -> dict[str, object]:
    """What `render` shows, in full."""
    return {
        "problem": str(ladder.problem),
        "device": ladder.device.name,
        "evidence": ladder.evidence,
        "rungs": [asdict(rung) for rung in rungs(ladder)],
    }


def _rung(name: str, trial: Trial, ladder: Ladder, vendor: float | None) -> Rung:
    flop_per_byte = roofline.intensity(*_tile(trial.config, ladder.problem))
    bound = roofline.bandwidth_bound(ladder.device.memory_bandwidth, flop_per_byte) / 1e9
    outcome = trial.outcome
    time_us = outcome.time_us if isinstance(outcome, Measurement) else None
    return Rung(
        name=name,
        config=str(trial.config),
        time_us=time_us,
        gflops=time_us and ladder.problem.speed(time_us) / 1e9,
        cublas_share=vendor / time_us if vendor and time_us else None,
        flop_per_byte=flop_per_byte,
        bound_gflops=bound,
        occupancy=trial.occupancy,
        limiter=trial.limiter,
        failure=f"{outcome.stage}: {outcome.reason}" if isinstance(outcome, Failure) else None,
    )


def _tile(config: Config, problem: Problem) -> tuple[int, int]:
    """Elements of C for which a value that was loaded once is used: of a thread in the naive
    kernel, which shares nothing, of a block in the others."""
    family = families.find(config.family)
    return (1, 1) if family.name == "naive" else family.work(config, problem).tile
