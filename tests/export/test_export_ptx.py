"""PTX beside cubins: the driver of a GPU newer than those exported for compiles it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import exported_library
from support.command_line import run
from support.exported_library import C11, CXX17, STRICT, Built, Call
from support.sample_records import H100

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device, find
from autotune.errors import AutotuneError
from autotune.export import gather, write_library
from autotune.export.library import portable_ptx
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.lookup.answer import Answer
from autotune.problem import Problem

A100 = find("a100")
NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
SMALL = Problem(64, 48, 40)
# wgmma, whose instructions only sm_90a has, on an H100; mma on an A100.
MAPPED = Problem(4096, 4096, 4096, "bf16")
MMA = Config.parse(
    "mma:compute=bf16,swap=0,bm=128,bn=128,bk=64,wm=64,wn=64,slices=1,copy=async,pack=none,"
    "stages=4,split_k=1,promote=0,min_blocks=1,store=direct,group=1"
)
B200, T4 = "NVIDIA B200;10;0;148", "Tesla T4;7;5;40"
# As large as that of an RTX 5090: four stages of 32 KB do not fit.
SMALL_SHARED = "NVIDIA GeForce RTX 5090;12;0;170;101376"


def config_of(problem: Problem, device: Device) -> Config:
    if problem == SMALL:
        return NAIVE
    return exported_library.tuned()[MAPPED] if device == H100 else MMA


def built(folder: Path, *devices: Device, flags: tuple[str, ...]) -> Built:
    """A library with PTX, and its caller."""

    def answer(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(problem, device, config_of(problem, device))

    library = gather(
        *("lib", [SMALL, MAPPED], devices, answer, exported_library.fake_build),
        ptx=exported_library.fake_ptx,
    )
    return exported_library.built(folder, library, *flags)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A library for an A100 and an H100."""
    flags = "-O1", "-fsanitize=address,undefined"
    return built(tmp_path_factory.mktemp("both"), A100, H100, flags=flags)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A library for an H100, compiled without warnings."""
    flags = tuple(flag for flag in STRICT if flag != "-Wconversion")  # of the caller
    return built(tmp_path_factory.mktemp("single"), H100, flags=(*flags, "-O2"))


def choice(case: Built, problem: Problem, gpu: str) -> str:
    """The library's choice on a GPU: family, the device it was chosen for, and `ptx`."""
    outcome = case.call(Call(problem), "choose", FAKE_CUDA_DEVICE=gpu)
    assert outcome.status == 0, outcome.message
    _, _, _, _, how, config = outcome.lines[-1].split(" ", 5)
    family, _, rest = config.partition(":")
    return f"{how} {family} {rest.split(';', 1)[1]}"


def test_newer_gpu_runs_the_shape_from_ptx(single: Built) -> None:
    outcome = single.call(Call(SMALL), FAKE_CUDA_DEVICE=B200)
    native = single.call(Call(SMALL))
    assert (outcome.status, native.status) == (0, 0)
    assert outcome.launches == native.launches
    loads = [[line for line in case.lines if "load" in line] for case in (outcome, native)]
    assert loads[0] == ["load // PTX"]
    assert loads[1] != loads[0]


def test_kernel_of_one_architecture_leaves_the_shape_to_others(both: Built, single: Built) -> None:
    assert choice(single, MAPPED, B200) == f"general mma {H100.name};ptx"
    assert choice(both, MAPPED, B200) == f"exact mma {A100.name};ptx"
    assert choice(both, MAPPED, "NVIDIA H200;9;0;132") == f"exact wgmma {H100.name}"


def test_newest_exported_device_comes_first(both: Built) -> None:
    assert choice(both, SMALL, B200) == f"exact naive {H100.name};ptx"
    assert choice(both, SMALL, "NVIDIA L4;8;9;58") == f"exact naive {A100.name};ptx"


def test_ptx_that_needs_more_shared_memory_is_passed_over(both: Built) -> None:
    assert choice(both, MAPPED, SMALL_SHARED) == f"general mma {H100.name};ptx"


def test_older_gpu_has_no_kernel(both: Built) -> None:
    outcome = both.call(Call(SMALL), FAKE_CUDA_DEVICE=T4)
    assert outcome.message == "nothing was exported for GPUs like the current one"


def test_warm_up_compiles_all_that_calls_need(both: Built) -> None:
    lines = [Call(SMALL).line("warm"), Call(SMALL).line(), Call(MAPPED).line()]
    lines.append(Call(replace(MAPPED, m=77, n=130, k=24)).line())
    _, (warm, *outcomes) = both.run(lines, FAKE_CUDA_DEVICE=B200)
    assert warm.count("load") == len(both.library.ptx)
    assert [(case.status, case.count("load")) for case in outcomes] == [(0, 0)] * 3


