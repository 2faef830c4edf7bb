"""Exports that call the recorded algorithms of cuBLASLt, on a fake cuBLASLt."""

from __future__ import annotations

import json
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
from support.sample_records import H100, entry, record

from autotune.cuda import cublaslt as installed
from autotune.device import Device
from autotune.export import ExportedLibrary, gather, write, write_library
from autotune.export.library import RecordedAlgorithm, fastest_algorithm
from autotune.families.config import Config
from autotune.families.cublaslt import config_of
from autotune.families.plan import Algorithm, LibraryCall
from autotune.lookup.answer import Answer
from autotune.measure.measurement import Measurement
from autotune.measure.objective import ObjectiveText, objective_named
from autotune.problem import Problem
from autotune.records import Store

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
OWN = Problem(64, 48, 40)
FASTER = Problem(64, 48, 40, layout="nt")
MIXED = Problem(4096, 4096, 4096, "bf16", output="f32")
BIASED = Problem(64, 48, 40, epilogue="bias")
BATCHED = Problem(64, 48, 40, batch=2)
ACTIVE = Problem(64, 48, 40, epilogue="relu")
ALGORITHM = Algorithm(66, 20, 1, 0, 1, 0, 16, 3, 4)
SPLIT = ALGORITHM._replace(split_k=3, reduction=2)
SPLIT_BYTES = 8192


def library_of(name: str = "lib") -> ExportedLibrary:
    """A library of shapes that an algorithm of cuBLASLt is faster on, all but the first."""
    mapped = exported_library.tuned()[replace(MIXED, output="same")]

    def find(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(problem, device, mapped if problem == MIXED else NAIVE)

    def algorithm(problem: Problem, _: Device) -> RecordedAlgorithm | None:
        made = SPLIT if problem == MIXED else ALGORITHM
        return None if problem == OWN else RecordedAlgorithm(LibraryCall(problem, made), "13.2.0")

    problems, build = [OWN, FASTER, MIXED, BIASED, BATCHED, ACTIVE], exported_library.fake_build
    return gather(name, problems, [H100], find, build, algorithm=algorithm)


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


def test_recorded_algorithm_runs(built: Built) -> None:
    outcome = built.call(Call(FASTER, alpha=0.5, beta=2.0))
    assert (outcome.status, outcome.launches) == (0, [])
    check, product = outcome.lines
    assert check == "check 66:20,1,0,1,0,16,3,4"
    # C^T = op(B)^T op(A)^T by columns: B is stored 48 x 40, A 64 x 40, C 64 x 48.
    matrices = "0:40x48:40 0:40x64:40 0:48x64:48"
    assert product == f"lt 68 1 0 1 {matrices} {B:#x} {A:#x} {C:#x} 0.5 2 66 0 (nil) 0x7"


def test_algorithm_with_a_workspace_lies_behind_the_counters(built: Built) -> None:
    outcome = built.call(Call(MIXED))
    behind = WORKSPACE + exported_library.counter_bytes(built.library)
    types = "lt 68 0 0 1 14:4096x4096:4096 14:4096x4096:4096 0:4096x4096:4096"
    assert outcome.lines[-1].startswith(types)
    assert outcome.lines[-1].endswith(f" 66 {SPLIT_BYTES} {behind:#x} 0x7")


def test_batches_and_activations_are_the_librarys(built: Built) -> None:
    batched, active = built.call(Call(BATCHED)), built.call(Call(ACTIVE))
    layouts = "0:48x40:48:2x1920 0:40x64:40:2x2560 0:48x64:48:2x3072"
    assert batched.lines[-1].startswith(f"lt 68 0 0 1 {layouts} ")
    assert active.lines[-1].startswith("lt 68 0 0 2 0:48x40:48 0:40x64:40 0:48x64:48 ")


def test_readme_and_plans_name_the_shapes_of_cublaslt(built: Built) -> None:
    text = (built.folder / "README.md").read_text()
    shapes = (ACTIVE, FASTER, BATCHED, MIXED)
    listed = ", ".join(f"`{problem}` (13.2.0)" for problem in sorted(shapes))
    assert f"is first asked about: {listed}.\n" in text
    assert f"| `{BIASED}` | {H100.name} | exact, cuBLASLt 13.2.0 was faster |" in text
    products = json.loads((built.folder / "lib.json").read_text())["products"]
    faster = {row["problem"]: row["cublaslt_faster"] for row in products}
    assert (faster[str(OWN)], faster[str(BIASED)]) == (None, "13.2.0")


@pytest.mark.parametrize(
    "call",
    [
        Call(OWN),
        Call(BIASED),
        Call(BATCHED, strides=(4096, 0, 0)),
        Call(BATCHED, strides=(exported_library.SHARED, 0, 0)),
        Call(FASTER, dependent=True),
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
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmulAlgoInit=15"},
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmulAlgoConfigSetAttribute=7"},
        {"FAKE_CUBLASLT_FAIL": "cublasLtMatmulAlgoCheck=15"},
        {"FAKE_CUBLASLT_VERSION": "130201"},
        {"FAKE_CUBLASLT_VERSION": "120805"},
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


def test_algorithm_is_made_once_for_a_shape(built: Built) -> None:
    _, outcomes = built.run([Call(FASTER).line()] * 3)
    assert [outcome.count("check") for outcome in outcomes] == [1, 0, 0]
    assert [outcome.count("lt") for outcome in outcomes] == [1, 1, 1]


def test_choice_and_workspace_are_those_of_cublaslt(built: Built) -> None:
    total = SPLIT_BYTES + exported_library.counter_bytes(built.library)
    for problem, size in ((FASTER, 0), (MIXED, total)):
        assert built.call(Call(problem), "size").lines[-1] == f"bytes {size}"
        line = f"choice 1 {size} 1 exact cublaslt;{H100.name}"
        assert built.call(Call(problem), "choose").lines[-1] == line


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call(MIXED, workspace=0), "the product needs a workspace: see lib_workspace_size"),
        (Call(MIXED, bytes=SPLIT_BYTES - 1), "the workspace is smaller than lib_workspace_size"),
        (Call(MIXED, workspace=WORKSPACE + 8), "the workspace is not at a multiple of 256 bytes"),
        (Call(FASTER, a=0), "a pointer that has to be there is NULL"),
    ],
)
def test_bad_call_reaches_no_library(built: Built, call: Call, message: str) -> None:
    outcome = built.call(call)
    assert (outcome.message, outcome.launches, outcome.count("lt")) == (message, [], 0)


