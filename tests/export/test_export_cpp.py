"""The C++ header of an export: exceptions for statuses, and a workspace that owns its memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import exported_library
from support.exported_library import STRICT, environment_of
from support.paths import TESTS

from autotune.export import write_library
from autotune.families.config import Config
from autotune.problem import Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
# Split-K, which needs a workspace with counters.
SPLIT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=8,reduction=fused,workers=0,chunks=1,pack=none,group=1,fence=0,order=rows"
)
LIBRARY = {Problem(64, 64, 40): NAIVE, Problem(64, 64, 4096): SPLIT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `caller`, which uses the header, and the fake driver."""
    place = tmp_path_factory.mktemp("cpp")
    library = exported_library.library_of(LIBRARY)
    write_library(library, place, "c")
    exported_library.fake_driver(place, library)
    flags = ["-std=c++17", *STRICT, "-Wnon-virtual-dtor", f"-I{place}"]
    sanitizers = "-fsanitize=address,undefined"
    caller = "-Wold-style-cast", sanitizers, str(TESTS / "export" / "cpp_caller.cpp")
    library_in_c = "-x", "c++", str(place / "lib.c")
    for words, output in ((caller, "caller.o"), (library_in_c, "lib.o")):
        subprocess.run(["g++", *flags, "-c", *words, "-o", place / output], check=True)
    command: list[str | Path] = [
        "g++",
        sanitizers,
        place / "caller.o",
        place / "lib.o",
        "-o",
        place / "caller",
    ]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return place


def calls(folder: Path, verb: str, **environment: str) -> list[str]:
    """The lines of the fake driver and the caller, without the symbols of kernels."""
    result = subprocess.run(
        [folder / "caller", verb],
        capture_output=True,
        text=True,
        check=False,
        env=environment_of(folder, **environment),
    )
    lines = [
        line for line in result.stderr.splitlines() if line.split()[0] not in ("load", "shared")
    ]
    assert result.returncode == int(any(line.startswith("error") for line in lines)), lines
    return lines


def verbs(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


def test_workspace_grows_on_its_stream_and_is_freed(folder: Path) -> None:
    lines = calls(folder, "grown")
    assert verbs(lines) == [
        *("launch", "size", "alloc", "memset", "launch", "launch"),
        *("alloc", "memset", "free", "end", "free"),
    ]
    assert lines[1] == "size 0"
    assert {
        line.split()[-1] for line in lines if verbs([line])[0] in ("alloc", "memset", "free")
    } == {"0x7"}
    allocated = [line.split()[1] for line in lines if line.startswith("alloc")]
    assert [line.split()[1] for line in lines if line.startswith("free")] == allocated


def test_moved_workspace_is_freed_once(folder: Path) -> None:
    lines = calls(folder, "moved")
    allocated, freed = (
        [line.split()[1] for line in lines if line.startswith(verb)] for verb in ("alloc", "free")
    )
    assert len(allocated) == 2
    assert sorted(freed) == sorted(allocated)


def test_memory_of_the_caller_is_used(folder: Path) -> None:
    lines = calls(folder, "own")
    assert verbs(lines) == ["memset", "launch", "alive", "alive"]
    assert lines[-2:] == ["alive 1", "alive 0"]


def test_statuses_are_exceptions(folder: Path) -> None:
    lines = calls(folder, "asked")
    assert lines[-2] == "exact 0"
    assert lines[-1].startswith("error 3 0 m, n, k take 1 to 2^31 - 1")


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("cuMemAllocAsync=2", "error 22 2 a call of the driver failed: see lib_driver_error (2)"),
        ("cuMemsetD32Async=700", "error 22 700 a call of the driver failed"),
        ("cuLibraryLoadData=209", "error 20 209 the driver refused a kernel"),
    ],
)
def test_failure_leaves_no_memory_behind(folder: Path, failure: str, message: str) -> None:
    lines = calls(folder, "moved", FAKE_CUDA_FAIL=failure)
    assert lines[-1].startswith(message)
    assert verbs(lines).count("alloc") == verbs(lines).count("free")


def test_machine_without_a_driver_is_reported(folder: Path) -> None:
    lines = calls(folder, "moved", LD_LIBRARY_PATH="/nowhere")
    assert lines == ["error 13 0 no CUDA driver: libcuda.so.1 cannot be opened"]
