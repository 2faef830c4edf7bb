"""Contexts, scratch memory, tensor maps and missing requirements, on the fake GPU."""

from __future__ import annotations

import builtins
import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.fake_driver import H100, MEMORY, FakeCuda, Shape, Status
from support.fake_encoder import FakeEncoder
from support.runtime_case import SPLIT, Case

import autotune
from autotune import runtime
from autotune.cuda import bindings
from autotune.cuda.program import Program
from autotune.errors import ArrayError, MissingError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Template, TensorMap
from autotune.problem import Problem
from autotune.problem.call import Call
from autotune.runtime import Kernel, UntunedWarning
from autotune.runtime.launcher import Driver, Enqueue, Executable, Gpu

PROBLEM = Problem(4, 8, 16)


@pytest.fixture
def case() -> Case:
    return Case(config=SPLIT)


def launched(case: Case, stream: int = 0, problem: Problem = PROBLEM) -> int:
    """The workspace of a launch on a stream."""
    sizes = problem.m, problem.n, problem.k
    a, b, c = (operand.host.ctypes.data for operand in case.operands(*sizes))
    Kernel(case.runtime, problem, 0).launch(a, b, c, stream)
    workspace = case.cuda.launches[-1].arguments[0]
    assert isinstance(workspace, int)
    return workspace


# Contexts.


def test_primary_context_is_entered_and_left_without_a_context(case: Case) -> None:
    launched(case)
    assert case.cuda.launches[-1].context == 100
    assert case.runtime.driver.current() is None


def test_driver_states_the_clusters_of_the_gpu_once(case: Case) -> None:
    assert case.runtime.gpu(0).device.clusters == (66, 31, 15)
    assert Driver(FakeCuda()).probe(0).clusters == (66, 31, 15)
    assert case.cuda.calls.count("cuOccupancyMaxActiveClusters") == 3


def test_current_context_of_the_device_is_used(case: Case) -> None:
    context = case.cuda.make_context(0)
    launched(case)
    assert case.cuda.launches[-1].context == context


def test_context_of_another_device_is_left_unchanged(case: Case) -> None:
    case.cuda.make_context(1)
    launched(case)
    assert case.cuda.launches[-1].context == 100
    assert case.runtime.driver.current() == 1


def test_primary_context_is_retained_once(case: Case) -> None:
    for _ in range(3):
        launched(case)
    assert case.cuda.calls.count("cuDevicePrimaryCtxRetain") == 1


def test_refused_launch_leaves_the_context(case: Case) -> None:
    launched(case)
    case.cuda.refuse = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RunnerError, match="as the driver words it"):
        launched(case)
    assert case.runtime.driver.current() is None


# Scratch memory.


def test_stream_keeps_its_workspace(case: Case) -> None:
    assert launched(case, 5) == launched(case, 5)


def test_each_stream_has_its_own_workspace(case: Case) -> None:
    assert launched(case, 5) != launched(case, 6)


def test_each_context_has_its_own_workspace(case: Case) -> None:
    case.cuda.make_context()
    first = launched(case)
    case.cuda.make_context()
    assert launched(case) != first


def test_each_threads_default_stream_has_its_own_workspace(case: Case) -> None:
    workspaces = [launched(case, 2)]
    thread = threading.Thread(target=lambda: workspaces.append(launched(case, 2)))
    thread.start()
    thread.join()
    assert len(set(workspaces)) == 2


def test_outgrown_workspace_stays_for_queued_work(case: Case) -> None:
    small = launched(case, 5)
    large = launched(case, 5, Problem(64, 64, 16))
    assert small != large
    assert {small, large} <= set(case.cuda.allocations)


def test_workspaces_grow_in_powers_of_two(case: Case) -> None:
    launched(case, 5, Problem(5, 7, 16))
    workspace, _counters = case.cuda.allocations.values()
    assert workspace.nbytes == 512  # 2 x 5 x 7 x 4 = 280 bytes are needed.


def test_smaller_workspace_fits_into_a_larger_one(case: Case) -> None:
    assert launched(case, 5, Problem(64, 64, 16)) == launched(case, 5)


def counters(case: Case) -> int:
    """The counters of the last launch."""
    address = case.cuda.launches[-1].arguments[-1]
    assert isinstance(address, int)
    return address


def test_stream_keeps_its_counters_zeroed_once(case: Case) -> None:
    addresses = {counters(case) for _ in range(3) if launched(case, 5)}
    assert (len(addresses), case.cuda.calls.count("cuMemsetD32Async")) == (1, 1)


