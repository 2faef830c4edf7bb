"""What the configurations of a user's kernel take of an SM; no GPU is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autotune.candidates.space import Rejection
from autotune.compiler import CompileFailure
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.occupancy import Occupancy
from autotune.tuning.evaluate import Compile, taken
from autotune.tuning.pipeline import cores
from autotune.user_kernels.tunable import KernelTunable


@dataclass(frozen=True)
class KernelRow:
    """One configuration of a kernel.

    Attributes:
        config: the values of the parameters.
        rejection: why it cannot run, with the numbers; None if it can.
        resources: what it takes, as compiled; None for what was not or does not compile.
        occupancy: how many blocks an SM holds, and what limits them; None likewise.
    """

    config: Config
    rejection: Rejection | None
    resources: Resources | None = None
    occupancy: Occupancy | None = None


@dataclass(frozen=True)
class KernelTable:
    """The configurations of a kernel on a device, in the order of their parameters.

    The text form is a table of those that can run, and how many fell to which reason.
    """

    device: Device
    rows: tuple[KernelRow, ...]

    def __str__(self) -> str:
        names = self.rows[0].config.values
        headers = [*names, "threads", "regs", "shared", "local", "blocks", "occupancy", "limiter"]
        cells = [headers, *(_cells(row) for row in self.rows if row.rejection is None)]
        widths = [max(len(line[n]) for line in cells) for n in range(len(headers) - 1)]
        title = f"{self.device.name}; registers as compiled for {self.device.arch}"
        return "\n".join([title, *(_line(one, widths) for one in cells), *_fallen(self.rows)])


def occupancy_table(
    tunable: KernelTunable,
    device: Device,
    compile: Compile,
    *,
    jobs: int | None = None,
) -> KernelTable:
    """Compiles every configuration that the device can launch.

    Args:
        tunable: whose configurations.
        device: where they would run.
        compile: makes a program of a template for an architecture.
        jobs: threads that compile; None takes one for each core but one.

    Raises:
        UsageError: if a constraint, or what gives the geometry, fails.
        MissingError: if there is no compiler.
    """

    def row(one: tuple[Config, Rejection | None]) -> KernelRow:
        config, why = one
        return KernelRow(config, why) if why else _compiled(config, tunable, device, compile)

    with ThreadPoolExecutor(jobs or cores(), thread_name_prefix="compile") as pool:
        return KernelTable(device, tuple(pool.map(row, tunable.rejected(device))))


def _compiled(
    config: Config, tunable: KernelTunable, device: Device, compile: Compile
) -> KernelRow:
    launch = tunable.plan(config).main
    program = compile(launch.template, device.arch)
    if isinstance(program, CompileFailure):
        return KernelRow(config, Rejection("compile", program.reason))
    resources = taken(launch, program)
    resident = resources.occupancy(device)
    if resident.blocks_per_sm:
        return KernelRow(config, None, resources, resident)
    detail = f"no block fits an SM: {resources.registers} registers a thread"
    why = Rejection(resident.limiter, f"{detail}, {resources.shared} bytes of shared memory")
    return KernelRow(config, why, resources, resident)


def _cells(row: KernelRow) -> list[str]:
    took, held = row.resources, row.occupancy
    assert took is not None  # or it would be rejected
    assert held is not None
    counts = (took.threads, took.registers, took.shared, took.local, held.blocks_per_sm)
    values = (*row.config.values.values(), *counts)
    return [*map(str, values), f"{held.occupancy:.0%}", held.limiter]


def _line(cells: list[str], widths: list[int]) -> str:
    aligned = [cell.rjust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*aligned, cells[-1]])


def _fallen(rows: Sequence[KernelRow]) -> Iterator[str]:
    """A line for each reason, with the first that fell to it."""
    fallen = [(row.config, row.rejection) for row in rows if row.rejection]
    counts = Counter(why.reason for _, why in fallen)
    first = {why.reason: f"{config}: {why.detail}" for config, why in reversed(fallen)}
    return (f"rejected, {why}: {count}, such as {first[why]}" for why, count in counts.items())
