"""The exported project builds, installs and runs: gcc, g++, CMake, pkg-config, and the examples."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which

import pytest
from support import exported_library
from support.exported_library import C11, CXX17, STRICT, environment_of
from support.paths import ROOT

from autotune.export import ExportedLibrary, write_library
from autotune.families.config import Config
from autotune.problem import Problem

EXAMPLES = ROOT / "examples"
NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
LAYER = Problem(64, 256, 128, epilogue="bias_relu")
CONFIGS = {
    LAYER: NAIVE,
    Problem(33, 17, 65, layout="tt"): NAIVE,
    Problem(8, 9, 10, layout="nt", batch=3, epilogue="gelu"): NAIVE,
}
# The external functions that the library may call: none allocates, prints or ends the program.
IMPORTS = {
    *("dlopen", "dlsym", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("memcpy", "memmove", "memset", "strcmp"),
}


@pytest.fixture(scope="module")
def library() -> ExportedLibrary:
    return exported_library.library_of(CONFIGS, name="gemm")


@pytest.fixture(scope="module")
def folder(library: ExportedLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported project, with a fake driver in the folder."""
    place = tmp_path_factory.mktemp("project")
    write_library(library, place, "c")
    exported_library.fake_driver(place, library)
    return place


@pytest.fixture(scope="module")
def installed(folder: Path) -> Path:
    """The prefix to which CMake has built and installed the project."""
    build, prefix = folder / "build", folder / "installed"
    flags = f"-DCMAKE_C_FLAGS={' '.join(STRICT)}"
    run(["cmake", "-S", folder, "-B", build, "-DBUILD_SHARED_LIBS=ON", flags])
    run(["cmake", "--build", build])
    run(["cmake", "--install", build, "--prefix", prefix])
    return prefix


def run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """The output of a command that must succeed; with a folder, its fake driver is used."""
    environment = environment_of(folder, FAKE_CUDA_QUIET="1") if folder else None
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("compiler", [C11, CXX17], ids=["c11", "c++17"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_library_compiles_without_warnings(
    folder: Path, tmp_path: Path, compiler: tuple[str, ...], level: str
) -> None:
    run([*compiler, *STRICT, level, "-c", folder / "gemm.c", "-o", tmp_path / "gemm.o"])


@pytest.mark.parametrize("compiler", [C11, CXX17], ids=["c11", "c++17"])
def test_example_program_compiles_without_warnings(
    folder: Path, tmp_path: Path, compiler: tuple[str, ...]
) -> None:
    flags = [flag for flag in STRICT if flag not in ("-Wconversion", "-Wshadow")]
    run([*compiler, *flags, "-O1", "-c", folder / "main.c", "-o", tmp_path / "main.o"])


def test_library_neither_allocates_nor_prints_nor_exits(folder: Path, tmp_path: Path) -> None:
    run([*C11, "-O2", "-c", folder / "gemm.c", "-o", tmp_path / "gemm.o"])
    symbols = {line.split()[-1] for line in run(["nm", "-u", tmp_path / "gemm.o"]).splitlines()}
    assert symbols - IMPORTS - {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"} == set()


@pytest.mark.skipif(which("pkg-config") is None, reason="pkg-config is not installed")
def test_pkg_config_finds_the_installed_package(installed: Path) -> None:
    package = next(installed.rglob("gemm.pc"))
    include, *libraries = run(["pkg-config", "--cflags", "--libs", package]).split()
    assert Path(include.removeprefix("-I"), "gemm.h").resolve() == installed / "include" / "gemm.h"
    assert "-lgemm" in libraries


def test_example_program_checks_every_gemm(folder: Path, installed: Path) -> None:
    assert installed.is_dir()
    lines = run([folder / "build" / "gemm-example"], folder).splitlines()
    assert [line.rpartition(": naive:")[0] for line in lines] == [
        *("right 8x9x10:f32:nt:batch=3:gelu", "right 33x17x65:f32:tt"),
        "right 64x256x128:f32:nn:bias_relu",
    ]


def test_example_program_detects_wrong_results(folder: Path, installed: Path) -> None:
    assert installed.is_dir()
    text = (folder / "driver" / "kernels").read_text()
    wrong = folder / "wrong"
    # This fake driver skips the activation.
    wrong.write_text("".join(_without_activation(line) for line in text.splitlines()))
    environment = environment_of(folder, FAKE_CUDA_QUIET="1", FAKE_CUDA_KERNELS=str(wrong))
    result = subprocess.run(
        [folder / "build" / "gemm-example"], capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout.count("WRONG")) == (1, 2)


def _without_activation(line: str) -> str:
    symbol, a, b, epilogue, *sizes = line.split(" ")
    return " ".join((symbol, a, b, str(int(epilogue) % 2), *sizes)) + "\n"


def test_c_example_computes_a_layer(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "linear"
    sources = [EXAMPLES / "c" / "linear.c", folder / "gemm.c"]
    driver = folder / "driver" / "libcuda.so.1"
    arguments: list[str | Path] = [
        f"-I{folder}",
        *sources,
        driver,
        "-ldl",
        "-lpthread",
        "-lm",
        "-o",
        program,
    ]
    run([*C11, *STRICT[:4], *arguments])
    assert run([program], folder) == "largest error 0\n"


def test_cpp_example_computes_a_layer(folder: Path, installed: Path, tmp_path: Path) -> None:
    driver = folder / "driver"
    run(
        ["cmake", "-S", EXAMPLES / "cpp", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}",
         f"-DCUDA_DRIVER=-L{driver} -l:libcuda.so.1", f"-DCMAKE_CXX_FLAGS={' '.join(STRICT[:4])}"]
    )  # fmt: skip
    run(["cmake", "--build", tmp_path])
    assert run([tmp_path / "linear"], folder) == "largest error 0\n"