@pytest.mark.parametrize(
    ("objective", "expected"), [("hot", ALGORITHM), ("cold", None)], ids=["hot", "cold"]
)
def test_best_of_the_record_decides(objective: ObjectiveText, expected: Algorithm | None) -> None:
    timed = ((config_of(ALGORITHM, 0), 9.0, 20.0), (NAIVE, 10.0, 15.0))
    entries = [
        replace(entry(16, hot), config=config, measurement=Measurement(hot, cold_us=cold))
        for config, hot, cold in timed
    ]
    known = record(*entries, problem=OWN, source="cublaslt:13.2.0 naive:1")
    found = fastest_algorithm(known, objective_named(objective))
    assert found == (expected and (LibraryCall(OWN, expected), "13.2.0"))


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


def test_record_of_another_version_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that counts is that of the machine that runs the library."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(installed, "version", lambda: "13.1.0")
    timed = (config_of(ALGORITHM, 0), 9.0), (NAIVE, 10.0)
    entries = [replace(entry(16, time_us), config=config) for config, time_us in timed]
    source = "cublaslt:13.2.0 naive:1"
    Store(tmp_path / "cache").save(record(*entries, problem=OWN, source=source))
    write([OWN], tmp_path / "out", devices=["h100"], cublaslt=True)
    (product,) = json.loads((tmp_path / "out" / "gemm.json").read_text())["products"]
    assert (product["config"], product["cublaslt_faster"]) == (str(NAIVE), "13.2.0")
    row = "{130200, 68, 0, {0, 0}, {0, 0, 0}, 1, 0, 66, {20, 1, 0, 1, 0, 16, 3, 4}}"
    assert row in (tmp_path / "out" / "gemm.c").read_text()


@pytest.mark.parametrize("words", [["--format", "cubin"], ["--batch-invariant"]])
def test_cublaslt_needs_a_library_that_may_call_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    command = ["export", "8x8x8", "--device", "h100", "--out", str(tmp_path), "--cublaslt"]
    assert run(*command, *words) == 2
    assert "cuBLASLt is for format c, and not for batch-invariant" in capsys.readouterr().err
