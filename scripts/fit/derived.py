"""Rebuilds the package's derived data: what is fitted to recordings or made from shipped records.

    python scripts/fit/derived.py            rebuilds what is out of date, in order
    python scripts/fit/derived.py --check    names what is out of date; the exit status is then 1
    python scripts/fit/derived.py digests    writes the digests beside the shipped bundles
    python scripts/fit/derived.py idle       compiles the kernels of autotune/data/idle

needs no GPU. `derived.json` keeps the hashes of each step's inputs and outputs, so that a step is
out of date as soon as either changes; a test runs the check. Fitting the cost model and its
correction takes minutes, the portfolio 16 minutes on two cores. A digest serves as long as its
bundle, the cost model's coefficients and the version are those it was made with; look-ups else
make one in the cache, which takes seconds.
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

from autotune import settings
from autotune.lookup import digest
from autotune.records import bundle, shipped
from autotune.records.bundle import BundleReader

ROOT = Path(__file__).resolve().parents[2]
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
            ("scripts/fit/cost.py", H100, SWEEPS, "--out", COST),
            ("scripts/fit/cost.py", H200, *EIGHT_BIT, "--out", COST),
        ),
    ),
    "correction": Step(
        (CORRECTION,),
        (COST, H100, H200, DRAWN),
        (("scripts/fit/correction.py", H100, H200, DRAWN, "--out", CORRECTION),),
    ),
    "digests": Step(
        (DIGESTS,), (BUNDLES, COST, CORRECTION, DEVICES), (("scripts/fit/derived.py", "digests"),)
    ),
    "portfolio": Step(
        (f"{DATA}/portfolio.json",),
        (COST, CORRECTION, DEVICES, DIGESTS),
        (("scripts/fit/portfolio.py", f"{DATA}/portfolio.json"),),
    ),
    "expected loss": Step(
        (f"{DATA}/expected_loss.json",),
        (COST, CORRECTION, H100, H200, DRAWN),
        (("scripts/fit/left_out.py", H100, *LEARN, "--fit"),),
    ),
}


def rebuild(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Name the steps that are out of date and stop.")
    ] = False,
) -> None:
    """Rebuild the derived data that is out of date."""
    if context.invoked_subcommand is None:
        main(check)


def main(
    check: Annotated[
        bool, typer.Option("--check", help="Name the steps that are out of date and stop.")
    ] = False,
) -> None:
    """Rebuild the derived data that is out of date."""
    if check:
        stale = [*out_of_date()]
        for name in stale:
            print(f"{name}: out of date; run python scripts/fit/derived.py")
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


def digests(
    folder: Annotated[Path | None, typer.Argument(help="Folder of bundles; the package's.")] = None,
) -> None:
    """Writes a digest for each bundle of a folder."""
    for path in shipped.paths(folder or settings.shipped_dir()):
        print(f"{write(path)}: {digest.beside(path).stat().st_size:,} bytes")


def write(path: Path) -> Path:
    """Writes a bundle's digest, and the bundle itself in parts; returns the digest's path."""
    content = bundle.loads(path.read_bytes())
    data = bundle.dumps(content.records, content.ranges)
    path.write_bytes(data)
    out = digest.beside(path)
    out.write_bytes(digest.made(BundleReader(data).header.sha256, content.records))
    return out


IDLE = ROOT / "autotune/data/idle"
ARCHITECTURES = ("sm_90", "sm_100", "sm_110", "sm_120")
SOURCE = b'extern "C" __global__ void idle() {}'


def cubin(arch: str) -> bytes:
    """The kernel compiled for an architecture."""
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={arch}".encode(), b"--no-source-include"]
    program = _called(nvrtc.nvrtcCreateProgram(SOURCE, b"idle.cu", 0, [], []))
    _called(nvrtc.nvrtcCompileProgram(program, len(options), options))
    code = bytes(_called(nvrtc.nvrtcGetCUBINSize(program)))
    _called(nvrtc.nvrtcGetCUBIN(program, code))
    _called(nvrtc.nvrtcDestroyProgram(program))
    return code


def _called(answer: tuple[object, ...]) -> int:
    status, *values = answer
    if int(status):  # type: ignore[call-overload]
        raise SystemExit(f"NVRTC says {status!r}")
    return values[0] if values else 0  # type: ignore[return-value]


def idle() -> None:
    """Compiles the kernel that does nothing, with which drivers are asked for resident clusters.

    A file for each architecture whose programs run on all later minor versions; a driver loads it
    in 0.1 ms and would take 20 to 60 ms to compile it.
    """
    IDLE.mkdir(exist_ok=True)
    for name in ARCHITECTURES:
        code = cubin(name)
        (IDLE / f"{name}.cubin").write_bytes(code)
        print(f"{name}: {len(code)} bytes")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(rebuild)
    app.command()(digests)
    app.command()(idle)
    app()
