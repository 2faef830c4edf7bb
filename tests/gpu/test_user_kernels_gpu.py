"""User kernels on a GPU: the examples, the faults that verification catches, argument passing.

The kernel `faulty` has one fault at a time. Each is caught under its own reason, and the next
candidate still runs.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stencil
import transpose
from numpy.typing import NDArray
from support.loaded import resident_blocks, resources
from user_candidates import candidates

import autotune
from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure, Measurement, tied
from autotune.measure.runner import Candidate
from autotune.measure.session import PyCudaSession, Session
from autotune.records import KernelRecord
from autotune.tuning.options import Search
from autotune.tuning.pipeline import resources_of
from autotune.user_kernels.bench import KernelBench, open_kernel_runner
from autotune.user_kernels.definition import define_kernel
from autotune.user_kernels.results import Verification
from autotune.user_kernels.source import unpacked
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Workload, workload

FAULTS = (
    *("none", "wrong element", "nan", "unwritten element", "writes before", "writes behind"),
    *("writes the input", "right once", "illegal access", "endless loop"),
)


FAULTY = """
__device__ int runs;

template <int FAULT> __global__ void faulty(float* out, float* in, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const bool first = at == 0;
    if (FAULT == 9)
        while (in[0] != -12345.0f) __nanosleep(1000);
    if (FAULT == 8 && first) *reinterpret_cast<float*>(8) = 1.0f;
    if (at < n && !(FAULT == 3 && at == 7) && !(FAULT == 7 && runs > 0)) out[at] = 2.0f * in[at];
    __syncthreads();
    if (first) {
        if (FAULT == 1) out[7] += 1.0f;
        if (FAULT == 2) out[7] = nanf("");
        if (FAULT == 4) out[-1] = 1.0f;
        if (FAULT == 5) out[n] = 1.0f;
        if (FAULT == 6) in[7] += 1.0f;
        if (FAULT == 7) runs = 1;
    }
}
"""


N = 200  # one block: __syncthreads puts the faults of thread 0 after all writes


TYPES = """
template <int N>
__global__ void types(double* out, bool b, signed char i8, unsigned char u8, short i16,
                      unsigned short u16, int i32, unsigned u32, long long i64,
                      unsigned long long u64, unsigned short f16, float f32, double f64,
                      const short* in) {
    const double values[N] = {double(b), double(i8), double(u8), double(i16), double(u16),
                              double(i32), double(u32), double(i64), double(u64), double(f16),
                              double(f32), double(f64), double(in[1])};
    if (threadIdx.x < N) out[threadIdx.x] = values[threadIdx.x];
}
"""


LARGE = """
template <int KB> __global__ void large(float* out) {
    extern __shared__ float held[];
    for (int i = threadIdx.x; i < KB * 256; i += blockDim.x) held[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = held[KB * 256 - 1];
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    return tmp_path


def doubled(out: NDArray[np.float32], values: NDArray[np.float32], n: np.int32) -> Sequence[Any]:
    del out, n
    return [2 * values, None, None]


def faulty() -> Workload:
    values = np.random.default_rng(0).standard_normal(N, np.float32)
    arguments = [np.zeros_like(values), values, np.int32(N)]
    return workload("faulty", arguments, doubled, Verification())


@pytest.fixture(scope="module")
def broken(device: Device) -> dict[str, Candidate]:
    """A candidate with each fault, by the name of the fault."""
    values = {"FAULT": range(len(FAULTS))}
    compiled = candidates(faulty(), device, FAULTY, "faulty", values)
    return dict(zip(FAULTS, compiled, strict=True))


@pytest.fixture
def bench(session: Session) -> KernelBench:
    return KernelBench(session, faulty())


@pytest.fixture
def runner(device: Device) -> Iterator[GpuRunner]:
    del device  # requested only to skip without a GPU
    with ExitStack() as stack:
        opened = open_kernel_runner(faulty(), time_limit=5.0)
        stack.callback(opened.close)
        yield opened


def verified(work: Workload, candidate: Candidate, session: Session) -> Measurement:
    outcome = KernelBench(session, work).measure(candidate, None)
    assert isinstance(outcome, Measurement), outcome
    return outcome


# The examples


def check_record(record: KernelRecord, trials: int) -> None:
    """Asserts that a record has that many trials and a measured, verified best entry."""
    best = record.best.measurement
    assert (record.evidence, record.baseline, record.provenance.trials) == (
        "measured",
        None,
        trials,
    )
    assert best.samples >= 3
    assert best.error is not None
    assert best.tolerance is not None
    assert best.error <= best.tolerance


def test_second_tuning_continues_the_first(device: Device) -> None:
    del device
    first = transpose.tune(1000, 1500, search=Search(trials=6))
    second = transpose.tune(1000, 1500, search=Search(trials=12))
    check_record(first, 6)
    check_record(second, 12)
    assert second.provenance.source == first.provenance.source
    assert first.best.measurement.error == 0.0


@pytest.mark.parametrize("points", [5, 9])
def test_stencil_example_is_tuned(device: Device, points: int) -> None:
    del device
    check_record(stencil.tune(700, 1300, points, search=Search(trials=10)), 10)


def test_exhaustive_search_times_every_tile(device: Device) -> None:
    del device
    matrix = np.random.default_rng(0).standard_normal((4096, 4096), np.float32)
    kernel = {**transpose.KERNEL, "parameters": {"TILE": (8, 32), "ROWS": (1, 8), "PAD": (1,)}}
    record = autotune.tune_kernel(
        **kernel,
        grid=lambda p: (4096 // p["TILE"], 4096 // p["TILE"]),
        arguments=(matrix, np.empty_like(matrix), np.int32(4096), np.int32(4096)),
        reference=transpose.reference,
        search=Search(effort="exhaustive"),
    )
    entries = {str(entry.config): entry for entry in record.entries}
    times = {config: entry.measurement.time_us for config, entry in entries.items()}
    assert set(times) == {
        f"transpose:TILE={tile},ROWS={rows},PAD=1" for tile in (8, 32) for rows in (1, 8)
    }
    assert all(entry.measurement.error == 0.0 for entry in record.entries)
    assert list(times.values()) == sorted(times.values())
    # The best is the fastest, or a configuration that no measurement tells from the fastest.
    assert tied(record.best.measurement, record.entries[0].measurement)
    # Blocks of 8 threads read 32 bytes at a time and fill a quarter of a warp.
    assert times["transpose:TILE=32,ROWS=8,PAD=1"] < times["transpose:TILE=8,ROWS=1,PAD=1"]
    # 128 MiB at 8 TB/s or less.
    assert min(times.values()) > 16


def test_best_kernel_finds_the_tuned_record(device: Device) -> None:
    del device
    record = transpose.tune(300, 200, search=Search(trials=3))
    arguments = np.empty((300, 200), np.float32), np.empty((200, 300), np.float32)
    sizes = np.int32(300), np.int32(200)
    assert autotune.best_kernel("transpose", [*arguments, *sizes]) == record


# Verification


def test_correct_kernel_is_measured(bench: KernelBench, broken: dict[str, Candidate]) -> None:
    outcome = bench.measure(broken["none"], None)
    assert isinstance(outcome, Measurement)
    assert outcome.error == 0.0
    assert 0.5 < outcome.time_us < 1000


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong element", "argument 0: wrong result: 1 of 200 elements, such as "),
        ("nan", "such as nan instead of"),
        ("unwritten element", "at 7, tolerance"),
        ("writes before", "stray writes: changed 4 bytes around argument 0"),
        ("writes behind", "stray writes: changed 4 bytes around argument 0"),
        ("writes the input", "stray writes: changed 1 elements of argument 1"),
        ("right once", "wrong result: 200 of 200 elements, such as nan"),
    ],
)
def test_wrong_kernel_fails_verification(
    bench: KernelBench, broken: dict[str, Candidate], fault: str, reason: str
) -> None:
    outcome = bench.measure(broken[fault], None)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, reason in outcome.reason) == ("verify", True), outcome.reason
    assert isinstance(bench.measure(broken["none"], None), Measurement)


