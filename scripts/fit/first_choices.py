"""Compiles what look-ups choose on architectures that nobody tuned.

    python scripts/fit/first_choices.py docs/results/first-choices.json.gz

needs no GPU. On a card of each architecture without records, the shapes of `suite.py` are looked up
in each precision from the shipped records alone, and the main launch of each choice is compiled for
the architecture. A row has the registers, spills, local and shared memory that the compiler states,
and the blocks that are resident on an SM: those that the family's estimate expects, and those of
the compiled kernel. Exit status 1 if a choice does not compile, spills, or has fewer resident
blocks than expected.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from autotune import settings
from autotune.cores import available
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, source_hash
from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import write_whole
from autotune.lookup.lookup import lookup
from autotune.problem import PRECISIONS, Problem
from autotune.records import Store
from autotune.tuning.pipeline import resources_of, with_cluster

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))

from results import provenance
from suite import SUITE

SHOWN = Console(width=110, soft_wrap=True)
CARDS = ("a100-80", "rtx-3090", "rtx-4090", "b200", "rtx-5090")
"""A card of each architecture of which no record is shipped: sm_80, 86, 89, 100 and 120."""
SCALES = {"f8": "row", "f8e5": "row", "i8": "row"}
"""Scales of 8-bit operands, which their results need in practice."""

Row = dict[str, Any]


def main(
    out: Annotated[Path, typer.Argument(help="Compressed JSON file to write.")],
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Writes the table and prints what does not run as expected."""
    asked = [(card, str(problem)) for card in CARDS for problem in problems(card)]
    with ProcessPoolExecutor(available()) as pool:
        choices = [*pool.map(choice, asked, chunksize=8)]
    with ThreadPoolExecutor(available()) as threads:
        rows = [*threads.map(partial(compiled, cache=settings.cache_dir()), choices)]
    content = {
        **provenance(", ".join(CARDS), None, compiler.compiler_version(), commit=commit),
        "source": source_hash(*registry.kernel_sources()),
        "rows": rows,
    }
    text = json.dumps(content, separators=(",", ":")) + "\n"
    write_whole(out, gzip.compress(text.encode(), mtime=0))
    SHOWN.print(table(rows))
    for row in (wrong := [row for row in rows if fault(row)]):
        SHOWN.print(f"{row['card']} {row['problem']} {row['config']}: {fault(row)}", markup=False)
    if wrong:
        raise typer.Exit(1)


def problems(card: str) -> Iterator[Problem]:
    """The suite in each precision that a family computes on the card."""
    capability = find(card).compute_capability
    for name, precision in PRECISIONS.items():
        if capability >= precision.compute_capability:
            scale = SCALES.get(name, "none")
            yield from (Problem.parse(f"{shape}:{name}", scale=scale) for shape in SUITE)


def choice(asked: tuple[str, str]) -> Row:
    """The configuration that the look-up of a problem on a card chooses from the shipped records
    alone, and whether `matmul` leaves the problem to the vendor's library."""
    card, text = asked
    with tempfile.TemporaryDirectory() as empty:
        answer = lookup(Problem.parse(text), find(card), Store(Path(empty)))
    assert answer is not None, f"nothing can run {text} on {card}"
    return {
        "card": card,
        "problem": text,
        "config": str(answer.config),
        "vendor": answer.vendor,
    }


def compiled(row: Row, cache: Path | None) -> Row:
    """The row of a choice, whose main launch is compiled for the card's architecture."""
    device, problem = find(row["card"]), Problem.parse(row["problem"])
    config = Config.parse(row["config"])
    launch = registry.plan(config, problem).main
    program = compiler.compile(launch.template, device.arch, cache=cache)
    if isinstance(program, CompileFailure):
        return row | {"failure": program.reason}
    launch = with_cluster(launch, program)
    taken = resources_of(launch, program)
    estimate = registry.find(config.family).estimate(config, problem, device)
    expected, resident = (needed.occupancy(device, launch.cluster) for needed in (estimate, taken))
    return row | {
        "threads": taken.threads,
        "estimated_registers": estimate.registers,
        "registers": taken.registers,
        "spills": program.spills,
        "local": taken.local,
        "shared": taken.shared,
        "expected_blocks": expected.blocks_per_sm,
        "blocks": resident.blocks_per_sm,
        "expected_occupancy": expected.occupancy,
        "occupancy": resident.occupancy,
    }


def fault(row: Row) -> str:
    """What does not run as expected; empty if all does."""
    if "failure" in row:
        return f"does not compile: {row['failure']}"
    if row["spills"] or row["local"]:
        return f"spills {row['spills']} bytes, takes {row['local']} of local memory a thread"
    if row["occupancy"] < row["expected_occupancy"]:
        guess, registers = row["estimated_registers"], row["registers"]
        blocks = f"has {row['blocks']} blocks an SM, {row['expected_blocks']} expected"
        return f"{blocks}: {registers} registers, {guess} estimated"
    return ""


def table(rows: Sequence[Row]) -> Table:
    """How many choices of each card and precision there are, what is wrong with how many, and how
    many are left to the vendor's library."""
    shown = Table("card", "precision", "choices", "does not compile", "spills", "has fewer blocks")
    shown.add_column("left to cuBLAS")
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["card"], Problem.parse(row["problem"]).compute), []).append(row)
    for (card, precision), group in groups.items():
        kinds = Counter(fault(row).partition(" ")[0] for row in group)
        counts = len(group), kinds["does"], kinds["spills"], kinds["has"]
        vendor = sum(row["vendor"] for row in group)
        shown.add_row(card, precision, *map(str, (*counts, vendor)))
    return shown


if __name__ == "__main__":
    typer.run(main)