def test_each_stream_has_its_own_counters(case: Case) -> None:
    assert len({counters(case) for stream in (5, 6) if launched(case, stream)}) == 2


def test_counters_are_apart_from_the_workspace(case: Case) -> None:
    launched(case, 5)
    assert counters(case) != case.cuda.launches[-1].arguments[0]


def test_counters_are_zeroed_on_their_stream(case: Case) -> None:
    launched(case, 5)
    assert case.cuda.zeroed == [5]


def test_first_call_of_a_shape_can_be_captured(case: Case) -> None:
    case.cuda.captures[5] = 1
    launched(case, 5)
    assert [launch.stream for launch in case.cuda.launches] == [5, 5]


def test_captured_graph_has_its_own_workspace(case: Case) -> None:
    workspaces = {launched(case, 5)}
    for capture in (1, 2):
        case.cuda.captures[5] = capture
        workspaces.add(launched(case, 5))
    assert len(workspaces) == 3


# Devices.


def test_probed_device_has_the_driver_attributes() -> None:
    expected = bindings.describe("NVIDIA H100 80GB HBM3", MEMORY, H100)
    assert Driver(FakeCuda()).probe(0) == expected


def test_missing_device_is_reported() -> None:
    with pytest.raises(RunnerError, match="cuDeviceGet gave CUDA_ERROR_INVALID_DEVICE"):
        Driver(FakeCuda(devices=1)).probe(1)


# Missing requirements.


def test_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    _bindings(FakeCuda(devices=0), monkeypatch)
    with pytest.raises(MissingError, match="no usable GPU: cuInit gave CUDA_ERROR_NO_DEVICE"):
        Driver.load()


def test_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDriver(FakeCuda):
        def cuInit(self, _: int) -> Any:
            raise RuntimeError("libcuda cannot be found")

    _bindings(NoDriver(), monkeypatch)
    with pytest.raises(MissingError, match=r"libcuda.so.1 was not found; install NVIDIA's driver"):
        Driver.load()


def test_missing_bindings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(
        MissingError, match=r"cuda.bindings cannot be imported .*; run `pip install 'tile-autotune"
    ):
        Driver.load()


def _bindings(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("cuda.bindings")
    monkeypatch.setattr(package, "driver", fake, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)


def test_fake_driver_has_only_names_of_the_bindings() -> None:
    real = pytest.importorskip("cuda.bindings.driver")
    offered = [name for name in vars(FakeCuda) if name.startswith(("cu", "CU"))]
    assert [name for name in offered if not hasattr(real, name)] == []


HEAVY = ("pycuda", "optuna", "torch", "cupy", "cuda", "rich", "typer")


def test_importing_the_runtime_imports_no_library() -> None:
    code = f"import sys, autotune.runtime; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The process's own matmul.


def test_kernel_of_an_untuned_shape_is_compiled_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCuda()
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Driver, "load", lambda: Driver(fake))
    runtime.current.cache_clear()
    with pytest.warns(UntunedWarning, match="autotune tune 32x32x8"):
        kernel = autotune.kernel(32, 32, 8)
    runtime.current.cache_clear()
    assert (kernel.how, len(fake.limits)) == ("predicted", len(kernel.plan.launches))


WORKSPACE = 1 << 20
ADDRESSES = 4096, 8192, 12288, 0
A = TensorMap("a", 0, "f16", 64, 64, 2, "lda", "stride_a", (64, 64), 128)
COPY = TensorMap("workspace", 256, "f16", 64, 64, 2, 64, 4096, (64, 64), 128)


class Seen(NamedTuple):
    """The arguments of a launch: addresses and contents of its tensor maps, then the others."""

    places: tuple[int, ...]
    encodings: tuple[int, ...]
    pointer: int
    number: int
    factor: float


