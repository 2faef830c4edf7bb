"""Exports that let cuBLASLt compute what it was measured to be faster on, on a fake cuBLASLt."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import exported_library
from support.command_line import run
from support.exported_library import (
    C11,
    CALLER,
    CXX17,
    STRICT,
    WORKSPACE,
    A,
    B,
    Built,
    C,
    Call,
    fake_driver,
)
from support.paths import TESTS
from support.sample_records import H100

from autotune.device import Device
from autotune.export import ExportedLibrary, gather, write_library
from autotune.families.config import Config
from autotune.lookup.answer import Answer
from autotune.problem import Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
OWN = Problem(64, 48, 40)
FASTER = Problem(64, 48, 40, layout="nt")
MIXED = Problem(4096, 4096, 4096, "bf16", output="f32")
BIASED = Problem(64, 48, 40, epilogue="bias")
BATCHED = Problem(64, 48, 40, batch=2)
LT_BYTES = 32 << 20
ALL_SCHEMES, NO_REDUCTION = 7, 0
"""Masks of schemes of reduction (`cublasLtReductionScheme_t`): any, and none, without split-K."""


def library_of(name: str = "lib") -> ExportedLibrary:
    """A library of shapes that cuBLAS is faster on, all but the first."""
    mapped = exported_library.tuned()[replace(MIXED, output="same")]

    def find(problem: Problem, device: Device) -> Answer:
        config = mapped if problem == MIXED else NAIVE
        answer = exported_library.answer_of(problem, device, config)
        return replace(answer, vendor=problem != OWN)

    problems = [OWN, FASTER, MIXED, BIASED, BATCHED]
    return gather(name, problems, [H100], find, exported_library.fake_build)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder, library = tmp_path_factory.mktemp("cublaslt"), library_of()
    write_library(library, folder, "c", cublaslt=True)
    fake_driver(folder, library)
    shared = folder / "driver" / "libcublasLt.so.13"
    source = TESTS / "export" / "fake_cublaslt.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shared, source], check=True)
    command: list[str | Path] = [*C11, *STRICT[:4], "-fsanitize=address,undefined", f"-I{folder}"]
    command += [CALLER, folder / "lib.c", "-o", folder / "caller", "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return Built(folder, folder / "caller", library)


def test_faster_shape_runs_in_cublaslt(built: Built) -> None:
    outcome = built.call(Call(FASTER, alpha=0.5, beta=2.0))
    assert (outcome.status, outcome.launches) == (0, [])
    heuristic, product = outcome.lines
    assert heuristic == f"heuristic {LT_BYTES} 16 16 16 16 {ALL_SCHEMES}"
    # C^T = op(B)^T op(A)^T by columns: B is stored 48 x 40, A 64 x 40, C 64 x 48.
    matrices = "0:40x48:40 0:40x64:40 0:48x64:48"
    assert product == (
        f"lt 68 1 0 {matrices} {B:#x} {A:#x} {C:#x} 0.5 2 {WORKSPACE:#x} {LT_BYTES} 0x7"
    )


@pytest.mark.parametrize(
    ("version", "schemes"),
    [
        (120601, ALL_SCHEMES),
        (120603, NO_REDUCTION),  # CUDA 12.6 Update 2
        (120805, NO_REDUCTION),
        (130101, NO_REDUCTION),
        (130700, NO_REDUCTION),  # CUDA 13.4
        (130800, ALL_SCHEMES),  # CUDA 13.4 Update 1
    ],
)
def test_faulty_versions_get_no_split_k(built: Built, version: int, schemes: int) -> None:
    outcome = built.call(Call(FASTER), FAKE_CUBLASLT_VERSION=str(version))
    assert (outcome.status, outcome.launches) == (0, [])
    assert outcome.lines[0] == f"heuristic {LT_BYTES} 16 16 16 16 {schemes}"


def test_readme_names_the_shapes_of_cublaslt(built: Built) -> None:
    text = (built.folder / "README.md").read_text()
    assert f"is first asked about: `{FASTER}`, `{MIXED}`.\n" in text


def test_types_follow_the_problem(built: Built) -> None:
    outcome = built.call(Call(MIXED))
    assert outcome.lines[-1].startswith("lt 68 0 0 14:4096x4096:4096 14:4096x4096:4096 0:4096x4096")


@pytest.mark.parametrize(
    "call",
    [
        Call(OWN),
        Call(BIASED),
        Call(BATCHED),
        Call(FASTER, leading=(44, 0, 0)),
        Call(FASTER, a=A + 4),
        Call(FASTER, alpha=0.0),
        Call(replace(FASTER, m=65)),
    ],
)
def test_other_calls_run_the_exported_kernels(built: Built, call: Call) -> None:
    outcome = built.call(call)
    assert (outcome.status, len(outcome.launches), outcome.count("lt")) == (0, 1, 0)


@pytest.mark.parametrize(
    "environment",
    [
        {"FAKE_CUBLASLT_FAIL": "cublasLtCreate=1"},
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmulAlgoGetHeuristic=15"},
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmulAlgoGetHeuristic=99"},
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmul=13"},
    ],
)
def test_refusing_library_leaves_the_exported_kernel(
    built: Built, environment: dict[str, str]
) -> None:
    outcome = built.call(Call(FASTER), **environment)
    assert (outcome.status, len(outcome.launches)) == (0, 1)


def test_missing_library_leaves_the_exported_kernel(built: Built, tmp_path: Path) -> None:
    shutil.copy(built.folder / "driver" / "libcuda.so.1", tmp_path)
    outcome = built.call(Call(FASTER), LD_LIBRARY_PATH=str(tmp_path))
    assert (outcome.status, len(outcome.launches)) == (0, 1)
    assert built.call(Call(FASTER), "size", LD_LIBRARY_PATH=str(tmp_path)).lines == ("bytes 0",)


def test_heuristic_is_asked_once_for_a_shape(built: Built) -> None:
    _, outcomes = built.run([Call(FASTER).line()] * 3)
    assert [outcome.count("heuristic") for outcome in outcomes] == [1, 0, 0]
    assert [outcome.count("lt") for outcome in outcomes] == [1, 1, 1]


def test_choice_and_workspace_are_those_of_cublaslt(built: Built) -> None:
    size, choice = built.call(Call(FASTER), "size"), built.call(Call(FASTER), "choose")
    assert size.lines[-1] == f"bytes {LT_BYTES}"
    assert choice.lines[-1] == f"choice 1 {LT_BYTES} 1 exact cublaslt;{H100.name}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call(FASTER, workspace=0), "the product needs a workspace: see lib_workspace_size"),
        (Call(FASTER, bytes=LT_BYTES - 1), "the workspace is smaller than lib_workspace_size"),
        (Call(FASTER, workspace=WORKSPACE + 8), "the workspace is not at a multiple of 256 bytes"),
        (Call(FASTER, a=0), "a pointer that has to be there is NULL"),
    ],
)
def test_bad_call_reaches_no_library(built: Built, call: Call, message: str) -> None:
    outcome = built.call(call)
    assert (outcome.message, outcome.launches, outcome.count("lt")) == (message, [], 0)


def test_library_compiles_as_cpp_without_warnings(built: Built, tmp_path: Path) -> None:
    command: list[str | Path] = [*CXX17, *STRICT, "-O1", "-c", built.folder / "lib.c"]
    subprocess.run([*command, "-o", tmp_path / "lib.o"], check=True)


def test_export_names_cublaslt_only_where_asked(tmp_path: Path) -> None:
    write_library(library_of(), tmp_path, "c")
    assert "cublas" not in (tmp_path / "lib.c").read_text()
    assert "## cuBLASLt" not in (tmp_path / "README.md").read_text()
    alone = exported_library.library_of({OWN: NAIVE})
    write_library(alone, tmp_path / "alone", "c", cublaslt=True)
    assert "cublas" not in (tmp_path / "alone" / "lib.c").read_text()


@pytest.mark.parametrize("words", [["--format", "cubin"], ["--batch-invariant"]])
def test_cublaslt_needs_a_library_that_may_call_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    command = ["export", "8x8x8", "--device", "h100", "--out", str(tmp_path), "--cublaslt"]
    assert run(*command, *words) == 2
    assert "cuBLASLt is for format c, and not for batch-invariant" in capsys.readouterr().err
