"""Attacks this package where its promises could break, counts, and says which promises broke.

    python scripts/attack/campaign.py                    a small run, under a minute
    python scripts/attack/campaign.py --full --jobs 2    the run that docs/reliability.md states
    python scripts/attack/campaign.py --only kills --count 50

It needs no GPU. `docs/reliability.md` says what is promised. The exit status is 1 if a promise was
broken. A broken promise is printed with the seed and the case that broke it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from autotune.occupancy import ARCHITECTURES

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from results import provenance
from support.nvidia_occupancy import DEVICES, compiled, differing, random_kernels
from tuners import Outcome, merged

SHARE = "share.json"
SHOWN = 20
"""Broken promises that are printed of each part."""


@dataclass(frozen=True)
class Part:
    """A part of the campaign.

    Attributes:
        function: `module:name`; called with count, seed and folder, it returns an `Outcome`.
        small: cases of a small run.
        full: cases of a full run.
        shares: how many processes divide a full run.
    """

    function: str
    small: int
    full: int
    shares: int = 1


PARTS: Mapping[str, Part] = {
    "kills": Part("kills:run_kills", 4, 1000, 8),
    "interrupts": Part("kills:run_interrupts", 3, 200, 2),
    "mutations": Part("mutations:run_mutations", 300, 10_000, 4),
    "impossible": Part("mutations:run_impossible", 150, 10_000),
    "processes": Part("tuners:run_processes", 1, 60, 4),
    "calls": Part("campaign:run_calls", 3000, 60_000),
    "full-disk": Part("kills:run_full_disk", 4, 60, 2),
    "occupancy": Part("campaign:run_occupancies", 13_000, 1_000_000, 2),
}


@dataclass(frozen=True)
class Share:
    """The share of a part that one process does."""

    name: str
    count: int
    seed: int


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Parts: {', '.join(PARTS)}. Repeatable.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The full counts.")] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="Cases of each part, in place of its own.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Parts at once.")] = 1,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
    share: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Runs the campaign and prints what each part tried and what broke."""
    if share is not None:
        run_share(Share(*json.loads(share)), Path.cwd())
        return
    names = only or [*PARTS]
    if unknown := sorted({*names} - PARTS.keys()):
        raise typer.BadParameter(f"{', '.join(unknown)}; give {', '.join(PARTS)}")
    began = monotonic()
    outcomes, seconds = run_parts(planned(names, full, count, seed), jobs)
    Console(width=110).print(table(outcomes, seconds))
    for name, outcome in outcomes.items():
        for line in outcome.broken[:SHOWN]:
            print(f"{name}: {line}")
        if (more := len(outcome.broken) - SHOWN) > 0:
            print(f"{name}: and {more} more; --json has them all")
        for line in outcome.skipped:
            print(f"{name}: skipped: {line}")
    if out:
        content = document(outcomes, seconds, seed, monotonic() - began, commit)
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(any(outcome.broken for outcome in outcomes.values()))


