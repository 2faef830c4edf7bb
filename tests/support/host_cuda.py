"""Runs launch plans on the CPU.

The host compiler builds the kernels of `cuda_src/` with AddressSanitizer and UBSan
(`tests/host/cuda_host.h`, `tests/host/launcher.cpp`). Headers that wrap GPU instructions are
replaced by headers of the same path in `tests/host`, which emulate barriers, bulk copies and tensor
cores: `tests/host` is searched for headers first.

`build` compiles kernel instances into one program, `run` runs cases (`host_cases`) in it, and
`check` compares their results with NumPy's in float64. A case fails with a `HostFault` for an
access outside of its buffers or its shared memory, a misaligned vector, undefined behaviour, a
divergent barrier or shuffle, counters that are not zero again, or arguments of other types than the
kernel takes. Missing barriers and missing waits for asynchronous copies show as NaN or wrong
results: shared memory starts as NaN, and the threads of a block run in a new random order after
each barrier. Bulk copies complete late and in any order; a deadlock is reported with the places
that wait. Clusters run one after the other, in a new random order at each launch; the blocks of a
cluster run in turns of random length. An arrival, a bulk load or a store that reaches an exited
block of the cluster is a fault, and so are announced bytes that have not come by the end.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from autotune.families.plan import PARAMS, Template
from support.host_cases import (
    Case,
    HostFault,
    Matrix,
    c_in,
    expected,
    job,
    label,
    memory_of_c,
    name_of,
    numbers,
    tolerance,
)
from support.paths import ROOT, TESTS

HOST = TESTS / "host"
CUDA_SRC = ROOT / "cuda_src"
INCLUDE = CUDA_SRC / "include"
# The sources of the machine that runs the kernels.
MACHINE = (
    *("launcher.cpp", "threads.cpp", "machine.cpp", "meetings.cpp", "clusters.cpp"),
    *("bulk_copies.cpp", "tensor_cores.cpp"),
)
COMPILER = os.environ.get("CXX", "g++")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = (
    *("-std=c++17", "-g1", "-march=native", "-fno-omit-frame-pointer"),
    *("-fno-strict-aliasing", "-Wno-unknown-pragmas", "-Wno-psabi", *SANITIZERS),
)
TIME_LIMIT = 120.0
# Instances of a kernel that are compiled together, as they share what is read of the headers.
TOGETHER = 8
CLUSTER = r"__cluster_dims__\(([^()]*)\)"


@dataclass(frozen=True)
class Program:
    """An executable that holds kernel instances."""

    path: Path


def build(templates: Iterable[Template], directory: Path, sources: Path = CUDA_SRC) -> Program:
    """Compiles the templates of files in `sources`, and links them with the launcher.

    Objects are kept in `directory` under the hash of all their inputs; several processes may share
    it. The linker merges functions of the same name and parameters in two files: their bodies must
    be the same.

    Raises:
        subprocess.CalledProcessError: if something does not compile.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # Compiling a kernel with optimisation takes longer than it saves.
    units = [
        *(((HOST / name).read_text(), "-O1") for name in MACHINE),
        *((unit, "-O0") for unit in _units(set(templates), sources)),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda unit: _object(unit[0], unit[1], directory), units))
    program = directory / _digest(*map(str, objects))
    with _claimed(program) as missing:
        if missing:
            _compile(program, *SANITIZERS, *map(str, objects))
    return Program(program)


def run(program: Program, cases: Sequence[Case]) -> list[Matrix]:
    """C after each case, as it is stored (`host_cases.numbers` reads it), computed by one process.

    Raises:
        HostFault: names the first case that did something illegal, and says what it did.
        subprocess.TimeoutExpired: if a kernel does not come to an end.
    """
    return [c for c, _ in run_whole(program, cases)]


