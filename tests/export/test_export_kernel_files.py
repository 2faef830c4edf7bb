"""Exports with a real compiler and no GPU: machine code, PTX, sources, and the command line."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import exported_library
from support.command_line import run
from support.exported_library import C11, STRICT
from support.sample_records import H100

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.export import ExportedLibrary, gather, write_library
from autotune.export.writer import specialised
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Launch, Template
from autotune.lookup.answer import Answer
from autotune.problem import Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
SMALL = Problem(64, 48, 40)
TENSOR_CORES = Problem(37, 53, 71, "bf16")
FP16 = Problem(512, 512, 512, "f16")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def library(cache: Path) -> ExportedLibrary:
    """The compiled kernels of a small problem, without general kernels."""

    def find(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(problem, device, NAIVE)

    def build(template: Template, arch: str) -> Program | CompileFailure:
        return compiler.compile(template, arch, cache=cache)

    return gather("lib", [SMALL], [H100], find, build, fallback=False)


def compiled(text: str, arch: str) -> bytes:
    """The cubin of a source that instantiates its kernel itself."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(std="c++17", arch=arch, minimal=True, no_cache=True)
    return bytes(Program(text, "c++", options).compile("cubin").code)


def code(cubin: bytes, symbol: str) -> bytes:
    """The machine code of a kernel: the section `.text.<symbol>` of a 64-bit ELF file."""
    offset, size, count, names = (
        struct.unpack_from("<Q", cubin, 40)[0],
        *struct.unpack_from("<3H", cubin, 58),
    )
    headers = [struct.unpack_from("<IIQQQQ", cubin, offset + size * n) for n in range(count)]
    table = headers[names][4]
    section = f".text.{symbol}".encode()
    for name, _, _, _, start, length in headers:
        begin = table + name
        if cubin[begin : cubin.index(b"\0", begin)] == section:
            return cubin[start : start + length]
    raise LookupError(section)


def sections(program: Program, launch: Launch) -> Iterator[bytes]:
    text = specialised(launch, program, "a test")
    yield code(program.cubin, program.symbol)
    yield code(compiled(text, program.arch), program.symbol)


CASES = [
    *((SMALL, NAIVE), (TENSOR_CORES, exported_library.tuned()[TENSOR_CORES])),
    (FP16, exported_library.tuned()[FP16]),
]


@pytest.mark.parametrize(("problem", "config"), CASES, ids=lambda case: str(case)[:20])
def test_source_compiles_to_the_same_machine_code(
    problem: Problem, config: Config, cache: Path
) -> None:
    for launch in registry.plan(config, problem).launches:
        program = compiler.compile(launch.template, "sm_90", cache=cache)
        assert isinstance(program, Program)
        from_template, from_source = sections(program, launch)
        assert len(from_template) > 500
        assert from_source == from_template


@pytest.mark.parametrize("problem", [*exported_library.tuned()][::6], ids=str)
def test_source_needs_no_header_and_names_every_argument(problem: Problem) -> None:
    for launch in registry.plan(exported_library.tuned()[problem], problem).launches:
        program = exported_library.fake_build(launch.template, "sm_90")
        text = specialised(launch, program, str(problem))
        assert '#include "' not in text
        assert "#pragma once" not in text
        for name, value in launch.template.values.items():
            text_of_value = str(value).lower() if isinstance(value, bool) else value
            assert f" {name} = {text_of_value};\n" in text


def test_ptx_contains_the_kernel(library: ExportedLibrary, tmp_path: Path) -> None:
    write_library(library, tmp_path, "ptx")
    (program,) = library.programs.values()
    (file,) = tmp_path.glob("*.ptx")
    text = file.read_text()
    assert f".entry {program.symbol}(" in text
    assert ".target sm_90" in text


def test_cubin_file_is_that_of_the_program(library: ExportedLibrary, tmp_path: Path) -> None:
    write_library(library, tmp_path, "cubin")
    (program,) = library.programs.values()
    (file,) = tmp_path.glob("*.cubin")
    assert (file.read_bytes(), file.name) == (program.cubin, "lib-naive-0-sm_90.cubin")


def test_library_loads_compiled_cubins(library: ExportedLibrary, tmp_path: Path) -> None:
    outcome = exported_library.built(tmp_path, library, *STRICT[:4]).call(
        exported_library.Call(SMALL)
    )
    assert (outcome.status, outcome.count("load"), outcome.count("launch")) == (0, 1, 1)


def test_export_command_writes_a_library_that_builds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
    words = ["export", "64x48x40", "--device", "h100", "--name", "mine", "--out", str(tmp_path)]
    status = run(*words)
    printed = capsys.readouterr().out
    assert (status, printed.splitlines()[-1]) == (0, str(tmp_path / "mine.json"))
    assert "predicted 64x48x40:f32:nn on NVIDIA H100 80GB HBM3: " in printed
    source = str(tmp_path / "mine.c")
    command = [*C11, *STRICT, "-c", source, "-o", str(tmp_path / "mine.o")]
    subprocess.run(command, check=True)


def test_export_command_prints_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
    words = ["export", "64x48x40", "--device", "h100", "--format", "json", "--json"]
    run(*words, "--out", str(tmp_path))
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == [str(tmp_path / "gemm.json")]
    assert [product["how"] for product in data["products"]] == ["predicted"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["8x8"], "malformed shape"),
        (["8x8x8", "--name", "../up"], "is no C identifier"),
        (["8x8x8", "--format", "dll"], "unknown format"),
        (["8x8x8", "--device", "h9000"], "unknown device"),
        (["8x8x8:f64"], "unknown 'f64' after the shape"),
    ],
)
def test_export_command_refuses_invalid_arguments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], reason: str
) -> None:
    where = ["--out", str(tmp_path / "lib"), *(() if "--device" in words else ("--device", "h100"))]
    status = run("export", *words, *where)
    assert (status, reason in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "lib").exists()
