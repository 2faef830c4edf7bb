"""An exported library of tuned kernels, built with a C compiler and run on a fake driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from autotune.cuda.launches import layout
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.export import ExportedLibrary, gather, write_library
from autotune.export.library import ExportedGemm
from autotune.export.tables import codes
from autotune.families import cublaslt, plan
from autotune.families.config import Config
from autotune.families.plan import Alignment, Template
from autotune.lookup.answer import Answer
from autotune.problem import ELEMENTWISE, Problem
from autotune.problem.integers import round_up
from autotune.records import bundle
from support.paths import ROOT, TESTS
from support.runtime_case import scaled_plan
from support.sample_records import H100

RESULTS = ROOT / "docs" / "results" / "h100"
SUITES = ("suite-f32", "suite-tf32", "suite-tf32x3", "suite-f16", "suite-bf16", "layouts-f32")
# On a GPU: plain kernels, packed operands, split-K with counters, tensor maps, clusters, batches,
# epilogues.
TEXTS = (
    *("512x512x512", "64x4096x4096", "4097x4095x4093", "128x4096x14336", "1x4096x4096"),
    *("512x14336x4096", "2048x2048x2048:batch=3:bias", "1024x1024x1024:tt"),
    *("64x64x65536:tf32", "1023x1025x1027:tf32"),
    *("512x512x512:tf32x3", "4096x4096x64:tf32x3:batch=3:bias_silu"),
    *("64x64x65536:f16", "1000x1000x1000:f16", "128x128x128:f16:batch=3:bias:out=f32"),
    *("4096x4096x4096:bf16", "1x4096x4096:bf16", "37x53x71:bf16", "32x32x1000000:bf16"),
)
ON_GPU = tuple(map(Problem.parse, TEXTS))
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion")
C11, CXX17 = ("gcc", "-std=c11"), ("g++", "-std=c++17", "-x", "c++")
SHARED = -1
CALLER = TESTS / "export" / "caller.c"
CODES = "compute", "layout", "epilogue", "output", "scale", "accumulate", "e5m2"

# Addresses of operands and of the workspace, far apart and at multiples of 256.
A, B, C, BIAS, WORKSPACE, SCALE_A, SCALE_B, RESIDUAL = (n << 50 for n in range(1, 9))
LARGE = 1 << 40


@cache
def tuned() -> Mapping[Problem, Config]:
    """The fastest kernel on an H100 for each problem of the suites; the shipped record has it where
    cuBLASLt won.

    A third of the problems occur also as a batch with an epilogue.
    """
    configs: dict[Problem, Config] = {}
    for suite in SUITES:
        for number, row in enumerate(json.loads((RESULTS / f"{suite}.json").read_text())["rows"]):
            m, n, k = row["shape"]
            problem = Problem(m, n, k, row["compute"], row["layout"])
            config = Config.parse(row["config"])
            if config.family == cublaslt.NAME:
                config = fastest_kernel(problem)
            configs[problem] = config
            if number % 3 == 0:
                epilogue = ELEMENTWISE[1 + number // 3 % (len(ELEMENTWISE) - 1)]
                configs[replace(problem, batch=3, epilogue=epilogue, output="f32")] = config
    return configs


def tuned_for(problem: Problem) -> Config:
    """The configuration of `tuned` for a problem, whatever its batch and epilogue."""
    return tuned()[replace(problem, batch=1, epilogue="none", output="same")]


def fastest_kernel(problem: Problem) -> Config:
    """The fastest entry of the shipped record on an H100 that is no algorithm of cuBLASLt."""
    paths = (ROOT / "autotune" / "data" / "shipped").glob(f"{H100.slug}*.jsonl.xz")
    bundles = (bundle.loads(path.read_bytes()) for path in paths)
    (record,) = (each for shipped in bundles for each in shipped.records if each.problem == problem)
    kernels = [entry for entry in record.entries if entry.config.family != cublaslt.NAME]
    return min(kernels, key=lambda entry: entry.measurement.time_us).config


def fake_build(template: Template, arch: str) -> Program:
    """A program that was not compiled: 64 to 319 arbitrary bytes stand for its machine code."""
    target = f"{arch}a" if template.specific else arch
    key = sha256(f"{template.label} {target}".encode()).hexdigest()
    symbol = f"{template.kernel}_{key[:12]}"
    code = (5 * key)[: 64 + int(key[:2], 16)].encode()
    return Program(template, target, code, symbol, 32, 0, 0, 0, 1, "fake", key, "")


def fake_ptx(program: Program) -> bytes:
    """Text that stands for a program's PTX."""
    return f"// PTX of {program.symbol}\n.target {program.arch}\n".encode()