def run_whole(program: Program, cases: Sequence[Case]) -> list[tuple[Matrix, float | None]]:
    """C and amax after each case, as `run`."""
    process = subprocess.run(
        [program.path],
        input=b"".join(job(case) for case in cases),
        capture_output=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    output, results = process.stdout, []
    for case in cases:
        size = memory_of_c(case).nbytes
        amax = output[size : size + (0 if case.amax is None else 4)]
        if len(output) < size:
            raise HostFault(f"{label(case)}: {process.stderr.decode(errors='replace')[:4000]}")
        c = c_in(np.frombuffer(output[:size], case.c.dtype), case)
        results.append((c, float(np.frombuffer(amax, np.float32)[0]) if amax else None))
        output = output[size + len(amax) :]
    return results


def check(program: Program, cases: Sequence[Case]) -> None:
    """Runs the cases and compares each with NumPy's result in float64.

    Raises:
        HostFault: as `run`, or if an error is above the tolerance (or NaN).
    """
    for case, (result, amax) in zip(cases, run_whole(program, cases), strict=True):
        wanted, scale = expected(case), case.scale_c
        largest = max(case.amax or 0.0, np.abs(wanted).max())
        if amax is not None and not abs(amax - largest) <= 1e-4 * largest:
            raise HostFault(f"{label(case)}: amax is {amax:.6g}, not {largest:.6g}")
        found, element = (
            numbers(result, case.problem.output_type) / scale,
            case.problem.output_element,
        )
        allowed = tolerance(case, wanted)
        if case.problem.has_fp8_output:
            wanted = np.clip(wanted, -element.largest / scale, element.largest / scale)
            allowed += element.underflow / scale
        error = np.abs(found - wanted)
        if not (error <= allowed).all():
            excess = np.nan_to_num(error / np.maximum(allowed, 1e-30), nan=np.inf)
            worst = np.unravel_index(np.argmax(excess), error.shape)
            raise HostFault(
                f"{label(case)}: error {error[worst]:.3g}, tolerance {allowed[worst]:.3g} at "
                f"{tuple(map(int, worst))}, {(~(error <= allowed)).sum()} wrong of {error.size}"
            )


def _units(templates: Collection[Template], sources: Path) -> Iterator[str]:
    """Translation units that instantiate the templates, a group of one source in each."""
    for source in sorted({template.source for template in templates}):
        group = sorted(
            (template for template in templates if template.source == source),
            key=lambda template: template.label,
        )
        for first in range(0, len(group), TOGETHER):
            yield _unit(source, group[first : first + TOGETHER], sources)


def _unit(source: str, templates: Sequence[Template], sources: Path) -> str:
    """A translation unit that instantiates templates and registers them under their names."""
    text = (sources / source).read_text()
    dynamic = len(re.findall(r"extern\s+__shared__", text))
    assert dynamic in (0, len(re.findall("__shared__", text))), "static and dynamic in one file"
    assert len(re.findall("__cluster_dims__", text)) == len(re.findall(CLUSTER, text))
    names = sorted(set(re.findall(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]", text)))
    return "\n".join(
        [
            '#include "cuda_host.h"',
            *(f'asm(".set {name}, host_shared");' for name in names),
            *([] if dynamic else ["#undef __shared__", "#define __shared__ static"]),
            f'#include "{sources / source}"',
            *(_instance(number, template, text) for number, template in enumerate(templates)),
        ]
    )


def _instance(number: int, template: Template, text: str) -> str:
    """Registers an instance; the class of its template arguments is local to the unit."""
    expression = template.expression.replace(f"<{PARAMS}>", f"<instance_{number}::{PARAMS}>")
    return (
        f"namespace {{ namespace instance_{number} {{\n{template.declaration}"
        f"constexpr dim3 cluster = {{{_cluster(template.kernel, text)}}};\n}} }}\n"
        f'static const host::Instance registered_{number}("{name_of(template)}",\n'
        f"    host::Kernel<{expression}>::run, instance_{number}::cluster);"
    )


def _cluster(kernel: str, text: str) -> str:
    """The blocks of a cluster along x, y and z, as the source has them for a kernel."""
    match = re.search(rf"{CLUSTER}[^;{{}}]*?\b{kernel}\(", text)
    return match[1] if match else "1, 1, 1"


def _object(unit: str, optimized: str, directory: Path) -> Path:
    sources = re.findall(r'#include "(/.*)"', unit)
    included = sorted([*HOST.glob("*.h"), *HOST.rglob("*.cuh"), *INCLUDE.rglob("*.cuh")])
    key = _digest(
        COMPILER,
        optimized,
        *FLAGS,
        unit,
        *(Path(file).read_text() for file in [*sources, *included]),
    )
    target, source = directory / f"{key}.o", directory / f"{key}.cpp"
    with _claimed(target) as missing:
        if missing:
            source.write_text(unit)
            folders = (f"-I{folder}" for folder in (HOST, CUDA_SRC, INCLUDE))
            _compile(target, optimized, *FLAGS, *folders, "-c", str(source))
    return target


@contextmanager
def _claimed(target: Path) -> Iterator[bool]:
    """Whether a file is still to be made; meanwhile no other process makes it."""
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not target.exists()


def _compile(target: Path, *arguments: str) -> None:
    partial = target.with_suffix(".partial")
    subprocess.run([COMPILER, *arguments, "-o", str(partial)], check=True)
    partial.replace(target)


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:24]
