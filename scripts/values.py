"""Judges whether each parameter value earns its place, from the trials of many shapes.

    python scripts/values.py trials/h100 --json values.json --markdown values.md

reads the recordings in the given folders (`suite.py --trials`, `record.py`) and prints, for each
value: the number of shapes it was tried on, the number of winners that have it, the number of
shapes where a configuration with it is within 2 % of the best, and how much slower the best trial
would be without it. The last is an upper bound: a search without the value would try other
configurations instead. A value that is nowhere within 2 % is marked `goes`. A family is judged only
on shapes of the precisions that it ran in.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from provenance import of_recordings
from recordings import read
from rich.console import Console
from rich.table import Table

from autotune.families.config import Config, Value
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.report import cell

NEAR = 1.02

Trait = tuple[str, str, Value]
"""A family, a parameter and its value. The family itself counts as a parameter named `family`."""

Ranked = Sequence[tuple[float, frozenset[Trait]]]
"""Microseconds and traits of each configuration that ran on a shape, fastest first."""


@dataclass(frozen=True)
class Worth:
    """The worth of one value of a parameter.

    Attributes:
        family: the kernel family.
        parameter: its name, or `family`.
        value: the value.
        tried: shapes on which a configuration with it ran.
        wins: shapes whose fastest configuration has it.
        near: shapes on which a configuration with it is within 2 % of the fastest.
        alone: shapes on which no configuration without it ran.
        cost: geometric mean over the other shapes of the best time without it over the best time;
            None if there are none.
        worst: the largest of these ratios.
        shape: where that is; empty if it is 1.
    """

    family: str
    parameter: str
    value: Value
    tried: int
    wins: int
    near: int
    alone: int
    cost: float | None
    worst: float | None
    shape: str

    @property
    def goes(self) -> bool:
        """Whether no configuration with it is near the best."""
        return self.near == 0


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders or archives of recordings.")],
    as_json: Annotated[
        Path | None, typer.Option("--json", help="JSON file for the values.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Markdown file for the values.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Judges all values in the recordings of FOLDERS."""
    recordings = _recordings(folders)
    shapes = {
        name: ranked for name, recorded in recordings.items() if (ranked := _ranked(recorded))
    }
    if not shapes:
        raise typer.BadParameter(f"no recording with a time in {', '.join(map(str, folders))}")
    judged = worths(shapes, {name: recordings[name].problem.compute for name in shapes})
    if as_json is not None:
        rows = [{**asdict(worth), "goes": worth.goes} for worth in judged]
        origin = of_recordings([recordings[name] for name in shapes], commit)
        content = {**origin, "shapes": [*shapes], "values": rows}
        as_json.write_text(json.dumps(content, indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(to_markdown(judged, len(shapes)))
    Console(width=120).print(table(judged, len(shapes)))


def worths(shapes: Mapping[str, Ranked], computes: Mapping[str, str] | None = None) -> list[Worth]:
    """The worth of every value that ran, by family and parameter.

    Args:
        shapes: the ranked configurations of each shape.
        computes: the precision of each shape; by default all have the same.
    """
    of = computes or dict.fromkeys(shapes, "")
    served: dict[str, set[str]] = {}
    for shape, ranked in shapes.items():
        for family in {family for _, has in ranked for family, _, _ in has}:
            served.setdefault(family, set()).add(of[shape])
    traits = {trait for ranked in shapes.values() for _, has in ranked for trait in has}
    return [
        _worth(
            trait, {name: ranked for name, ranked in shapes.items() if of[name] in served[trait[0]]}
        )
        for trait in sorted(traits, key=_order)
    ]


def ranked(times: Mapping[Config, float]) -> Ranked:
    """The configurations of a shape in the order of their times."""
    return sorted(
        ((time_us, frozenset(_traits(config))) for config, time_us in times.items()),
        key=lambda timed: timed[0],
    )


def _worth(trait: Trait, shapes: Mapping[str, Ranked]) -> Worth:
    best = {shape: ranked[0][0] for shape, ranked in shapes.items()}
    having, without = (
        {
            shape: fastest / best[shape]
            for shape, ranked in shapes.items()
            if (fastest := next((us for us, has in ranked if (trait in has) == having), None))
        }
        for having in (True, False)
    )
    worst = max(without, key=lambda shape: without[shape], default="")
    return Worth(
        *trait,
        tried=len(having),
        wins=sum(trait in ranked[0][1] for ranked in shapes.values()),
        near=sum(ratio <= NEAR for ratio in having.values()),
        alone=len(shapes) - len(without),
        cost=statistics.geometric_mean(without.values()) if without else None,
        worst=without[worst] if without else None,
        shape=worst if without and without[worst] > 1 else "",
    )


def _traits(config: Config) -> Iterator[Trait]:
    yield config.family, "family", config.family
    for name, value in config.params:
        yield config.family, name, value


def _order(trait: Trait) -> tuple[object, ...]:
    family, name, value = trait
    return family, name != "family", name, isinstance(value, str), value


def _recordings(folders: Sequence[Path]) -> dict[str, Recording]:
    """The recordings by problem, with the folder in front if there are several folders."""
    recordings = {}
    for folder in folders:
        for recorded in read(folder):
            name = str(recorded.problem)
            recordings[name if len(folders) == 1 else f"{folder.stem} {name}"] = recorded
    return recordings


def _ranked(recorded: Recording) -> Ranked:
    """The configurations of a recording that have a time, fastest first."""
    outcomes = ((row.config, row.outcome) for row in recorded.rows)
    return ranked({config: got.time_us for config, got in outcomes if isinstance(got, Measurement)})


HEADERS = ("value", "tried", "wins", "near", "alone", "without", "worst", "on", "")


def _cells(worth: Worth) -> tuple[str, ...]:
    return (
        str(worth.value),
        *(str(count) for count in (worth.tried, worth.wins, worth.near, worth.alone)),
        cell(worth.cost, "{:.3f}"),
        cell(worth.worst, "{:.2f}"),
        worth.shape,
        "goes" if worth.goes else "",
    )


def table(judged: Sequence[Worth], shapes: int) -> Table:
    """The values as a table for a terminal."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=f"{shapes} shapes")
    drawn.add_column("parameter", no_wrap=True)
    for place, header in enumerate(HEADERS):
        drawn.add_column(header, justify="right" if 1 <= place <= 6 else "left", no_wrap=True)
    for worth, name in zip(judged, _names(judged), strict=True):
        drawn.add_row(name, *_cells(worth), style="dim" if worth.goes else None)
    return drawn


def to_markdown(judged: Sequence[Worth], shapes: int) -> str:
    """The values as a Markdown table."""
    lines = [
        f"{shapes} shapes\n",
        f"| parameter | {' | '.join(HEADERS)} |",
        "|---|---|" + "---:|" * 6 + "---|---|",
    ]
    for worth, name in zip(judged, _names(judged), strict=True):
        lines.append(f"| {name} | {' | '.join(_cells(worth))} |")
    return "\n".join(lines) + "\n"


def _names(judged: Sequence[Worth]) -> list[str]:
    """`family parameter` in the first row of each parameter, else empty."""
    names = [f"{worth.family} {worth.parameter}" for worth in judged]
    return ["" if index and name == names[index - 1] else name for index, name in enumerate(names)]


if __name__ == "__main__":
    typer.run(main)