def library_of(
    configs: Mapping[Problem, Config],
    devices: Sequence[Device] = (H100,),
    name: str = "lib",
    *,
    ptx: bool = False,
) -> ExportedLibrary:
    """The library of problems with fixed configurations."""

    def find(problem: Problem, device: Device) -> Answer:
        return answer_of(problem, device, configs[problem])

    compile = fake_ptx if ptx else None
    return gather(name, list(configs), devices, find, fake_build, ptx=compile)


SCALED = (
    Problem(64, 48, 256, "f8", "nt", scale="tensor"),
    Problem(64, 48, 256, "f8", "nt", 2, "bias_relu", scale="row", output="f32"),
    Problem(6, 130, 300, "f8", "nt", 3, scale="block", accumulate="fast"),
    Problem(64, 48, 256, "f8", "nt"),
    Problem(64, 48, 256, "f8e5", "nt", e5m2="b", output="f16"),
    Problem(64, 48, 256, "i8", "nt", output="i32"),
    Problem(64, 48, 256, "i8", "nt", scale="row"),
    Problem(64, 48, 256, "f8", "nt", 2, "bias_residual"),
    Problem(64, 48, 256, "f8", "nt", 2, "swiglu"),
)
"""A problem for each word of operands of 8 bits."""


def with_scaled(library: ExportedLibrary, problems: Sequence[Problem] = SCALED) -> ExportedLibrary:
    """The library with kernels for operands of 8 bits, which no family has to serve."""
    gemms = []
    for problem in problems:
        launched = scaled_plan(problem)
        programs = tuple(fake_build(launch.template, H100.arch) for launch in launched.launches)
        answer = answer_of(problem, H100, launched.config)
        gemms.append(ExportedGemm(answer, Alignment.dense(problem), launched, programs))
    return replace(library, gemms=(*library.gemms, *gemms))


def answer_of(problem: Problem, device: Device, config: Config) -> Answer:
    """The answer of an exact record; its other fields do not matter."""
    return Answer(problem, device, config, "exact", "measured", None, 10.0, "")


