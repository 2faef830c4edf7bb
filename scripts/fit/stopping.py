"""Replays searches until they stop by themselves: after how many evaluations, and at what loss.

    python scripts/fit/stopping.py autotune/data/recordings/h100/*4096-f32-nn.json.gz
    python scripts/fit/stopping.py docs/results/spaces/*.csv.gz --computed stencil --blind

print a row for each space. No GPU is needed. A run ends by the stop rule of `autotune tune`. Then
it times its leaders again and takes the fastest, whose loss is its recorded time over the fastest
recorded one, less 1.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from replay import SHOWN, RetimedLeader, Space, load, search_of, versions
from rich.table import Table

from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import winner
from autotune.measure.recording import Recording
from autotune.report import cell
from autotune.tuning.proposals import Patience
from autotune.tuning.trials import Leaderboard, Trial

Floats = npt.NDArray[np.float64]

# The part of a configuration's time that follows from nothing, and the noise of a measurement.
ROUGH, NOISE = 0.004, 0.004
THREADS, SHARED, REGISTERS = 1024, 100_000, 65_536


class Timed(NamedTuple):
    """The configurations of a kernel.

    Attributes:
        names: of the parameters.
        rows: their values, one row a configuration.
        times: one a row.
        fails: whether a row does not run.
    """

    names: tuple[str, ...]
    rows: Sequence[tuple[int, ...]]
    times: Floats
    fails: npt.NDArray[np.bool_]


def stencil(random: np.random.Generator) -> Timed:
    """A 2D stencil in blocks of threads that compute several points each, in tiles or without."""
    widths, heights = (8, 16, 24, 32, 40, 48, 64, 96, 112, 128, 160, 192, 256), (1, 2, 3, 4, 6, 8)
    grid = product(widths, heights, (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 6), (1, 2, 4), (0, 1))
    rows = [row for row in grid if 32 <= row[0] * row[1] <= THREADS and row[0] * row[2] <= 640]
    width, height, across, down, unroll, tiled = _columns(rows)
    size, threads = random.choice([1000, 2000, 4096]), width * height
    registers = 16 + random.uniform(3, 6) * across * down * (1 + 0.15 * unroll)
    shared = tiled * (width * across + 4) * (height * down + 4) * 4
    resident = _resident(threads, registers, shared)
    times = _whole(size, width * across) * _whole(size, height * down)
    times *= 1 + (1.4 - 0.8 * tiled) / (across * down) * random.uniform(0.5, 1.5)
    even, uneven = random.uniform(1.05, 1.2), random.uniform(1.3, 1.7)
    times *= np.where(width % 32 == 0, 1, np.where(width % 16 == 0, even, uneven))
    conflicts = (tiled == 1) & (width * across % 32 == 0)
    times *= np.where(conflicts, random.uniform(1.1, 1.4), 1)
    times *= (0.35 / _occupancy(resident, threads)) ** 0.25
    times *= 1 + 0.04 * np.abs(unroll - random.choice([1, 2, 4]))
    return Timed(
        ("width", "height", "across", "down", "unroll", "tiled"), rows, times, resident < 1
    )


def transpose(random: np.random.Generator) -> Timed:
    """A transpose through padded tiles, whose bank conflicts depend on divisors."""
    tiles = (8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96)
    grid = product(
        tiles, (1, 2, 3, 4, 5, 6, 8, 12, 16, 24), range(5), (1, 2, 4), (0, 1, 2), (1, 2, 4)
    )
    rows = [
        row
        for row in grid
        if row[0] % row[1] == 0 and row[0] * row[1] <= THREADS and row[0] % row[3] == 0
    ]
    tile, lines, padding, vector, order, columns = _columns(rows)
    shared = tile * (tile + padding) * 4 * columns
    resident = _resident(tile * lines, np.full(len(rows), 32.0), shared)
    conflicts = np.gcd((tile + padding).astype(int), 32)
    times = np.where(tile % 32 == 0, 1, np.where(tile % 16 == 0, 1.1, 1.3))
    times *= 1 + random.uniform(0.05, 0.15) * np.log2(conflicts)
    times *= 1 + 0.5 * np.maximum(0, 0.6 - _occupancy(resident, tile * lines))
    times *= 1 + 0.06 * np.abs(np.log2(vector) - random.integers(0, 3))
    times *= np.where(order == random.integers(0, 3), random.uniform(0.88, 0.97), 1)
    times *= np.where(tile == random.choice([24, 40, 48, 80]), random.uniform(0.8, 0.95), 1)
    return Timed(
        ("tile", "lines", "padding", "vector", "order", "columns"), rows, times, resident < 1
    )


def reduction(random: np.random.Generator) -> Timed:
    """A reduction in blocks of any number of warps, on grids of any number of blocks."""
    blocks = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
    grids = (66, 108, 132, 160, 264, 396, 528)
    grid = product(blocks, (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4), (1, 2, 3, 4, 5, 6, 8), grids)
    rows = [row for row in grid if row[2] * row[3] <= 16]
    block, items, vector, unroll, count = _columns(rows)
    bytes_needed = 132 * random.uniform(16_000, 48_000)
    under_way = np.minimum(1, count * block * vector * 4 * unroll / bytes_needed)
    times = _whole(count, np.full(len(rows), 132.0)) ** random.uniform(0.3, 1)
    times *= under_way**-0.7 * (1 + 0.02 * np.abs(np.log2(block) - random.uniform(6, 9)))
    times *= np.where(unroll == random.choice([3, 5, 6]), random.uniform(0.88, 0.97), 1)
    times *= np.where(unroll * items % 5 == 0, 1.1, 1) * np.where(block % 64 == 0, 1, 1.04)
    fails = (unroll * vector >= 12) & (block > 768)
    return Timed(("block", "items", "vector", "unroll", "grid"), rows, times, fails)


def convolution(random: np.random.Generator) -> Timed:
    """A 2D convolution, in which one odd block width is ahead and a third of the kernels fail."""
    widths, side = (16, 32, 48, 64, 80, 96, 112, 128, 144), range(1, 9)
    grid = product(widths, (1, 2, 4, 8, 16), side, side, (0, 1), (0, 1))
    rows = [row for row in grid if row[0] * row[1] <= THREADS]
    width, height, across, down, padded, cached = _columns(rows)
    registers = 20 + across * down * random.uniform(1.2, 2)
    shared = (width * across + 16) * (height * down + 16) * 4
    resident = _resident(width * height, registers, shared)
    times = _whole(4096, width * across) * _whole(4096, height * down) * (1 + 2 / (across * down))
    conflicts = (width % 32 != 0) & (padded == 0)
    times *= np.where(conflicts, random.uniform(1.2, 1.6), 1) * np.where(across == down, 0.96, 1)
    times *= _occupancy(resident, width * height) ** -random.uniform(0.2, 0.45)
    times *= np.where(width == random.choice([48, 80, 96, 112]), random.uniform(0.75, 0.92), 1)
    times *= 1 + 0.03 * cached * random.normal()
    fails = (shared > 49_152) | (registers > 128)
    return Timed(("width", "height", "across", "down", "padded", "cached"), rows, times, fails)


KINDS: dict[str, Callable[[np.random.Generator], Timed]] = {
    kind.__name__: kind for kind in (stencil, transpose, reduction, convolution)
}


def space(kind: str, seed: int) -> Space:
    """The space of a kind of kernel, one of `KINDS`."""
    random = np.random.default_rng([*KINDS].index(kind) + 100 * seed)
    names, rows, times, fails = KINDS[kind](random)
    times = 100 * times * np.exp(random.normal(0, ROUGH, len(times)))
    return Space(
        {
            Config.of("table", dict(zip(names, row, strict=True))): Failure("launch", "no room")
            if failed
            else Measurement(float(time_us), NOISE * float(time_us))
            for row, time_us, failed in zip(rows, times, fails, strict=True)
        },
        {},
    )


def _columns(rows: Sequence[tuple[int, ...]]) -> Floats:
    return np.asarray(np.array(rows, float).T)


def _whole(size: Floats | int, tile: Floats) -> Floats:
    """The share by which whole tiles exceed a size."""
    return np.asarray(np.ceil(size / tile) * tile / size)


def _resident(threads: Floats, registers: Floats, shared: Floats) -> Floats:
    """Blocks that an SM holds."""
    by_registers = np.floor(REGISTERS / (registers * np.ceil(threads / 32) * 32))
    by_shared = np.floor(SHARED / np.maximum(shared, 1))
    return np.asarray(np.minimum(np.minimum(by_registers, np.floor(2048 / threads)), by_shared))


def _occupancy(resident: Floats, threads: Floats) -> Floats:
    return np.asarray(np.maximum(resident * threads / 2048, 0.03))


COMPUTED_SEEDS = (1, 2)


@dataclass(frozen=True)
class Row:
    """The runs on a space.

    Attributes:
        space: its name.
        blind: whether the search had the parameters alone.
        configs: the number of configurations.
        evaluations: of each run, when it stopped.
        losses: of each run.
    """

    space: str
    blind: bool
    configs: int
    evaluations: list[int]
    losses: list[float]


def main(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Recordings (.json.gz) or tables (.csv.gz).")
    ] = None,
    computed: Annotated[
        list[str] | None, typer.Option(help=f"Computed spaces: {', '.join(KINDS)}.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs on each space.")] = 8,
    limit: Annotated[int, typer.Option(min=1, help="Evaluations of a run that does not stop.")] = (
        400
    ),
    blind: Annotated[
        bool, typer.Option("--blind", help="Search without guesses and features.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file to add the rows to.")] = (
        None
    ),
    commit: Annotated[str, typer.Option(help="Commit to record in the results.")] = "",
) -> None:
    """Prints when searches of spaces stop, and at what loss."""
    rows, recording = [], None
    for name, space in loaded(paths or [], computed or [], blind):
        counts, losses = zip(*(stopped(space, seed, limit) for seed in range(seeds)), strict=True)
        blindly, recording = space.describe is None, recording or space.recording
        rows.append(Row(name, blindly, len(space.configs), [*counts], [*losses]))
        SHOWN.print(f"{name}: {rows[-1].evaluations}", style="dim")
    SHOWN.print(table(rows))
    if out is not None:
        earlier = json.loads(out.read_text()) if out.is_file() else {"rows": []}
        results = {
            **(earlier if recording is None else origin(recording)),
            "versions": versions("tile-autotune", "optuna", "numpy"),
            "commit": commit,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "limit": limit,
            "rows": earlier["rows"] + [asdict(row) for row in rows],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


def origin(recording: Recording) -> dict[str, str]:
    """Where the recorded times come from."""
    return {
        "device": recording.device.name,
        "driver": recording.origin.driver,
        "toolkit": recording.origin.compiler,
        "cublas": "not used",
    }


def loaded(paths: list[Path], computed: list[str], blind: bool) -> Iterator[tuple[str, Space]]:
    """The spaces with their names.

    Raises:
        typer.BadParameter: if no kind of computed space has that name.
    """
    for path in paths:
        yield path.name.split(".")[0], load(path, blind)
    for kind in computed:
        if kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise typer.BadParameter(f"no computed space is named {kind!r}; there is {kinds}")
        for seed in COMPUTED_SEEDS:
            yield f"{kind} {seed}", space(kind, seed)


def stopped(space: Space, seed: int, limit: int) -> tuple[int, float]:
    """The evaluations after which a search stops, and its loss."""
    seen, again = space.drawn(Random(seed)), Random(f"again {seed}")
    search, patience, board = search_of(space, "gp", seed), Patience(), Leaderboard()
    while len(board.trials) < limit and (config := search.ask()) is not None:
        trial = Trial(config, seen[config], space.resources.get(config))
        search.tell(trial)
        board.add(trial)
        if patience.due(len(board.trials)):
            patience.look(len(board.trials), search.expected_gain())
        if patience.over:
            break
    chosen = winner(RetimedLeader.of(space, trial.config, again) for trial in board.leaders)
    return len(board.trials), 1 / space.share(chosen.config) - 1


def table(rows: list[Row]) -> Table:
    """The rows as a table."""
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("space", no_wrap=True)
    for header in ("evaluations, mean", "most", "loss, mean", "nine in ten under", "largest"):
        shown.add_column(header, justify="right")
    for row in rows:
        losses = sorted(row.losses)
        most = losses[math.ceil(0.9 * len(losses)) - 1]
        shown.add_row(
            row.space + (", blind" if row.blind else ""),
            f"{statistics.fmean(row.evaluations):.0f}",
            str(max(row.evaluations)),
            *(cell(loss, "{:.2%}") for loss in (statistics.fmean(losses), most, losses[-1])),
        )
    return shown


if __name__ == "__main__":
    typer.run(main)