class MapCuda(FakeCuda):
    """Kernels that take tensor maps, a pointer, an i32 and an f32."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = FakeEncoder()
        self.seen: list[Seen] = []
        self.count = 0

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        if name != b"cuTensorMapEncodeTiled":
            return super().cuGetProcAddress(name, version, flags)
        return self.encoder.cuGetProcAddress(name, version, flags)

    def launch(self, _: int, parameters: int, shape: Shape) -> None:  # noqa: ARG002
        *maps, pointer, number, factor = (ctypes.c_uint64 * self.count).from_address(parameters)
        self.seen.append(
            Seen(
                tuple(maps),
                tuple(ctypes.c_uint64.from_address(map_).value for map_ in maps),
                ctypes.c_uint64.from_address(pointer).value,
                ctypes.c_int32.from_address(number).value,
                ctypes.c_float.from_address(factor).value,
            )
        )


@pytest.fixture
def cuda() -> MapCuda:
    cuda = MapCuda()
    cuda.make_context()
    return cuda


def executable(cuda: MapCuda, *maps: TensorMap) -> Executable:
    arguments = (
        *(Argument("tensor_map", map_) for map_ in maps),
        Argument("pointer", "b"),
        Argument("i32", 7),
        Argument("f32", "alpha"),
    )
    template = Template("x.cu", "x")
    cuda.count = len(arguments)
    launch = Launch(template, (1, 1, 1), (32, 1, 1), 0, arguments)
    plan = LaunchPlan(Config("x"), (launch,), WORKSPACE)
    program = Program(template, "sm_90", b"cubin", "x", 32, 0, 0, 0, 1, "fake", "key", "")
    return Executable(Gpu(Driver(cuda), 0), plan, [program])


def bound(plan: Executable, a: int = ADDRESSES[0], stride: int = 4096) -> Enqueue:
    addresses = dict(zip(("a", "b", "c", "bias"), (a, *ADDRESSES[1:]), strict=True))
    pitches, strides = dict.fromkeys("abc", 64), {"a": stride, "b": 4096, "c": 4096}
    return plan.bind(Call(addresses, pitches, strides, 0.5)).enqueue


def run(plan: Executable, a: int = ADDRESSES[0]) -> None:
    bound(plan, a)(0)


def test_tensor_maps_precede_the_other_arguments(cuda: MapCuda) -> None:
    run(executable(cuda, A, COPY))
    (seen,) = cuda.seen
    assert (seen.encodings, seen.pointer, seen.number, seen.factor) == ((0, 1), 8192, 7, 0.5)
    assert [place % 64 for place in seen.places] == [0, 0]


def test_tensor_maps_describe_operands_and_workspace(cuda: MapCuda) -> None:
    run(executable(cuda, A, COPY))
    of_a, of_copy = cuda.encoder.calls
    assert (of_a.address, of_a.strides) == (4096, (128, 8192))
    (workspace,) = cuda.allocations
    assert of_copy.address == workspace + 256


def test_tensor_maps_are_encoded_once_for_each_bound_gemm(cuda: MapCuda) -> None:
    plan = executable(cuda, A, COPY)
    first, second = bound(plan), bound(plan, 65536)
    for enqueue in (first, second, first, second):
        enqueue(0)
    assert len(cuda.encoder.calls) == 4
    assert [seen.encodings for seen in cuda.seen] == [(0, 1), (2, 3), (0, 1), (2, 3)]


def test_new_workspace_encodes_tensor_maps_again(cuda: MapCuda) -> None:
    enqueue = bound(executable(cuda, A, COPY))
    for stream in (0, 5, 0):
        enqueue(stream)
    assert [seen.encodings for seen in cuda.seen] == [(0, 1), (2, 3), (0, 1)]


def test_tensor_map_of_a_shared_matrix_has_one_matrix(cuda: MapCuda) -> None:
    bound(executable(cuda, A), stride=0)(0)
    assert [call.extents[2] for call in cuda.encoder.calls] == [1]


def test_misaligned_operand_is_refused(cuda: MapCuda) -> None:
    with pytest.raises(RunnerError, match="tensor map of a: address 0x1002"):
        run(executable(cuda, A), a=4098)
    assert cuda.seen == []


def test_tensor_maps_are_encoded_in_a_context_of_the_device(cuda: MapCuda) -> None:
    plan = executable(cuda, A)
    contexts: list[int | None] = []
    encode = cuda.encoder._encode

    def recording(*arguments: int) -> int:
        contexts.append(cuda._stack[-1] if cuda._stack else None)
        return encode(*arguments)

    cuda.encoder.answer(recording)
    cuda._stack.clear()
    run(plan)
    assert contexts == [100]


def test_encoder_is_unused_without_tensor_maps(cuda: MapCuda) -> None:
    cuda.encoder = None  # type: ignore[assignment]
    run(executable(cuda))
    assert cuda.seen == [Seen((), (), 8192, 7, 0.5)]


def test_operand_that_no_launch_reads_is_refused(cuda: MapCuda) -> None:
    plan = executable(cuda, A)
    with pytest.raises(ArrayError, match="x has no amax; leave it out, or tune the problem"):
        plan.bind(Call({"amax": 256}, {}, {}))
    with pytest.raises(ArrayError, match="x has no scale_result; "):
        plan.bind(Call({"scale_c": 256}, {}, {}))
