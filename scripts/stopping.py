"""Replays searches until they stop by themselves: after how many evaluations, and at what loss.

    python scripts/stopping.py autotune/data/recordings/h100/*4096-f32-nn.json.gz
    python scripts/stopping.py docs/results/spaces/*.csv.gz --computed stencil --blind

print a row for each space. No GPU is needed. A run ends by the stop rule of `autotune tune`. Then
it times its leaders again and takes the fastest, whose loss is its recorded time over the fastest
recorded one, less 1.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Annotated

import computed as kernels
import spaces
import typer
from replay import SHOWN, RetimedLeader, search_of, versions
from rich.table import Table
from spaces import Space

from autotune.measure.objective import winner
from autotune.measure.recording import Recording
from autotune.report import cell
from autotune.tuning.proposals import Patience
from autotune.tuning.trials import Leaderboard, Trial

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
        list[str] | None, typer.Option(help=f"Computed spaces: {', '.join(kernels.KINDS)}.")
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
    }


def loaded(paths: list[Path], computed: list[str], blind: bool) -> Iterator[tuple[str, Space]]:
    """The spaces with their names.

    Raises:
        typer.BadParameter: if no kind of computed space has that name.
    """
    for path in paths:
        yield path.name.split(".")[0], spaces.load(path, blind)
    for kind in computed:
        if kind not in kernels.KINDS:
            kinds = ", ".join(kernels.KINDS)
            raise typer.BadParameter(f"no computed space is named {kind!r}; there is {kinds}")
        for seed in COMPUTED_SEEDS:
            yield f"{kind} {seed}", kernels.space(kind, seed)


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
