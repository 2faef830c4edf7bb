"""Errors of the exported C library: each is reported as a status, and nothing is launched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support import exported_library
from support.exported_library import BIAS, SHARED, WORKSPACE, A, Built, C, Call, Outcome
from support.paths import TESTS

from autotune.device import find
from autotune.families.config import Config
from autotune.problem import COMPUTES, EPILOGUES, Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
PLAIN = Problem(64, 48, 40)
# Split-K, which needs a workspace with counters.
SPLIT = Problem(64, 64, 4096)
SIMT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=8,reduction=fused,workers=0,chunks=1,pack=none,group=1,fence=0,order=rows"
)
BIASED = Problem(64, 48, 40, epilogue="bias")
# wgmma, which takes a tensor map for each operand.
MAPPED = Problem(4096, 4096, 4096, "bf16")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    configs = {PLAIN: NAIVE, SPLIT: SIMT, BIASED: NAIVE, MAPPED: exported_library.tuned()[MAPPED]}
    library = exported_library.library_of(configs)
    return exported_library.built(
        tmp_path_factory.mktemp("faults"), library, "-O1", "-fsanitize=address,undefined"
    )


def altered(fields: Mapping[str, int]) -> Call:
    return Call(PLAIN, changed=fields)


def changed(**fields: int) -> Call:
    return altered(fields)


WRONG: list[tuple[Call, str]] = [
    *((altered({name: size}), "m, n, k take 1 to") for name in "mnk" for size in (0, -1, 2**31)),
    *((changed(batch=size), "m, n, k take 1 to") for size in (0, -3, 65536)),
    (changed(k=2**31 - 1, m=2**31 - 1, batch=65535), "m, n, k take 1 to"),
    *((changed(compute=code), "no such compute") for code in (-1, len(COMPUTES))),
    *((changed(layout=code), "no such compute") for code in (-1, 4)),
    *((changed(epilogue=code), "no such compute") for code in (-1, len(EPILOGUES))),
    *((changed(output=code), "no such compute") for code in (-1, 2)),
    *((changed(dependent=code), "no such compute") for code in (-1, 2)),
    *((Call(PLAIN, **{name: 0}), "is NULL") for name in "abc"),  # type: ignore[arg-type]
    *((Call(PLAIN, **{name: (5 << 40) + 2}), "begins between") for name in "abc"),  # type: ignore[arg-type]
    (Call(MAPPED, a=A + 1), "begins between"),
    (Call(BIASED, bias=BIAS + 2), "begins between"),
    (Call(PLAIN, leading=(39, 0, 0)), "shorter than a row"),
    (Call(PLAIN, leading=(0, 47, 0)), "shorter than a row"),
    (Call(PLAIN, leading=(0, 0, -48)), "shorter than a row"),
    (Call(PLAIN, leading=(2**62, 0, 0)), "shorter than a row, or absurd"),
    (Call(replace(PLAIN, batch=2), strides=(-2, 0, 0)), "a stride is negative"),
    (Call(replace(PLAIN, batch=2), strides=(0, 0, SHARED)), "a stride is negative"),
    (Call(replace(PLAIN, batch=2), strides=(0, 0, 63 * 48 + 47)), "matrices of C overlap"),
    (Call(replace(PLAIN, batch=2), leading=(0, 0, 95), strides=(0, 0, 48)), "of C overlap"),
    (Call(replace(PLAIN, batch=65535), strides=(2**62, 0, 0)), "matrices 2^63 bytes"),
    (Call(BIASED, bias=0), "none was given"),
    (Call(PLAIN, bias=BIAS), "the epilogue has none"),
    (Call(PLAIN, c=A), "C shares elements"),
    (Call(PLAIN, c=A + 4 * (64 * 40 - 1)), "C shares elements"),
    (Call(PLAIN, a=C + 4 * (64 * 48 - 1)), "C shares elements"),
    (Call(BIASED, bias=C + 4), "C shares elements"),
    (Call(PLAIN, b=C - 4, leading=(0, 96, 96)), "C shares elements"),
    (Call(SPLIT, workspace=0), "needs a workspace"),
    (Call(SPLIT, workspace=WORKSPACE + 128), "not at a multiple of 256"),
    (Call(SPLIT, bytes=1024), "smaller than lib_workspace_size"),
    (Call(replace(PLAIN, compute="tf32")), "products of this kind"),
    (Call(replace(PLAIN, layout="tn")), "products of this kind"),
    (Call(replace(PLAIN, epilogue="relu")), "products of this kind"),
    (Call(replace(PLAIN, m=2**31 - 1, n=2**14, k=1)), "more blocks than a grid has"),
]  # fmt: skip

FINE = [
    Call(PLAIN, c=A + 4 * 64 * 40),
    Call(PLAIN, b=C - 4 * 40 * 48),
    # A and C are columns of one matrix: 40 of A, then 48 of C.
    Call(PLAIN, c=A + 4 * 40, leading=(88, 0, 88)),
    Call(replace(PLAIN, batch=2), leading=(0, 0, 96), strides=(0, 0, 48)),
    Call(replace(PLAIN, batch=2), strides=(SHARED, SHARED, 0)),
    # The stride of a single matrix is ignored.
    Call(PLAIN, strides=(1, 1, 1)),
    Call(replace(PLAIN, m=2**31 - 1, n=1, k=1)),
]


def outcomes(built: Built, calls: list[Call]) -> list[Outcome]:
    status, results = built.run([call.line() for call in calls])
    assert (status, len(results)) == (0, len(calls))
    return results


def test_invalid_calls_are_refused_with_the_reason(built: Built) -> None:
    results = outcomes(built, [call for call, _ in WRONG])
    wrong = [
        (call, reason, outcome.message)
        for (call, reason), outcome in zip(WRONG, results, strict=True)
        if outcome.status == 0 or reason not in outcome.message
    ]
    assert wrong == []


def test_refused_call_loads_and_launches_nothing(built: Built) -> None:
    results = outcomes(built, [call for call, _ in WRONG])
    assert [outcome.lines for outcome in results] == [()] * len(WRONG)


def test_unusual_but_valid_calls_are_launched(built: Built) -> None:
    assert [(outcome.status, outcome.count("launch")) for outcome in outcomes(built, FINE)] == [
        (0, 1)
    ] * len(FINE)


def test_null_arguments_are_refused(built: Built) -> None:
    assert built.call(Call(PLAIN), "nothing").status == 0


@pytest.mark.parametrize(
    ("workspace", "size", "reason"),
    [
        (0, 4096, "needs a workspace"),
        (WORKSPACE + 4, 4096, "not at a multiple"),
        (WORKSPACE, 8, "smaller"),
    ],
)
def test_prepare_refuses_an_invalid_workspace(
    built: Built, workspace: int, size: int, reason: str
) -> None:
    outcome = built.call(Call(SPLIT, workspace=workspace, bytes=size), "prepare")
    assert reason in outcome.message


def test_empty_workspace_needs_no_preparation(built: Built) -> None:
    outcome = built.call(Call(PLAIN, workspace=0, bytes=0), "prepare")
    assert (outcome.status, outcome.lines) == (0, ())


@pytest.mark.parametrize(
    ("function", "result", "reason"),
    [
        ("cuCtxGetDevice", 201, "no CUDA context"),
        ("cuCtxGetDevice", 3, "no CUDA context"),
        ("cuCtxGetDevice", 999, "a call of the driver failed"),
        ("cuDeviceGetName", 101, "a call of the driver failed"),
        ("cuDeviceGetAttribute", 101, "a call of the driver failed"),
        ("cuThreadExchangeStreamCaptureMode", 4, "a call of the driver failed"),
        ("cuLibraryLoadData", 209, "the driver refused a kernel"),
        ("cuLibraryGetKernel", 500, "the driver refused a kernel"),
        ("cuKernelSetAttribute", 1, "the driver refused a kernel"),
        ("cuKernelGetFunction", 2, "the driver refused a kernel"),
        ("cuTensorMapEncodeTiled", 1, "the driver refused a launch"),
        ("cuLaunchKernelEx", 719, "the driver refused a launch"),
    ],
)
def test_driver_errors_are_reported_with_their_status(
    built: Built, function: str, result: int, reason: str
) -> None:
    outcome = built.call(Call(MAPPED), FAKE_CUDA_FAIL=f"{function}={result}")
    assert reason in outcome.message
    assert outcome.error == result


def test_older_gpu_refuses_dependent_launch(tmp_path: Path) -> None:
    library = exported_library.library_of({PLAIN: NAIVE}, [find("a100")])
    case = exported_library.built(tmp_path, library)
    card = "NVIDIA A100-SXM4-40GB;8;0;108"
    plain, dependent = (
        case.call(Call(PLAIN, dependent=dependent), FAKE_CUDA_DEVICE=card)
        for dependent in (False, True)
    )
    assert (plain.status, len(plain.launches)) == (0, 1)
    assert dependent.message == "dependent needs a GPU of compute capability 9.0 or more"
    assert dependent.launches == []


def test_failure_to_zero_a_workspace_is_reported(built: Built) -> None:
    outcome = built.call(Call(SPLIT), "prepare", FAKE_CUDA_FAIL="cuMemsetD32Async=700")
    assert (outcome.error, outcome.message[:6]) == (700, "a call")


def test_cubin_without_its_symbol_is_unloaded(built: Built) -> None:
    outcome = built.call(Call(PLAIN), FAKE_CUDA_FAIL="cuLibraryGetKernel=500")
    assert (outcome.count("load"), outcome.count("unload")) == (1, 1)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"FAKE_CUDA_CONTEXT": ""}, "no CUDA context"),
        ({"FAKE_CUDA_CONTEXT": "64"}, "GPUs like the current one"),
        ({"FAKE_CUDA_DEVICE": "NVIDIA A100;8;0;108"}, "GPUs like the current one"),
        ({"FAKE_CUDA_DEVICE": "NVIDIA B200;10;0;148"}, "GPUs like the current one"),
        ({"LD_LIBRARY_PATH": "/nowhere"}, "no CUDA driver"),
    ],
)  # fmt: skip
def test_gpu_without_exported_kernels_is_refused(
    built: Built, environment: dict[str, str], reason: str
) -> None:
    outcome = built.call(Call(PLAIN), **environment)
    assert reason in outcome.message
    assert outcome.lines == ()


def test_driver_before_cuda_12_is_refused(built: Built, tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text(
        "int cuInit(unsigned flags);\nint cuInit(unsigned flags) { return (int)flags; }\n"
    )
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source]
    subprocess.run(command, check=True)
    outcome = built.call(Call(PLAIN), LD_LIBRARY_PATH=str(tmp_path))
    assert "too old" in outcome.message


def test_damaged_kernel_is_never_loaded(tmp_path: Path) -> None:
    def spoil(text: str) -> str:
        place = text.index("CUBIN_0[] = {") + 14
        return text[:place] + text[place:].replace("0x6", "0x7", 1)

    outcome = spoiled(tmp_path, spoil)
    assert (outcome.message[:8], outcome.lines) == ("a kernel", ())


def test_truncated_kernel_is_never_loaded(tmp_path: Path) -> None:
    def spoil(text: str) -> str:
        return re.sub(r"(?<={CUBIN_0, )\d+", lambda size: str(int(size[0]) - 1), text)

    outcome = spoiled(tmp_path, spoil)
    assert (outcome.message[:8], outcome.lines) == ("a kernel", ())


def spoiled(folder: Path, spoil: Callable[[str], str]) -> Outcome:
    """The outcome of a call to a library whose source was changed after the export."""
    library = exported_library.library_of({PLAIN: NAIVE})
    case = exported_library.built(folder, library)
    source = folder / "lib.c"
    before = source.read_text()
    after = spoil(before)
    assert after != before
    source.write_text(after)
    caller = TESTS / "export" / "caller.c"
    command: list[str | Path] = [
        *exported_library.C11,
        f"-I{folder}",
        "-o",
        case.program,
        caller,
        source,
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return case.call(Call(PLAIN))