@dataclass(frozen=True)
class Call:
    """A call of the C library. Leading dimensions and strides of 0 mean no gaps."""

    problem: Problem
    a: int = A
    b: int = B
    c: int = C
    bias: int | None = None
    scales: tuple[int, int] | None = None
    residual: int | None = None
    residual_steps: tuple[int, int] = (0, 0)
    of_result: tuple[int, int] = (0, 0)
    leading: tuple[int, int, int] = (0, 0, 0)
    strides: tuple[int, int, int] = (0, 0, 0)
    alpha: float = 1.0
    beta: float = 0.0
    workspace: int = WORKSPACE
    bytes: int = LARGE
    stream: int = 7
    dependent: bool = False
    changed: Mapping[str, int] = field(default_factory=dict)

    def line(self, verb: str = "matmul") -> str:
        """The line that `caller.c` reads; `changed` overrides fields of the call."""
        problem = self.problem
        bias = (BIAS if problem.has_bias else 0) if self.bias is None else self.bias
        present = (SCALE_A, SCALE_B) if problem.scale != "none" else (0, 0)
        scales = present if self.scales is None else self.scales
        words = dict(zip(CODES, codes(problem), strict=True))
        own = RESIDUAL if problem.has_residual else 0
        residual = own if self.residual is None else self.residual
        fields = {
            **{"m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.batch},
            **words,
            "dependent": int(self.dependent),
            **self.changed,
        }
        late = [fields.pop(name) for name in ("dependent", "scale", "accumulate", "e5m2")]
        numbers = (*fields.values(), self.a, self.b, self.c, bias, *self.leading, *self.strides)
        added = residual, *self.residual_steps, *self.of_result
        space = *added, self.workspace, self.bytes, self.stream
        last = self.alpha, self.beta, *late, *scales, *space
        return " ".join(map(str, (verb, *numbers, *last)))


class Launch(NamedTuple):
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    dependent: bool
    arguments: tuple[bytes, ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call.

    Attributes:
        status: the status it returned.
        error: the result of `driver_error` afterwards.
        message: the message of the status.
        lines: the lines that the fake driver and the caller printed before.
    """

    status: int
    error: int
    message: str
    lines: tuple[str, ...]

    @property
    def launches(self) -> list[Launch]:
        launched = []
        for words in (line.split(" ") for line in self.lines if line.startswith("launch ")):
            x, y, z, *block, shared, stream, dependent = (int(word) for word in words[2:11])
            values = tuple(bytes.fromhex(word) for word in words[11].split(",")[:-1])
            across, down, deep = block
            shape = (x, y, z), (across, down, deep), shared, stream
            launched.append(Launch(words[1], *shape, bool(dependent), values))
        return launched

    def count(self, verb: str) -> int:
        return sum(line.split(" ")[0] == verb for line in self.lines)


@dataclass(frozen=True)
class Built:
    """A caller of an exported library, and the fake driver.

    Attributes:
        folder: the folder of the library; `driver/libcuda.so.1` is in it.
        program: the caller.
    """

    folder: Path
    program: Path
    library: ExportedLibrary

    def run(
        self, lines: Iterable[str], words: Sequence[str] = (), **environment: str
    ) -> tuple[int, list[Outcome]]:
        """Makes calls; returns the exit status and the outcome of each."""
        result = subprocess.run(
            [self.program, *words],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
            env=environment_of(self.folder, **environment),
        )
        outcomes: list[Outcome] = []
        before: list[str] = []
        for line in result.stderr.splitlines():
            match = re.fullmatch(r"status (-?\d+) (-?\d+) (.*)", line)
            if match is None:
                before.append(line)
                continue
            outcomes.append(Outcome(int(match[1]), int(match[2]), match[3], tuple(before)))
            before = []
        if before:
            outcomes.append(Outcome(result.returncode, 0, "", tuple(before)))
        return result.returncode, outcomes

    def call(self, call: Call, verb: str = "matmul", **environment: str) -> Outcome:
        """Makes one call in a process of its own."""
        _, (outcome,) = self.run([call.line(verb)], **environment)
        return outcome


def environment_of(folder: Path, **more: str) -> dict[str, str]:
    """The environment in which the fake driver, with the kernels of a library, is loaded."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAKE_")},
        "LD_LIBRARY_PATH": str(folder / "driver"),
        "FAKE_CUDA_KERNELS": str(folder / "driver" / "kernels"),
        **more,
    }


def fake_driver(folder: Path, library: ExportedLibrary, *flags: str) -> None:
    """Builds the fake driver in a folder, with a table of a library's kernels."""
    (folder / "driver").mkdir()
    source, driver = TESTS / "export" / "fake_driver.c", folder / "driver" / "libcuda.so.1"
    command: list[str | Path] = ["gcc", "-O1", "-Wall", *flags, "-shared", "-fPIC", "-o", driver]
    subprocess.run([*command, source, "-lm", "-lpthread"], check=True)
    rows = dict.fromkeys(
        f"{program.symbol} {_kind(launch)} {' '.join(_sizes(launch))}"
        for launch, program in library.launches
    )
    (folder / "driver" / "kernels").write_text("".join(f"{row}\n" for row in rows))


def built(folder: Path, library: ExportedLibrary, *flags: str) -> Built:
    """Writes a library, and builds it with its caller and the fake driver."""
    write_library(library, folder, "c")
    fake_driver(folder, library)
    program = folder / "caller"
    sources = [CALLER, folder / f"{library.name}.c"]
    subprocess.run(
        [*C11, *flags, f"-I{folder}", "-o", program, *sources, "-ldl", "-lpthread"], check=True
    )
    return Built(folder, program, library)


def counter_bytes(library: ExportedLibrary) -> int:
    """Bytes of the counters at the start of a workspace, padded to 256."""
    return round_up(4 * library.counters, 256)


def _sizes(launch: plan.Launch) -> list[str]:
    return [str(layout((type,)).size) for type in launch.parameters]


def _kind(launch: plan.Launch) -> str:
    """Transpositions and epilogue of a plain fp32 kernel; the epilogue is -1 for other kernels."""
    values = launch.template.numbers
    cells = [cell.value for cell in launch.cells]
    plain = cells[:6] == ["a", "lda", "b", "ldb", "c", "ldc"] and values.get("TYPE", 0) == 0
    struct = launch.template.kernel == "simt" and cells[:3] == ["a", "b", "c"]
    epilogue = values.get("EPILOGUE", 0) if plain or struct else -1
    return f"{values.get('TRANS_A', 0)} {values.get('TRANS_B', 0)} {epilogue}"
