"""Runs launch plans on the CPU: the kernels of `cuda_src/`, compiled by the host compiler with
AddressSanitizer and UBSan (`tests/host/cuda_host.h`, `tests/host/launcher.cpp`).

`build` compiles kernel instances into one program, `run` gives it cases, `check` compares their
results with numpy's in float64, and `case_of` makes one of random operands. A case fails with a
`HostFault` for an access outside of its buffers or its shared memory, a misaligned vector,
undefined behaviour, a divergent barrier, or arguments of other types than the kernel takes. Missing
barriers and missing waits for asynchronous copies show as NaN or wrong results: shared memory
starts as NaN, and the threads of a block run in a new random order after each barrier.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune import families
from autotune.config import Config
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import Problem

Matrix = NDArray[np.float32]

HOST = Path(__file__).parent / "host"
CUDA_SRC = Path(__file__).parent.parent / "cuda_src"
COMPILER = os.environ.get("CXX", "g++")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-march=native", "-fno-omit-frame-pointer"),
    *("-fno-strict-aliasing", "-Wno-unknown-pragmas", *SANITIZERS),
)
TIME_LIMIT = 120.0
BUFFERS = ("a", "b", "c", "workspace")


class HostFault(AssertionError):
    """A kernel did something illegal; the message holds the sanitizer's report."""


@dataclass(frozen=True)
class Program:
    """An executable that holds kernel instances."""

    path: Path


@dataclass(frozen=True)
class Case:
    """One multiplication: the plan and its operands.

    `a` and `b` have the shapes in which they are stored, (k, m) for a transposed A. Each operand is
    put at exactly the alignment that the plan counts on, with rows `leading_dimensions` apart.
    """

    plan: LaunchPlan
    a: Matrix
    b: Matrix
    c: Matrix
    leading_dimensions: tuple[int, int, int]
    alpha: float = 1.0
    beta: float = 0.0


def build(templates: Iterable[Template], directory: Path, sources: Path = CUDA_SRC) -> Program:
    """Compiles the templates, whose files lie in `sources`, and links them with the launcher.

    Objects are kept in `directory` under the hash of all that went into them. Functions of the same
    name and parameters in two files are one to the linker: they must be the same.

    Raises:
        subprocess.CalledProcessError: if something does not compile.
    """
    directory.mkdir(parents=True, exist_ok=True)
    launcher = (HOST / "launcher.cpp").read_text()
    units = [launcher, *sorted({_unit(template, sources) for template in templates})]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda unit: _object(unit, directory), units))
    program = directory / _digest(*map(str, objects))
    if not program.exists():
        _compile(program, *SANITIZERS, *map(str, objects))
    return Program(program)


