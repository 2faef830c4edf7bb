"""Tensor maps in the launches of the runtime, on the fake GPU."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import pytest
from support.fake_driver import FakeCuda, Shape
from support.fake_encoder import FakeEncoder

from autotune.cuda.program import Program
from autotune.errors import ArrayError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Template, TensorMap
from autotune.problem.call import Call
from autotune.runtime.driver import Driver
from autotune.runtime.executable import Enqueue, Executable, Gpu

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
