"""Rebuilds the package's derived data: what is fitted to recordings or made from shipped records.

    python scripts/derived.py            rebuilds what is out of date, in order
    python scripts/derived.py --check    names what is out of date; the exit status is then 1

needs no GPU. `derived.json` keeps the hashes of each step's inputs and outputs, so that a step is
out of date as soon as either changes; a test runs the check. Fitting the cost model and its
correction takes minutes, the portfolio 16 minutes on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parents[1]
HASHES = Path(__file__).with_suffix(".json")

DATA = "autotune/data"
COST, CORRECTION, DEVICES = f"{DATA}/cost.json", f"{DATA}/correction.npz", f"{DATA}/devices.json"
BUNDLES, DIGESTS = f"{DATA}/shipped/*.jsonl.xz", f"{DATA}/shipped/*.digest"
H100, H200 = "docs/results/h100/trials.zip", "docs/results/h200/trials.zip"
SWEEPS, DRAWN = f"{DATA}/recordings/h100", "docs/results/h200/drawn.zip"
EIGHT_BIT = ("--precision", "f8", "--precision", "i8")
LEARN = ("--learn", H100, "--learn", H200, "--learn", DRAWN)


@dataclass(frozen=True)
class Step:
    """A step of the rebuild.

    Attributes:
        outputs: patterns of the files it writes, from the root of the repository.
        inputs: patterns of the files it reads; outputs of earlier steps among them.
        commands: the arguments of Python that rebuild the outputs.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]

    def hashes(self) -> dict[str, str]:
        """The hash of the files of each pattern."""
        return {pattern: _hash(pattern) for pattern in (*self.inputs, *self.outputs)}


STEPS: Mapping[str, Step] = {
    "cost model": Step(
        (COST,),
        (H100, f"{SWEEPS}/*.json.gz", H200),
        (
            ("scripts/fit_cost.py", H100, SWEEPS, "--out", COST),
            ("scripts/fit_cost.py", H200, *EIGHT_BIT, "--out", COST),
        ),
    ),
    "correction": Step(
        (CORRECTION,),
        (COST, H100, H200, DRAWN),
        (("scripts/fit_correction.py", H100, H200, DRAWN, "--out", CORRECTION),),
    ),
    "digests": Step((DIGESTS,), (BUNDLES, COST, CORRECTION, DEVICES), (("scripts/digests.py",),)),
    "portfolio": Step(
        (f"{DATA}/portfolio.json",),
        (COST, CORRECTION, DEVICES, DIGESTS),
        (("scripts/portfolio.py", f"{DATA}/portfolio.json"),),
    ),
    "expected loss": Step(
        (f"{DATA}/expected_loss.json",),
        (COST, CORRECTION, H100, H200, DRAWN),
        (("scripts/left_out.py", H100, *LEARN, "--fit"),),
    ),
}


def main(
    check: Annotated[
        bool, typer.Option("--check", help="Name the steps that are out of date and stop.")
    ] = False,
) -> None:
    """Rebuild the derived data that is out of date."""
    if check:
        stale = [*out_of_date()]
        for name in stale:
            print(f"{name}: out of date; run python scripts/derived.py")
        raise typer.Exit(bool(stale))
    for name, step in STEPS.items():
        if name not in {*out_of_date()}:
            continue
        for command in step.commands:
            print(f"{name}: python {' '.join(command)}", flush=True)
            subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
        _write({**_read(), name: step.hashes()})


def out_of_date() -> Iterator[str]:
    """The steps whose inputs or outputs are not those of their last rebuild, in order."""
    kept = _read()
    return (name for name, step in STEPS.items() if kept.get(name) != step.hashes())


def _hash(pattern: str) -> str:
    """The hash of the names and contents of the files that a pattern matches."""
    digest = sha256()
    for path in sorted(ROOT.glob(pattern)):
        digest.update(f"{path.name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _read() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads(HASHES.read_text()) if HASHES.exists() else {}
    return content


def _write(hashes: Mapping[str, Mapping[str, str]]) -> None:
    HASHES.write_text(json.dumps(hashes, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