def case_of(
    config: Config,
    problem: Problem,
    *,
    padding: tuple[int, int, int] = (0, 0, 0),
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Case:
    """A case of normal random operands, with `padding` more elements in each row of A, B and C.

    The plan counts on as much alignment as the rows allow. At beta = 0, C is NaN.
    """
    dense = problem.leading_dimensions
    lda, ldb, ldc = (ld + extra for ld, extra in zip(dense, padding, strict=True))
    alignment = Alignment.of((lda, ldb, ldc), (0, 0, 0), problem.element_bytes)
    plan = families.find(config.family).plan(config, problem, alignment)
    return random_case(plan, (lda, ldb, ldc), alpha, beta)


def random_case(
    plan: LaunchPlan,
    leading_dimensions: tuple[int, int, int],
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Case:
    """A case of normal random operands for `plan`. At beta = 0, C is NaN."""
    problem, random = plan.problem, np.random.default_rng(0)
    a = random.standard_normal((problem.m, problem.k), np.float32)
    b = random.standard_normal((problem.k, problem.n), np.float32)
    c = random.standard_normal((problem.m, problem.n), np.float32)
    return Case(
        plan,
        a if problem.layout[0] == "n" else a.T,
        b if problem.layout[1] == "n" else b.T,
        c if beta else np.full_like(c, np.nan),
        leading_dimensions,
        alpha,
        beta,
    )


def run(program: Program, cases: Sequence[Case]) -> list[Matrix]:
    """C after each case, computed by one process.

    Raises:
        HostFault: names the first case that did something illegal, and says what it did.
        subprocess.TimeoutExpired: if a kernel does not come to an end.
    """
    process = subprocess.run(
        [program.path],
        input=b"".join(_job(case) for case in cases),
        capture_output=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    output, results = process.stdout, []
    for case in cases:
        before = _stored(case.c, case.leading_dimensions[2])
        if len(output) < before.nbytes:
            raise HostFault(f"{_label(case)}: {process.stderr.decode(errors='replace')[:4000]}")
        after = np.frombuffer(output[: before.nbytes], np.float32)
        results.append(_matrix(before, after, case))
        output = output[before.nbytes :]
    return results


def check(program: Program, cases: Sequence[Case]) -> None:
    """Runs the cases and compares each with numpy's result in float64.

    Raises:
        HostFault: as `run`, or if an error is above the tolerance (or NaN).
    """
    for case, result in zip(cases, run(program, cases), strict=True):
        error, allowed = np.abs(result - _expected(case)).max(), _tolerance(case)
        if not error <= allowed:
            raise HostFault(f"{_label(case)}: error {error:.3g}, tolerance {allowed:.3g}")


def _expected(case: Case) -> NDArray[np.float64]:
    a, b = case.a.astype(np.float64), case.b.astype(np.float64)
    layout = case.plan.problem.layout
    product = (a if layout[0] == "n" else a.T) @ (b if layout[1] == "n" else b.T)
    return case.alpha * product + (case.beta * case.c if case.beta else 0.0)


def _tolerance(case: Case) -> float:
    """What fp32 may be off by for normal random operands.

    The K roundings of a sum add up like a random walk with a deviation of at most u K / sqrt(6),
    u = 2^-24: 4 u K is ten of them. 64 u covers single products of extreme values, 16 u what
    alpha and beta add.
    """
    k = case.plan.problem.k
    return 2.0**-24 * (abs(case.alpha) * (4 * k + 64) + 16 * abs(case.beta))


def _unit(template: Template, sources: Path) -> str:
    """A translation unit that instantiates the template and registers it under its name."""
    text = (sources / template.source).read_text()
    assert len(re.findall("__shared__", text)) == len(re.findall(r"extern\s+__shared__", text))
    names = sorted(set(re.findall(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]", text)))
    return "\n".join(
        [
            '#include "cuda_host.h"',
            *(f'asm(".set {name}, host_shared");' for name in names),
            f'#include "{sources / template.source}"',
            f'static const host::Instance instance("{_name(template)}",',
            f"    host::Kernel<{template.expression}>::run);",
        ]
    )


def _object(unit: str, directory: Path) -> Path:
    sources = re.findall(r'#include "(/.*)"', unit)
    headers = sorted([*HOST.glob("*.h"), *CUDA_SRC.glob("include/*")])
    key = _digest(
        COMPILER, *FLAGS, unit, *(Path(file).read_text() for file in [*sources, *headers])
    )
    target = directory / f"{key}.o"
    if not target.exists():
        source = directory / f"{key}.cpp"
        source.write_text(unit)
        folders = (HOST, CUDA_SRC, CUDA_SRC / "include")
        _compile(target, *FLAGS, *(f"-I{folder}" for folder in folders), "-c", str(source))
    return target


def _compile(target: Path, *arguments: str) -> None:
    partial = target.with_suffix(f".{os.getpid()}")
    subprocess.run([COMPILER, *arguments, "-o", str(partial)], check=True)
    partial.replace(target)


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:24]


def _name(template: Template) -> str:
    return f"{template.source}:{template.expression}"


def _label(case: Case) -> str:
    return f"{case.plan.config} on {case.plan.problem}"


def _stored(matrix: Matrix, leading_dimension: int) -> Matrix:
    """The matrix as it lies in memory, NaN between its rows, ending with its last element."""
    rows, columns = matrix.shape
    memory = np.full((rows, leading_dimension), np.nan, np.float32)
    memory[:, :columns] = matrix
    flat: Matrix = memory.ravel()
    return flat[: (rows - 1) * leading_dimension + columns]


def _matrix(before: Matrix, after: Matrix, case: Case) -> Matrix:
    """The matrix in the memory `after`, once nothing between its rows is found changed."""
    rows, columns = case.c.shape
    gaps = np.arange(after.size) % case.leading_dimensions[2] >= columns
    if (after.view(np.uint32)[gaps] != before.view(np.uint32)[gaps]).any():
        raise HostFault(f"{_label(case)}: wrote between the rows of C")
    matrix: Matrix = after[~gaps].reshape(rows, columns)
    return matrix


def _job(case: Case) -> bytes:
    """The case in the form that `launcher.cpp` reads."""
    alignment = case.plan.alignment
    matrices = zip((case.a, case.b, case.c), case.leading_dimensions, strict=True)
    contents = [_stored(matrix, ld).tobytes() for matrix, ld in matrices]
    contents.append(b"\xff" * case.plan.workspace)
    starts = [4 * alignment.a, 4 * alignment.b, 4 * alignment.c, 16]
    return b"".join(
        [
            struct.pack("<I", len(case.plan.launches)),
            *(
                struct.pack("<II", start, len(content)) + content
                for start, content in zip(starts, contents, strict=True)
            ),
            *(_launch(launch, case) for launch in case.plan.launches),
        ]
    )


def _launch(launch: Launch, case: Case) -> bytes:
    name = _name(launch.template).encode()
    head = struct.pack("<I", len(name)) + name
    shape = struct.pack("<7I", *launch.grid, *launch.block, launch.shared)
    count = struct.pack("<I", len(launch.arguments))
    return head + shape + count + b"".join(_argument(each, case) for each in launch.arguments)


def _argument(argument: Argument, case: Case) -> bytes:
    if argument.type == "pointer":
        return struct.pack("<cI", b"p", BUFFERS.index(str(argument.value)))
    lda, ldb, ldc = case.leading_dimensions
    symbols = {"lda": lda, "ldb": ldb, "ldc": ldc, "alpha": case.alpha, "beta": case.beta}
    value = symbols[argument.value] if isinstance(argument.value, str) else argument.value
    form = {"i32": "i", "i64": "q", "f32": "f"}[argument.type]
    code = {"i32": b"i", "i64": b"l", "f32": b"f"}[argument.type]
    return struct.pack(f"<c{form}", code, value)