def test_kernel_that_does_not_wait_is_never_dependent(both: Built) -> None:
    outcomes = [
        both.call(Call(problem, dependent=True), FAKE_CUDA_DEVICE=B200)
        for problem in (SMALL, MAPPED)
    ]
    assert [(case.status, len(case.launches)) for case in outcomes] == [(0, 1), (23, 0)]


def test_driver_that_refuses_ptx_is_reported(single: Built) -> None:
    refused = {"FAKE_CUDA_DEVICE": B200, "FAKE_CUDA_FAIL": "cuLibraryLoadData=222"}
    outcome = single.call(Call(SMALL), **refused)
    assert (outcome.error, outcome.message[:27]) == (222, "the driver refused a kernel")


def test_damaged_ptx_is_never_loaded(single: Built, tmp_path: Path) -> None:
    source = tmp_path / "lib.c"
    before, mark, after = (single.folder / "lib.c").read_text().partition("PTX_0[] = {\n0x")
    assert mark
    source.write_text(f"{before}{mark}1{after[1:]}")
    damaged = replace(single, program=tmp_path / "caller")
    command: list[str | Path] = [*C11, f"-I{single.folder}", "-o", damaged.program]
    subprocess.run([*command, exported_library.CALLER, source, "-ldl"], check=True)
    outcome = damaged.call(Call(SMALL), FAKE_CUDA_DEVICE=B200)
    assert (outcome.message[:8], outcome.lines) == ("a kernel", ())
    assert damaged.call(Call(SMALL)).status == 0


def test_library_with_ptx_compiles_as_cpp_without_warnings(single: Built, tmp_path: Path) -> None:
    command: list[str | Path] = [*CXX17, *STRICT, "-O1", "-c", single.folder / "lib.c"]
    subprocess.run([*command, "-o", tmp_path / "lib.o"], check=True)


def test_ptx_of_a_family_of_gpus_is_left_out() -> None:
    targets = ("sm_90", "sm_90, debug", "sm_90a", "sm_100f", "sm_120")
    template = Template("naive.cu", "naive")
    programs = [
        replace(exported_library.fake_build(template, "sm_90"), key=target) for target in targets
    ]

    def compile(program: Program) -> bytes:
        return f".version 9.0\n.target {program.key}\n.address_size 64\n".encode()

    assert [*portable_ptx(programs, compile)] == ["sm_90", "sm_90, debug", "sm_120"]


def test_template_without_ptx_is_named() -> None:
    program = exported_library.fake_build(Template("naive.cu", "naive"), "sm_90")
    failure = CompileFailure(program.template, "sm_90", "why", "")
    with pytest.raises(AutotuneError, match="naive gives no PTX for sm_90: why"):
        portable_ptx([program], lambda _: failure)


def test_cubins_have_their_ptx_beside_them(tmp_path: Path) -> None:
    library = exported_library.library_of(
        {SMALL: NAIVE, MAPPED: exported_library.tuned()[MAPPED]}, ptx=True
    )
    files = write_library(library, tmp_path, "cubin")
    assert [path.name for path in files] == [
        *("lib-naive-0-sm_90.cubin", "lib-wgmma-1-sm_90a.cubin", "lib-naive-0-sm_90.ptx"),
        "lib.json",
    ]
    kernels = json.loads((tmp_path / "lib.json").read_text())["kernels"]
    assert [kernel.get("ptx_file") for kernel in kernels][:2] == ["lib-naive-0-sm_90.ptx", None]


def test_ptx_of_the_compiler_is_for_any_later_gpu() -> None:
    _, program = exported_library.library_of({SMALL: NAIVE}).launches[0]
    ((_, text),) = portable_ptx(
        [program], lambda program: compiler.ptx(program.template, program.arch)
    ).items()
    assert b"\n.target sm_90\n" in text
    assert b".entry _Z5naive" in text


def test_readme_names_the_shapes_without_ptx(single: Built) -> None:
    text = (single.folder / "README.md").read_text()
    assert "runs instead: `4096x4096x4096:bf16:nn`.\n" in text


@pytest.mark.parametrize("format", ["ptx", "cu", "json"])
def test_format_without_machine_code_takes_no_ptx(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, format: str
) -> None:
    words = ["export", "8x8x8", "--device", "h100", "--out", str(tmp_path), "--format", format]
    assert run(*words, "--ptx") == 2
    assert f"format '{format}' takes no PTX; give c or cubin" in capsys.readouterr().err