def planned(names: Sequence[str], full: bool, count: int | None, seed: int) -> list[Share]:
    """The shares of the parts, with seeds of their own; a small run is not divided."""
    shares = []
    for name in names:
        part = PARTS[name]
        cases = count or (part.full if full else part.small)
        number = max(1, min(part.shares, cases // (2 * part.small)))
        for place in range(number):
            mine = cases // number + (place < cases % number)
            shares.append(Share(name, mine, 1000 * seed + place))
    return shares


def run_parts(shares: Sequence[Share], jobs: int) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Outcome and processor-independent seconds of each part, its shares' seconds added."""
    with ThreadPoolExecutor(jobs) as pool:
        results = [*pool.map(run_process, shares)]
    names = dict.fromkeys(share.name for share in shares)
    outcomes = {
        name: merged(
            outcome
            for share, (outcome, _) in zip(shares, results, strict=True)
            if share.name == name
        )
        for name in names
    }
    seconds = {
        name: sum(
            spent for share, (_, spent) in zip(shares, results, strict=True) if share.name == name
        )
        for name in names
    }
    return outcomes, seconds


def run_process(share: Share) -> tuple[Outcome, float]:
    """Runs a share in a process and a folder of its own; what that leaves behind is killed."""
    began = monotonic()
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        command = [sys.executable, __file__, "--share", json.dumps([*vars(share).values()])]
        # A matrix library's threads would make each fork slower, and there are thousands.
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment = os.environ | threads
        with subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True
        ) as process:
            try:
                process.wait()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            died = f"seed {share.seed}: the part itself ended with {process.returncode}"
            return Outcome(broken=(died,)), monotonic() - began
        content = json.loads((folder / SHARE).read_text(encoding="utf-8"))
        for name in ("broken", "skipped"):
            content[name] = tuple(content[name])
        return Outcome(**content), monotonic() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_share(share: Share, folder: Path) -> None:
    """Runs a share in this process and leaves its outcome in the folder."""
    module, _, name = PARTS[share.name].function.partition(":")
    part = getattr(importlib.import_module(module), name)
    work = folder / "work"
    work.mkdir()
    outcome = part(share.count, share.seed, work)
    (folder / SHARE).write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def table(outcomes: Mapping[str, Outcome], seconds: Mapping[str, float]) -> Table:
    """A row for each part."""
    shown = Table(title="reliability campaign")
    shown.add_column("part")
    shown.add_column("figures")
    shown.add_column("broken", justify="right")
    shown.add_column("s", justify="right")
    for name, outcome in outcomes.items():
        figures = [f"{what} {value:,}" for what, value in outcome.counts.items()]
        figures += [f"{what} at most {value:,.1f}" for what, value in outcome.peaks.items()]
        row = (name, ", ".join(figures), f"{len(outcome.broken)}", f"{seconds[name]:.0f}")
        shown.add_row(*row)
    return shown


def document(
    outcomes: Mapping[str, Outcome],
    seconds: Mapping[str, float],
    seed: int,
    took_s: float,
    commit: str,
) -> dict[str, object]:
    """The figures as JSON, with their provenance."""
    return {
        **provenance("none: no GPU is needed", None, None, commit=commit),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "seed": seed,
        "seconds": round(took_s, 1),
        "parts": {
            name: {**asdict(outcome), "seconds": round(seconds[name], 1)}
            for name, outcome in outcomes.items()
        },
    }


def run_calls(count: int, seed: int, folder: Path) -> Outcome:
    """Makes `count` calls of a library of plain, split-K and tensor-map kernels."""
    from support import bad_calls  # it imports what the tests do, which takes longer than a part

    if shutil.which("gcc") is None:
        return Outcome(skipped=("no gcc",))
    bad_calls.build(folder)
    result = bad_calls.run(folder, count, seed + 1)
    broken = [f"seed {seed + 1}: {line}" for line in result.unsafe]
    if result.reports:
        broken.append(f"seed {seed + 1}: {result.reports[:1000]}")
    if result.calls != count:
        broken.append(f"seed {seed + 1}: {result.calls} of {count} calls were made")
    counts = {"calls": result.calls, "refused": result.refused, "accepted": result.accepted}
    return Outcome(counts, broken=tuple(broken))


def run_occupancies(count: int, seed: int, folder: Path) -> Outcome:
    """Compares resident blocks and all limits of `count` kernels, spread over all capabilities."""
    oracle = compiled(folder)
    share, extra = divmod(count, len(ARCHITECTURES))
    broken: list[str] = []
    for place, capability in enumerate(ARCHITECTURES):
        device = DEVICES[capability]
        kernels = [*random_kernels(device, share + (place < extra), seed + 1)]
        wrong = differing(oracle, device, kernels) if kernels else []
        major, minor = capability
        broken += [f"compute capability {major}.{minor}: {kernel}" for kernel in wrong]
    counts = {"cases": count, "wrong": len(broken)}
    return Outcome(counts, broken=tuple(broken))


if __name__ == "__main__":
    typer.run(main)