def test_crash_or_hang_fails_one_candidate_only(
    runner: GpuRunner, broken: dict[str, Candidate]
) -> None:
    outcomes = [
        runner.measure(broken[fault], None)
        for fault in ("none", "illegal access", "none", "endless loop", "none")
    ]
    stages = [outcome.stage if isinstance(outcome, Failure) else "fine" for outcome in outcomes]
    assert stages == ["fine", "crash", "fine", "timeout", "fine"]


def test_rematch_times_the_correct_candidates(
    runner: GpuRunner, broken: dict[str, Candidate]
) -> None:
    first, wrong, last = runner.rematch([broken[fault] for fault in ("none", "nan", "none")])
    assert [type(outcome) for outcome in (first, wrong, last)] == [
        Measurement,
        Failure,
        Measurement,
    ]
    assert runner.baseline() is None


def test_grid_that_cuda_refuses_fails_the_launch(
    bench: KernelBench, device: Device, broken: dict[str, Candidate]
) -> None:
    (refused,) = candidates(faulty(), device, FAULTY, "faulty", {"FAULT": (0,)}, grid=(1, 70000))
    outcome = bench.measure(refused, None)
    assert isinstance(outcome, Failure)
    assert outcome.stage == "launch"
    assert isinstance(bench.measure(broken["none"], None), Measurement)


# Arguments


