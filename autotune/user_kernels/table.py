"""The occupancy table of a user kernel: what each configuration takes of an SM. Needs no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

from autotune.cuda.program import CompileFailure
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Launch, Resources
from autotune.model.legality import Rejection
from autotune.occupancy import Occupancy
from autotune.tuning.pipeline import Compile, cores, crowded, resources_of, with_cluster
from autotune.user_kernels.tunable import KernelTunable


@dataclass(frozen=True)
class KernelRow:
    """One configuration of a kernel; of several that run in order, one of them.

    Attributes:
        config: the values of the parameters.
        rejection: why it cannot run, with the numbers; None if it can.
        resources: registers and shared memory as compiled; None if it was not compiled.
        occupancy: resident blocks on an SM and what limits them; None if it was not compiled.
        cluster: blocks of a cluster.
        kernel: the name of the kernel.
    """

    config: Config
    rejection: Rejection | None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    cluster: int = 1
    kernel: str = ""


@dataclass(frozen=True)
class KernelTable:
    """The configurations of a kernel on a device, in the order of their parameters; of several
    kernels that run in order, a row for each.

    The text form lists those that can run, then counts the rejected ones by reason.
    """

    device: Device
    rows: tuple[KernelRow, ...]

    def __str__(self) -> str:
        several = len({row.config for row in self.rows}) < len(self.rows)
        clusters = any(row.cluster > 1 for row in self.rows)
        headers = [*self.rows[0].config.values, *["kernel"] * several, "threads"]
        headers += [*["cluster"] * clusters, "regs", "shared", "local"]
        headers += ["blocks", "occupancy", "limiter"]
        shown = [row for row in self.rows if row.rejection is None]
        cells = [headers, *(_cells(row, several, clusters) for row in shown)]
        widths = [max(len(line[n]) for line in cells) for n in range(len(headers) - 1)]
        title = f"{self.device.name}; registers as compiled for {self.device.arch}"
        lines = (_line(line, widths) for line in cells)
        return "\n".join([title, *lines, *_rejections(self.rows)])


def occupancy_table(
    tunable: KernelTunable,
    device: Device,
    compile: Compile,
    *,
    jobs: int | None = None,
    any_grid: Collection[int] = (),
) -> KernelTable:
    """Compiles every configuration that the device can launch.

    Args:
        tunable: the kernel.
        device: the device to compile for.
        compile: compiles a template for an architecture.
        jobs: threads that compile; None is one for each core but one.
        any_grid: the steps whose grids are unknown, so that none is refused, counted from 0.

    Raises:
        UsageError: if the function of a constraint or of the geometry fails.
        MissingError: if there is no compiler.
    """

    def rows(combination: tuple[Config, Rejection | None]) -> list[KernelRow]:
        config, rejection = combination
        if rejection is not None:
            return [KernelRow(config, rejection)]
        return [
            _compile_row(config, launch, device, compile, place in any_grid)
            for place, launch in enumerate(tunable.plan(config).launches)
        ]

    with ThreadPoolExecutor(jobs or cores(), thread_name_prefix="compile") as pool:
        listed = pool.map(rows, tunable.rejected(device))
        return KernelTable(device, tuple(chain.from_iterable(listed)))


def _compile_row(
    config: Config, launch: Launch, device: Device, compile: Compile, any_grid: bool
) -> KernelRow:
    program, kernel = compile(launch.template, device.arch), launch.template.kernel
    if isinstance(program, CompileFailure):
        return KernelRow(config, Rejection("compile", program.reason), kernel=kernel)
    resources, bounds = resources_of(launch, program), program.bounds
    if any_grid:
        launch = replace(launch, grid=bounds.cluster, cooperative=False)
    cluster = with_cluster(launch, program).cluster
    resident, rejection = resources.occupancy(device, cluster), None
    if refusal := bounds.refusal(launch):
        resident = replace(resident, blocks_per_sm=0, warps_per_sm=0, occupancy=0.0)
        rejection = Rejection(*refusal)
    elif not resident.blocks_per_sm:
        needs = f"{resources.registers} registers a thread, {resources.shared} bytes of shared"
        rejection = Rejection(resident.limiter, f"no block fits an SM: {needs} memory")
    elif detail := crowded(launch, resources, device):
        rejection = Rejection("cooperative", detail)
    return KernelRow(config, rejection, resources, resident, cluster, kernel)


def _cells(row: KernelRow, named: bool, clusters: bool) -> list[str]:
    resources, occupancy = row.resources, row.occupancy
    assert resources is not None  # as the row is not rejected
    assert occupancy is not None
    name, threads = [row.kernel] * named, [resources.threads, *[row.cluster] * clusters]
    counts = *threads, resources.registers, resources.shared, resources.local
    values = (*row.config.values.values(), *name, *counts, occupancy.blocks_per_sm)
    return [*map(str, values), f"{occupancy.occupancy:.0%}", occupancy.limiter]


def _line(cells: list[str], widths: list[int]) -> str:
    aligned = [cell.rjust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*aligned, cells[-1]])


def _rejections(rows: Sequence[KernelRow]) -> Iterator[str]:
    rejected = [(row.config, row.rejection) for row in rows if row.rejection]
    counts = Counter(rejection.reason for _, rejection in rejected)
    first = {
        rejection.reason: f"{config}: {rejection.detail}"
        for config, rejection in reversed(rejected)
    }
    return (
        f"rejected, {reason}: {count}, such as {first[reason]}" for reason, count in counts.items()
    )
