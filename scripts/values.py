"""Whether each value of each parameter earns its place, judged from the trials of many shapes.

    python scripts/values.py trials/h100 --json values.json --markdown values.md

reads the recordings in the given folders (`suite.py --trials`, `record.py`) and prints, for each
value: on how many shapes it was tried, how often the winner has it, on how many shapes something
with it is within 2 % of the best, and how much slower the best of what was tried would be without
it. The last is an upper bound: a search that does not have the value would try other things
instead. A value that is nowhere within 2 % is marked as one to go. A family is judged on the shapes
of those precisions alone in which it ran on any.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from autotune.families.config import Config, Value
from autotune.report import cell
from autotune.runners.base import Measurement
from autotune.runners.recording import Recording

NEAR = 1.02

Trait = tuple[str, str, Value]
"""What can be taken away: a family, a parameter of it and a value. The family itself counts as
a parameter that is named `family`."""

Ranked = Sequence[tuple[float, frozenset[Trait]]]
"""Microseconds of each configuration that ran on a shape, fastest first, and what it has."""


@dataclass(frozen=True)
class Worth:
    """What one value of a parameter was good for.

    Attributes:
        family: the kernel family.
        parameter: its name, or `family`.
        value: the value.
        tried: shapes on which something with it ran.
        wins: shapes whose fastest configuration has it.
        near: shapes on which something with it is within 2 % of the fastest.
        alone: shapes on which nothing without it ran.
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
        """Whether it is near the best nowhere."""
        return self.near == 0


def main(
    folders: list[Path],
    as_json: Annotated[Path | None, typer.Option("--json", help="Written too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Written too.")] = None,
) -> None:
    """Judges all values in the recordings of FOLDERS."""
    read = {name: (compute, ranked) for name, compute, ranked in _read(folders)}
    shapes = {name: ranked for name, (_, ranked) in read.items()}
    if not shapes:
        raise typer.BadParameter(f"no recording with a time in {', '.join(map(str, folders))}")
    found = worths(shapes, {name: compute for name, (compute, _) in read.items()})
    if as_json is not None:
        rows = [{**asdict(one), "goes": one.goes} for one in found]
        as_json.write_text(json.dumps({"shapes": [*shapes], "values": rows}, indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(to_markdown(found, len(shapes)))
    Console(width=120).print(table(found, len(shapes)))


def worths(shapes: Mapping[str, Ranked], computes: Mapping[str, str] | None = None) -> list[Worth]:
    """Every value that ran anywhere, by family and parameter.

    Args:
        shapes: what ran on each.
        computes: the precision of each shape; by default it is the same of all.
    """
    of = computes or dict.fromkeys(shapes, "")
    served: dict[str, set[str]] = {}
    for shape, ranked in shapes.items():
        for family in {family for _, has in ranked for family, _, _ in has}:
            served.setdefault(family, set()).add(of[shape])
    traits = {trait for ranked in shapes.values() for _, has in ranked for trait in has}
    return [
        _worth(trait, {one: it for one, it in shapes.items() if of[one] in served[trait[0]]})
        for trait in sorted(traits, key=_order)
    ]


def ranked(times: Mapping[Config, float]) -> Ranked:
    """The configurations of a shape in the order of their times."""
    return sorted(
        ((time_us, frozenset(_traits(config))) for config, time_us in times.items()),
        key=lambda one: one[0],
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


def _read(folders: Sequence[Path]) -> Iterator[tuple[str, str, Ranked]]:
    for folder in folders:
        for path in sorted(folder.glob("*.json.gz")):
            recorded = Recording.load(path)
            outcomes = ((row.config, row.outcome) for row in recorded.rows)
            times = {one: got.time_us for one, got in outcomes if isinstance(got, Measurement)}
            name = str(recorded.problem)
            if times:
                named = name if len(folders) == 1 else f"{folder.name} {name}"
                yield named, recorded.problem.compute, ranked(times)


HEADERS = ("value", "tried", "wins", "near", "alone", "without", "worst", "on", "")


def _cells(one: Worth) -> tuple[str, ...]:
    return (
        str(one.value),
        *(str(count) for count in (one.tried, one.wins, one.near, one.alone)),
        cell(one.cost, "{:.3f}"),
        cell(one.worst, "{:.2f}"),
        one.shape,
        "goes" if one.goes else "",
    )


def table(found: Sequence[Worth], shapes: int) -> Table:
    """All of it, for a terminal."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=f"{shapes} shapes")
    drawn.add_column("parameter", no_wrap=True)
    for place, header in enumerate(HEADERS):
        drawn.add_column(header, justify="right" if 1 <= place <= 6 else "left", no_wrap=True)
    for one, name in zip(found, _names(found), strict=True):
        drawn.add_row(name, *_cells(one), style="dim" if one.goes else None)
    return drawn


def to_markdown(found: Sequence[Worth], shapes: int) -> str:
    """All of it, for a file."""
    lines = [
        f"{shapes} shapes\n",
        f"| parameter | {' | '.join(HEADERS)} |",
        "|---|---|" + "---:|" * 6 + "---|---|",
    ]
    for one, name in zip(found, _names(found), strict=True):
        lines.append(f"| {name} | {' | '.join(_cells(one))} |")
    return "\n".join(lines) + "\n"


def _names(found: Sequence[Worth]) -> list[str]:
    """`family parameter` where it changes, else nothing."""
    names = [f"{one.family} {one.parameter}" for one in found]
    return ["" if index and name == names[index - 1] else name for index, name in enumerate(names)]


if __name__ == "__main__":
    typer.run(main)