def test_scalars_of_every_type_reach_the_kernel(session: Session) -> None:
    scalars = [
        *(np.bool_(True), np.int8(-128), np.uint8(255), np.int16(-32768), np.uint16(65535)),
        *(np.int32(-(2**31)), np.uint32(2**32 - 1), np.int64(-(2**53)), np.uint64(2**53)),
        *(np.float16(1.5), np.float32(0.1), np.float64(0.1)),
    ]
    values = [float(scalar) for scalar in scalars]
    values[9] = float(np.float16(1.5).view(np.uint16))
    expected = np.array([*values, -7.0])
    out, array = np.zeros(len(expected)), np.array([3, -7], np.int16)

    def reference(*arguments: Any) -> Sequence[Any]:
        return [expected, *[None] * (len(arguments) - 1)]

    work = workload("types", [out, *scalars, array], reference, Verification(rtol=0.0, atol=0.0))
    (candidate,) = candidates(work, session.device, TYPES, "types", {"N": (len(expected),)})
    assert verified(work, candidate, session).error == 0.0


def test_kernel_may_use_all_shared_memory_of_a_block(session: Session) -> None:
    most = session.device.shared_per_block_optin // 1024
    expected = np.array([most * 256 - 1], np.float32)
    work = workload("large", [np.zeros(1, np.float32)], lambda _: [expected], Verification())
    (candidate,) = candidates(
        work, session.device, LARGE, "large", {"KB": (most,)}, shared=most * 1024
    )
    assert verified(work, candidate, session).error == 0.0
    assert candidate.resources.shared == most * 1024


def test_accumulated_output_is_reset_before_each_run(session: Session) -> None:
    source = "__global__ void add(int* x) { atomicAdd(x + threadIdx.x, 1); }"
    work = workload("add", [np.arange(32, dtype=np.int32)], lambda x: [x + 1], Verification())
    (candidate,) = candidates(work, session.device, source, "add<>", {}, block=32)
    verified(work, candidate, session)


def test_occupancy_matches_the_driver(session: Session) -> None:
    kernel = transpose.KERNEL
    work = workload("transpose", *_transpose_call(), Verification())
    values = {"TILE": (16, 32, 64), "ROWS": (4, 8, 16), "PAD": (1,)}
    geometry = {"block": kernel["block"], "shared": kernel["shared"]}
    compiled = candidates(work, session.device, kernel["source"], "transpose", values, **geometry)
    for candidate in compiled:
        (program,), launch = candidate.programs, candidate.plan.main
        assert resources(session, program, launch) == candidate.resources
        resident = candidate.resources.occupancy(session.device).blocks_per_sm
        assert resident_blocks(session, program, launch) == resident


@pytest.mark.parametrize(
    "attributes",
    [
        "__launch_bounds__(128)",
        "__block_size__((128, 1, 1))",
        "__cluster_dims__(2, 1, 1)",
        "__cluster_dims__(16, 1, 1)",
    ],
)
def test_driver_refuses_what_the_bounds_forbid(session: Session, attributes: str) -> None:
    if not session.device.has_clusters and "launch_bounds" not in attributes:
        pytest.skip("compiles for compute capability 9.0 and newer")
    source = f"""__global__ void {attributes} twice(float* x) {{
        if (blockIdx.x == 0 && threadIdx.x < 32) x[threadIdx.x] *= 2;
    }}"""
    work = workload("twice", [np.ones(32, np.float32)], lambda x: [2 * x], Verification())
    geometry: dict[str, Any] = {"grid": 1, "block": 128, "shared": 0}
    kernel = define_kernel(source, "twice<>", {}, constraints=None, **geometry)
    (config,) = kernel.combinations()
    plan = KernelTunable(kernel, work.call, work.arguments).plan(config)
    with unpacked(kernel.source, kernel.includes) as (folder, includes):
        program = compiler.compile(
            *(plan.main.template, session.device.arch),
            cache=None,
            sources=folder,
            includes=includes,
        )
    assert isinstance(program, Program), program.log
    bench = KernelBench(session, work)
    for threads, blocks in product((64, 128, 256), (1, 2, 16)):
        launch = replace(plan.main, grid=(blocks, 1, 1), block=(threads, 1, 1))
        changed = replace(plan, launches=(launch,))
        candidate = Candidate(config, changed, (program,), resources_of(launch, program))
        outcome, refusal = bench.measure(candidate, None), program.bounds.refusal(launch)
        assert isinstance(outcome, Failure) is (refusal is not None), (threads, blocks, outcome)
        assert not isinstance(outcome, Failure) or outcome.stage == "launch", outcome


def _transpose_call() -> tuple[list[Any], Any]:
    matrix = np.ones((64, 64), np.float32)
    return [matrix, matrix.copy(), np.int32(64), np.int32(64)], transpose.reference


# Running and exporting what was tuned

MACROS = """
#include <cuda_fp16.h>
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
    const int at = blockIdx.x * block_size_x + threadIdx.x;
    if (at < n) y[at] += a * FACTOR * x[at] + __half2float(__float2half(0.0f));
}
"""


