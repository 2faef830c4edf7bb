"""Random invalid calls of an exported library, under the sanitizers of the C compiler."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from autotune.export import ExportedLibrary, write_library
from autotune.export.tables import codes
from autotune.families.config import Config
from autotune.problem import Problem
from support import exported_library
from support.exported_library import C11, SCALED, environment_of
from support.paths import TESTS

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
# Split-K, which needs a workspace with counters.
SPLIT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=8,reduction=fused,workers=0,chunks=1,pack=none,group=1,fence=0,order=rows"
)
MAPPED = Problem(4096, 4096, 4096, "bf16")
"""A wgmma kernel, which takes a tensor map for each operand."""

SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class BadCalls:
    """The answers of a library to random calls.

    Attributes:
        calls: number of calls.
        refused: calls that a status refused.
        accepted: calls that were launched, or whose kernel was named.
        unsafe: a line for each wrong answer: accepted against a rule, refused without one.
        reports: what the sanitizers wrote; empty if they found nothing.
    """

    calls: int
    refused: int
    accepted: int
    unsafe: tuple[str, ...]
    reports: str


def library() -> ExportedLibrary:
    """A library of plain kernels, of kernels with a workspace, with tensor maps and with scales."""
    wide = exported_library.library_of(
        {
            Problem(6, 5, 7): NAIVE,
            Problem(64, 48, 40, layout="tt", epilogue="bias"): NAIVE,
            Problem(5, 9, 4, layout="nt", batch=3, epilogue="bias_gelu"): NAIVE,
            Problem(64, 64, 4096): SPLIT,
            MAPPED: exported_library.tuned()[MAPPED],
        }
    )
    return exported_library.with_scaled(
        wide, [problem for problem in SCALED if problem.batch == 3 or problem.output == "i32"]
    )


def build(folder: Path) -> None:
    """Builds the caller of `library` with its fake driver in an empty folder."""
    exported = library()
    write_library(exported, folder, "c")
    exported_library.fake_driver(folder, exported, *SANITIZERS)
    # No kernel computes anything: the addresses of the operands are not memory.
    kernels = folder / "driver" / "kernels"
    rows = (line.split(" ") for line in kernels.read_text().splitlines())
    kernels.write_text("".join(f"{' '.join((*row[:3], '-1', *row[4:]))}\n" for row in rows))
    compile(folder)


def copy(folder: Path, other: Path) -> None:
    """Copies what `build` built to another empty folder."""
    shutil.copytree(folder, other, dirs_exist_ok=True)


def compile(folder: Path) -> None:
    """Compiles the library's source in a folder, and its caller unless it was copied."""
    command = [*C11, "-D_GNU_SOURCE", "-Wall", "-Wextra", *SANITIZERS, f"-I{folder}"]
    source, caller, program = folder / "lib.c", folder / "bad_calls.o", folder / "bad_calls"
    if not caller.exists():
        driver = TESTS / "export" / "bad_calls.c"
        subprocess.run([*command, "-c", "-o", str(caller), str(driver)], check=True)
    files = map(str, (program, caller, source))
    subprocess.run([*command, "-o", *files, "-ldl", "-lpthread"], check=True)


def run(folder: Path, count: int, seed: int) -> BadCalls:
    """Makes random calls of the library that `build` built in a folder."""
    result = subprocess.run(
        [folder / "bad_calls", str(count), str(seed)],
        input="".join(map(_line, (gemm.problem for gemm in library().gemms))),
        capture_output=True,
        text=True,
        check=False,
        env=environment_of(folder, FAKE_CUDA_QUIET="1"),
    )
    *unsafe, last = result.stdout.splitlines() or [""]
    if len(numbers := last.split()) != 4:
        return BadCalls(0, 0, 0, tuple(result.stdout.splitlines()), result.stderr or "it died")
    calls, refused, accepted, _ = map(int, numbers)
    return BadCalls(calls, refused, accepted, tuple(unsafe), result.stderr)


def _line(problem: Problem) -> str:
    sizes = problem.m, problem.n, problem.k, problem.batch
    return " ".join(map(str, (*sizes, *codes(problem)))) + "\n"
