"""The exported bench: every shape timed on the fake driver, beside a fake cuBLAS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import exported_library
from support.command_line import run
from support.exported_library import C11, CXX17, SCALED, STRICT, environment_of
from support.paths import TESTS

from autotune.export import write_library
from autotune.families.config import Config
from autotune.problem import Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
SPLIT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=8,reduction=fused,workers=0,chunks=1,pack=none,group=1,fence=0,order=rows"
)
PLAIN = Problem(8, 9, 10, layout="nt", batch=3)
BIASED = Problem(16, 8, 4, layout="tn", epilogue="bias_relu")
DEEP = Problem(64, 64, 4096, "tf32x3")
IDLE = {"FAKE_CUDA_QUIET": "1", "FAKE_CUDA_IDLE": "1", "ASAN_OPTIONS": "detect_leaks=0"}
TEXT = "{:40} {:10.2f} us {:8.1f} TFLOPS"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bench, the fake driver and a fake cuBLAS."""
    place = tmp_path_factory.mktemp("bench")
    library = exported_library.library_of({PLAIN: NAIVE, BIASED: NAIVE, DEEP: SPLIT})
    library = exported_library.with_scaled(library, SCALED[1:2])
    write_library(library, place, "c", bench=True)
    exported_library.fake_driver(place, library)
    shared = place / "driver" / "libcublas.so.13"
    source = TESTS / "export" / "fake_cublas.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shared, source, "-ldl"], check=True)
    flags = [*STRICT, "-fsanitize=address,undefined", f"-I{place}"]
    sources = [place / "bench.c", place / "lib.c"]
    command = [*C11, *flags, *map(str, sources), "-o", str(place / "bench")]
    subprocess.run([*command, "-ldl", "-lpthread", "-lm"], check=True)
    return place


def benched(folder: Path, *words: str, **environment: str) -> tuple[list[str], list[str]]:
    """The lines of the bench, and the calls of cuBLAS."""
    result = subprocess.run(
        [folder / "bench", *words],
        check=False,
        capture_output=True,
        text=True,
        env=environment_of(folder, **IDLE, **environment),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines(), result.stderr.splitlines()


def line(problem: Problem, time_us: float) -> str:
    flop = 2e-6 * problem.m * problem.n * problem.k * problem.batch
    return TEXT.format(str(problem), time_us, flop / time_us)


def test_each_shape_is_timed_beside_cublas(folder: Path) -> None:
    lines, calls = benched(folder)
    assert lines == [
        "NVIDIA H100 80GB HBM3; the library, then cuBLAS 130100 and its time over ours",
        f"{line(PLAIN, 10)} {20:10.2f} us {2:8.3f}",
        f"{line(BIASED, 10)}   ({20:8.2f} us)",
        f"{line(DEEP, 10)} {20:10.2f} us {2:8.3f}",
        line(SCALED[1], 10),
        "geometric mean over 2 problems: 2.000",
    ]
    # C^T = op(B)^T op(A)^T, by columns.
    assert calls == [
        "gemm 1 0 9 8 10 1 0 A 0 10 90 B 0 10 80 C 0 9 72 3 68 -1",
        "gemm 0 1 8 16 4 1 0 A 0 8 32 B 0 16 64 C 0 8 128 1 68 -1",
        "gemm 0 0 64 64 4096 1 0 A 0 64 262144 B 0 4096 262144 C 0 64 4096 1 68 -1",
    ]


@pytest.mark.parametrize("path", ["/nowhere/libcublas.so", None])
def test_bench_without_cublas_times_the_library_alone(folder: Path, path: str | None) -> None:
    failing = {} if path else {"FAKE_CUBLAS_FAIL": "cublasCreate_v2=1"}
    lines, calls = benched(folder, *([path] if path else []), **failing)
    assert lines[0].endswith("; the library alone, since no cuBLAS opens: give its path")
    assert (lines[1:], calls) == (
        [line(problem, 10) for problem in (PLAIN, BIASED, DEEP, SCALED[1])],
        [],
    )


def test_product_that_cublas_refuses_is_timed_alone(folder: Path) -> None:
    lines, _ = benched(folder, FAKE_CUBLAS_FAIL="cublasGemmStridedBatchedEx=15")
    assert lines[1:] == [line(problem, 10) for problem in (PLAIN, BIASED, DEEP, SCALED[1])]


def test_driver_that_fails_ends_the_bench(folder: Path) -> None:
    environment = environment_of(folder, **IDLE, FAKE_CUDA_FAIL="cuEventElapsedTime=700")
    result = subprocess.run(
        [folder / "bench"], capture_output=True, text=True, env=environment, check=False
    )
    assert (result.returncode, result.stderr[-28:]) == (1, "cuEventElapsedTime gave 700\n")


def test_bench_compiles_as_cpp(folder: Path, tmp_path: Path) -> None:
    flags = [flag for flag in STRICT if flag not in ("-Wconversion", "-Wshadow")]
    command = [*CXX17, *flags, "-c", str(folder / "bench.c"), "-o", str(tmp_path / "bench.o")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["8x8x8", "--format", "cubin"], "format 'cubin' takes no bench; give c"),
        (["saxpy"], "a user kernel takes no --bench; leave it out"),
    ],
)
def test_export_without_a_library_has_no_bench(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], reason: str
) -> None:
    assert run("export", *words, "--device", "h100", "--out", str(tmp_path), "--bench") == 2
    assert reason in capsys.readouterr().err