AXPY: dict[str, Any] = {
    "source": MACROS,
    "name": "axpy",
    "parameters": {"block_size_x": (64, 256), "FACTOR": (1.0,)},
    "compile": autotune.Compilation(defines=True, options=["--use_fast_math"]),
    "problem_size": 1000,
    "search": Search(sampler="exhaustive"),
    "progress": False,
}


def axpy_arguments() -> list[Any]:
    y, x = (np.random.default_rng(seed).standard_normal(1000, np.float32) for seed in (0, 1))
    return [y, x, np.float32(2.0), np.int32(1000)]


def axpy_reference(y: Any, x: Any, a: Any, n: Any) -> list[Any]:
    del n
    return [y + float(a) * x, None, None, None]


def tuned_axpy() -> KernelRecord:
    return autotune.tune_kernel(**AXPY, arguments=axpy_arguments(), reference=axpy_reference)


def test_tuned_kernel_runs_on_torch_tensors(device: Device) -> None:
    del device
    torch = pytest.importorskip("torch")
    tuned_axpy()
    y, x, a, n = axpy_arguments()
    left, right = (torch.from_numpy(array).cuda() for array in (y, x))
    record = autotune.best_kernel("axpy", [left, right, a, n])
    loaded = autotune.kernel(record)
    loaded(left, right, a, n)
    np.testing.assert_allclose(left.cpu().numpy(), y + 2 * x, rtol=1e-5, atol=1e-6)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    autotune.kernel(record.entries[-1])(left, right, -2.0, 1000, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(left.cpu().numpy(), y, rtol=1e-4, atol=1e-5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loaded(left, right, 1.0, n)
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_allclose(left.cpu().numpy(), y + x, rtol=1e-4, atol=1e-5)
    with pytest.raises(autotune.errors.ArrayError, match=r"has the shape \(10,\)"):
        loaded(left[:10], right, 1.0, n)


def test_tuned_kernel_runs_on_pycuda_arrays(device: Device) -> None:
    del device
    pytest.importorskip("pycuda")
    record = tuned_axpy()
    with PyCudaSession(0):  # makes the primary context current for PyCUDA
        from pycuda import gpuarray

        y, x, a, n = axpy_arguments()
        left, right = gpuarray.to_gpu(y), gpuarray.to_gpu(x)
        loaded = autotune.kernel(record)
        loaded(left, right, a, n)
        np.testing.assert_allclose(left.get(), y + 2 * x, rtol=1e-5, atol=1e-6)
        del left, right


def test_torch_tensors_may_be_arguments(device: Device) -> None:
    del device
    torch = pytest.importorskip("torch")
    y, x, a, n = axpy_arguments()
    tensors = [torch.from_numpy(y).cuda(), torch.from_numpy(x).cuda(), a, n]
    record = autotune.tune_kernel(**AXPY, arguments=tensors, reference=axpy_reference)
    check_record(record, 2)
    assert record == autotune.best_kernel("axpy", axpy_arguments())


def test_first_configuration_stands_in_for_a_reference(device: Device) -> None:
    del device
    record = autotune.tune_kernel(**AXPY, arguments=axpy_arguments())
    check_record(record, 2)
    assert record.verified == "axpy:block_size_x=64,FACTOR=1.0"


def test_score_may_be_a_function(device: Device) -> None:
    del device
    record = autotune.tune_kernel(
        **AXPY
        | {"search": Search(sampler="exhaustive", score=lambda result: 1 / result["block_size_x"])},
        arguments=axpy_arguments(),
        reference=axpy_reference,
        metrics={"GB/s": lambda result: 12e-3 * 1000 / result.time_us},
    )
    assert record.best.config.values["block_size_x"] == 256
    assert dict(record.best.metrics)["GB/s"] > 0


def test_exported_kernel_runs(device: Device, tmp_path: Path) -> None:
    del device
    torch = pytest.importorskip("torch")
    tuned_axpy()
    written = autotune.export.write_kernels(["axpy"], tmp_path / "lib")
    library, source = str(tmp_path / "libaxpy.so"), str(tmp_path / "lib" / "axpy.c")
    command = ["gcc", "-std=c11", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    axpy = ctypes.CDLL(library).axpy
    axpy.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_float, ctypes.c_int32, ctypes.c_void_p]
    y, x, _, n = axpy_arguments()
    left, right = (torch.from_numpy(array).cuda() for array in (y, x))
    stream = torch.cuda.current_stream().cuda_stream
    assert axpy(left.data_ptr(), right.data_ptr(), 2.0, int(n), stream) == 0
    np.testing.assert_allclose(left.cpu().numpy(), y + 2 * x, rtol=1e-5, atol=1e-6)
    assert written.library.functions
