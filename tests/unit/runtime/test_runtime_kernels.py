"""Kernels of one problem and of the user, bound to arrays, on the fake GPU."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import fake_driver
from support.fake_driver import Matrix
from support.fake_frameworks import FakeTorch, Interface, Tensor
from support.fake_runner import program
from support.runtime_case import SPLIT, Case
from support.sample_records import entry
from support.sample_user_kernels import SAXPY, N, arguments, kernel

import autotune
from autotune import runtime
from autotune.cuda import symbols
from autotune.cuda.symbols import Variable
from autotune.cuda.textures import Texture
from autotune.errors import ArrayError, NotFoundError, UsageError
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch, KernelStep
from autotune.runtime import Kernel, kernels
from autotune.runtime.kernels import TunedKernel
from autotune.user_kernels.arguments import call_of


def _close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_kernel_computes_its_problem(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, out = case.operands(5, 7, 3)
    kernel(a, b, out, 2.0)
    assert _close(out.host, 2 * (a.host @ b.host))


def test_kernel_is_compiled_when_created(case: Case) -> None:
    Kernel(case.runtime, Problem(4, 8, 16), 0)
    built = len(case.built)
    case.matmul(*case.operands(4, 8, 16))
    assert (built, len(case.built)) == (1, 1)


def test_kernel_tells_its_configuration_and_plan(case: Case) -> None:
    case.config = SPLIT
    kernel = Kernel(case.runtime, Problem(5, 7, 64), 0)
    assert (kernel.config, kernel.how, kernel.plan.workspace) == (SPLIT, "exact", 2 * 5 * 7 * 4)


def test_kernel_refuses_another_shape(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match="a product 5x7x4:f32:nn; this kernel is for 5x7x3:f32:nn"):
        kernel(*case.operands(5, 7, 4))


def test_kernel_refuses_another_layout(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, layout="tn"), 0)
    with pytest.raises(
        ArrayError, match=r"A of shape \(5, 3\) has strides \(3, 1\); it must be the"
    ):
        kernel(*case.operands(5, 7, 3))


def test_kernel_refuses_another_device(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 1)
    with pytest.raises(ArrayError, match="A is on CUDA device 0; this kernel is for device 1"):
        kernel(*case.operands(5, 7, 3))


def test_kernel_launches_on_addresses_and_a_stream(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, c = case.matrix(5, 10), case.matrix(3, 7), case.matrix(5, 8)
    kernel.launch(a.ctypes.data, b.ctypes.data, c.ctypes.data, 77, lda=10, ldc=8, alpha=2.0)
    assert _close(c[:, :7], 2 * (a[:, :3] @ b))
    assert case.cuda.launches[0].stream == 77


def test_kernel_refuses_overlapping_rows(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match="B at 0x100 has leading dimension 6; it takes 7 or more"):
        kernel.launch(0x100, 0x100, 0x100, ldb=6)


def test_kernel_refuses_a_misaligned_address(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match=r"C at 0x102 .* an address that is a multiple of 4"):
        kernel.launch(0x100, 0x100, 0x102)


# Bound gemms.


def test_bound_gemm_reads_the_current_contents(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, out = case.operands(5, 7, 3)
    bound = kernel.bind(a, b, out, 2.0)
    for _ in range(2):
        a.host[:] += 1
        bound()
        assert _close(out.host, 2 * (a.host @ b.host))


def test_bound_gemm_only_reads_the_context_and_launches(case: Case) -> None:
    case.cuda.make_context()
    bound = Kernel(case.runtime, Problem(5, 7, 3), 0).bind(*case.operands(5, 7, 3))
    bound()
    assert case.calls(bound) == ["cuCtxGetId", "cuLaunchKernelEx"]


def test_bound_gemm_runs_on_the_current_stream(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    a, b, out = (torch.on("cuda:0", operand.host) for operand in case.operands(5, 7, 3))
    bound = Kernel(case.runtime, Problem(5, 7, 3), 0).bind(a, b, out)
    for stream in (0, 33):
        torch.current = stream
        bound()
    assert [launch.stream for launch in case.cuda.launches] == [0, 33]


def test_arrays_that_do_not_fit_cannot_be_bound(case: Case) -> None:
    a, b, _ = case.operands(5, 7, 3)
    with pytest.raises(ArrayError, match=r"out is \(5, 3\); the product is \(5, 7\)"):
        Kernel(case.runtime, Problem(5, 7, 3), 0).bind(a, b, case.array(5, 3))


def test_kernel_keeps_a_bounded_number_of_launches(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "KEPT_CALLS", 4)
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    for _ in range(9):
        a, b, out = case.operands(5, 7, 3)
        kernel.launch(*(operand.host.ctypes.data for operand in (a, b, out)))
        assert _close(out.host, a.host @ b.host)
    assert len(kernel._launches) == 1


CONFIG = Config.of("saxpy", {"THREADS": 256, "EACH": 1})

GEOMETRY = Geometry((4, 1, 1), (256, 1, 1), 64)


def run_saxpy(z: int, y: int, x: int, a: float, n: int, *flags: int) -> None:
    """The fake machine code of the kernel."""
    assert (z, flags) == (0, (256, 1))
    left, right = (
        np.ctypeslib.as_array((ctypes.c_float * n).from_address(address)) for address in (y, x)
    )
    left += np.float32(a) * right


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setitem(fake_driver._KERNELS, "saxpy", (run_saxpy, "PPfi"))
    return Case()


def tuned(case: Case, call: KernelCall | None = None, **keywords: Any) -> TunedKernel:
    launch = KernelLaunch(kernel().source, call or call_of("saxpy", arguments()), (GEOMETRY,))
    plan = launch.plan(CONFIG)
    template = plan.main.template
    compiled = replace(program(template, "sm_90"), symbol=template.expression)
    return TunedKernel(case.runtime, 0, launch.call, plan, compiled, **keywords)


def vectors(case: Case) -> tuple[Any, Any]:
    return case.matrix(N), case.matrix(N)


@pytest.mark.parametrize("library", [Interface, Tensor])
def test_kernel_runs_on_arrays(case: Case, library: type) -> None:
    if library is Tensor:
        frameworks: dict[type, Any] = case.runtime._frameworks
        frameworks[Tensor] = TensorFramework()
    y, x = vectors(case)
    expected = y + np.float32(2.5) * x
    tuned(case)(library(y), library(x), 2.5, N)
    np.testing.assert_array_equal(y, expected)
    (launch,) = case.cuda.launches
    assert (launch.kernel, launch.grid, launch.block) == ("saxpy<256, 1>", (4, 1, 1), (256, 1, 1))
    assert (launch.shared, launch.stream) == (64, 0 if library is Interface else 77)


@pytest.mark.parametrize("lazy", ["negative", "conjugate"])
@pytest.mark.usefixtures("torch")
def test_lazy_tensors_are_refused(case: Case, lazy: str) -> None:
    dtype = {"negative": np.float32, "conjugate": np.complex64}[lazy]
    y, x = (Tensor(case.cuda.hold(np.zeros(N, dtype))) for _ in "yx")
    run = tuned(case, call_of("saxpy", [y.host, x.host, *arguments()[2:]]))
    run(y, x, 2.5, N)
    setattr(x, lazy, True)
    with pytest.raises(ArrayError, match=rf"argument 1 is lazily {lazy[:5]}.*; give \.resolve_"):
        run(y, x, 2.5, N)
    assert len(case.cuda.launches) == 1


class TensorFramework:
    """PyTorch as far as launching reads it."""

    def read(self, array: Tensor) -> tuple[int, Any]:
        return array.data_ptr(), (array.shape, array.stride(), array.dtype)

    def describe(self, array: Tensor, name: str) -> Any:
        from autotune.runtime.arrays import ArrayInfo

        dtype = array.dtype.removeprefix("torch.")
        return ArrayInfo(name, array.shape, array.stride(), dtype, array.device.index)

    def stream(self, arrays: Any, ordinal: int) -> int:
        assert len(arrays) == 2
        return 77 + ordinal


def test_numbers_may_be_of_numpy_and_stream_any(case: Case) -> None:
    y, x = vectors(case)
    expected = y + np.float32(0.5) * x

    class Stream:
        ptr = 55

    tuned(case)(Interface(y), Interface(x), np.float64(0.5), np.int32(N), stream=Stream())
    np.testing.assert_array_equal(y, expected)
    assert case.cuda.launches[0].stream == 55


def test_second_launch_of_a_call_checks_and_packs_nothing(case: Case) -> None:
    loaded, (y, x) = tuned(case), vectors(case)
    call = Interface(y), Interface(x), 1.0, N
    case.cuda.make_context()
    first = case.calls(lambda: loaded(*call))
    calls = case.calls(lambda: loaded(*call))
    assert [name for name in calls if name != "cuPointerGetAttribute"] == [
        *("cuCtxGetId", "cuLaunchKernelEx")
    ]
    assert len(calls) < len(first)
    loaded(Interface(y), Interface(x), 2.0, N)
    assert len(loaded._bound) == 2


def test_grid_serves_arrays_of_other_shapes(case: Case) -> None:
    y, x = case.matrix(2, N), case.matrix(2, N)
    loaded = tuned(case)
    with pytest.raises(ArrayError, match=r"has the shape \(2, 1000\); .* tuned for \(1000,\)"):
        loaded(Interface(y), Interface(x), 1.0, 2 * N)
    loaded(Interface(y), Interface(x), 1.0, 2 * N, grid=(8, 1, 1))
    assert case.cuda.launches[0].grid == (8, 1, 1)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "double", "argument 0 is float64; the kernel takes float32"),
        (0, "far", "argument 0 is on CUDA device 1; the kernel is loaded on CUDA device 0"),
        (
            1,
            "gaps",
            r"argument 1 of shape \(1000,\) has strides \(2,\); copy it with",
        ),
        (1, np.zeros(N, np.float32), "argument 1 is a numpy.ndarray, which is not on a CUDA"),
        (2, "x", "argument 2 is str; the kernel takes a float32"),
        (2, 1j, "argument 2 is 1j; the kernel takes a float32"),
        (3, 0.5, "argument 3 is 0.5; the kernel takes a int32"),
        (3, 2**31, "a number of saxpy.* does not fit"),
    ],
)
def test_argument_that_does_not_fit_is_refused(
    case: Case, place: int, value: Any, message: str
) -> None:
    y, x = vectors(case)
    call: list[Any] = [Interface(y), Interface(x), 1.0, N]
    arrays = {
        "double": lambda: Interface(case.cuda.hold(np.zeros(N))),  # type: ignore[arg-type]
        "far": lambda: case.array(N, ordinal=1),
        "gaps": lambda: Interface(case.matrix(2 * N)[::2]),
    }
    call[place] = arrays[value]() if isinstance(value, str) and value in arrays else value
    with pytest.raises(ArrayError, match=message):
        tuned(case)(*call)
    assert case.cuda.launches == []


def test_wrong_number_of_arguments_is_refused(case: Case) -> None:
    with pytest.raises(ArrayError, match=r"saxpy\(.*\) takes 4 arguments, not 1"):
        tuned(case)(1)


# Several kernels


def run_double(z: int, out: int, x: int, n: int, *flags: int) -> None:
    assert (z, flags) == (0, (256, 1))
    read, written = (
        np.ctypeslib.as_array((ctypes.c_float * n).from_address(at)) for at in (x, out)
    )
    written[:] = 2 * read


STEPS = (
    KernelStep("double_of", "double_of<{THREADS}, {EACH}>", (2, 1, 3)),
    KernelStep("saxpy", "saxpy<{THREADS}, {EACH}>", (0, 2, 4, 3), cooperative=True),
)
SCRATCH_CALL = KernelCall(
    "double_of",
    ("float32[1000]", "float32[1000]", "float32[scratch]", "int32=...", "float32=2.5"),
)


def several(case: Case, monkeypatch: pytest.MonkeyPatch) -> TunedKernel:
    """y += a (2 x), by way of scratch memory."""
    monkeypatch.setitem(fake_driver._KERNELS, "double_of", (run_double, "PPi"))
    own = ((2, 4 * N), (3, N))
    launch = KernelLaunch(kernel().source, SCRATCH_CALL, (GEOMETRY, GEOMETRY), STEPS, own)
    plan = launch.plan(CONFIG)
    programs = [
        replace(program(step.template, "sm_90"), symbol=step.template.expression, key=str(place))
        for place, step in enumerate(plan.launches)
    ]
    return TunedKernel(case.runtime, 0, launch.call, plan, *programs)


def test_steps_run_in_order_on_scratch_of_the_runtime(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, (y, x) = several(case, monkeypatch), vectors(case)
    expected = y + np.float32(0.5) * (2 * x)
    loaded(Interface(y), Interface(x), 0.5)
    np.testing.assert_array_equal(y, expected)
    assert [launch.kernel for launch in case.cuda.launches] == [
        *("double_of<256, 1>", "saxpy<256, 1>")
    ]
    assert [launch.dependent for launch in case.cuda.launches] == [False, False]
    assert case.cuda.cooperative == [False, True]
    assert sum(memory.nbytes for memory in case.cuda.allocations.values()) >= 4 * N


def test_steps_take_what_the_configuration_does_not_determine(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, (y, x) = several(case, monkeypatch), vectors(case)
    with pytest.raises(ArrayError, match="takes 3 arguments, not 5"):
        loaded(Interface(y), Interface(x), Interface(x), N, 2.5)
    with pytest.raises(ArrayError, match="several kernels; call it without grid"):
        loaded(Interface(y), Interface(x), 2.5, grid=(1, 1, 1))
    assert case.cuda.launches == []


def test_bits_stand_for_types_that_numpy_lacks(case: Case) -> None:
    call = KernelCall("saxpy", ("uint16[1000]", "uint16[1000]", "float32=1", "int32=0"))
    x = Interface(case.matrix(N, dtype="float16"))
    tuned(case, call)(x, x, 1.0, 0)
    assert len(case.cuda.launches) == 1


# Structures, complex numbers, Fortran order, textures and constants

POINT = np.dtype([("tag", "i1"), ("at", "f8")], align=True)


def loaded_with(case: Case, *values: Any, **keywords: Any) -> TunedKernel:
    """The kernel as tuned with these arguments."""
    return tuned(case, call_of("saxpy", values), **keywords)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, case: Case) -> list[Any]:
    """The arguments of each launch."""
    launches: list[Any] = []

    def keep(_: int, *values: Any) -> None:
        launches.append(values[:-2])

    del case  # it sets the kernel that this replaces
    monkeypatch.setitem(fake_driver._KERNELS, "saxpy", (keep, "PqqP"))
    return launches


@pytest.mark.parametrize("number", [1 + 2j, 2.5, 3, np.complex128(1j)])
def test_values_of_many_bytes_reach_the_kernel(
    case: Case, seen: list[Any], number: complex
) -> None:
    point = np.array((3, 0.5), POINT)[()]
    x = case.matrix(N)
    texture = Texture(np.zeros(4, np.float32))
    kernel = loaded_with(case, x, point, np.complex64(1), texture)
    other = np.array((4, 1.5), POINT)[()]
    kernel(Interface(x), other, number, 77)
    words = (value.tobytes()[:8] for value in (other, np.complex64(number)))
    first, second = (int.from_bytes(word, "little", signed=True) for word in words)
    assert seen == [(x.ctypes.data, first, second, 77)]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, 5, r"1 is 5; the kernel takes the NumPy structure struct16\{tag:int8@0,at:float64@8\}"),
        (
            1,
            np.zeros((), [("tag", "i1"), ("at", "f8")])[()],
            "the kernel takes the NumPy structure",
        ),
        (1, np.zeros(1, POINT), "the kernel takes the NumPy structure"),
        (2, "x", "argument 2 is str; the kernel takes a complex64"),
        (3, Texture(np.zeros(4, np.float32)), r"Texture; the kernel takes a texture\("),
    ],
)
def test_value_that_does_not_fit_is_refused(
    case: Case, seen: list[Any], place: int, value: Any, message: str
) -> None:
    x, point = case.matrix(N), np.zeros((), POINT)[()]
    texture = Texture(np.zeros(4, np.float32))
    kernel = loaded_with(case, x, point, np.complex64(1), texture)
    call: list[Any] = [Interface(x), point, 1j, 77]
    call[place] = value
    with pytest.raises(ArrayError, match=message):
        kernel(*call)
    assert seen == []


def test_array_lies_in_the_order_it_was_tuned_in(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fake_driver._KERNELS, "saxpy", (lambda *_: None, "P"))
    matrix = case.matrix(3, 5)
    transposed = Interface(case.cuda.hold(case.matrix(5, 3).T))
    columns = loaded_with(case, np.zeros((3, 5), np.float32, order="F"))
    columns(transposed)
    with pytest.raises(ArrayError, match=r"strides \(5, 1\); the kernel takes it in Fortran order"):
        columns(Interface(matrix))
    with pytest.raises(ArrayError, match=r"has strides \(1, 3\); copy it with"):
        loaded_with(case, np.zeros((3, 5), np.float32))(transposed)
    assert len(case.cuda.launches) == 1


def test_structures_may_come_as_their_bytes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fake_driver._KERNELS, "saxpy", (lambda *_: None, "P"))
    kernel = loaded_with(case, np.zeros(5, POINT))
    accepted: list[Any] = [np.zeros((5, 16), np.uint8), np.zeros(5, POINT)]
    for array in accepted:
        kernel(Interface(case.cuda.hold(array)))
    refused: list[Any] = [np.zeros((5, 8), np.uint8), np.zeros(10, np.float64)]
    for array in refused:
        with pytest.raises(
            ArrayError, match=r"has the shape \(5, 8\)|is float64; the kernel takes"
        ):
            kernel(Interface(case.cuda.hold(array)))


def test_kernels_with_other_constants_are_loaded_apart(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbols, "constants", lambda _: [Variable("w", "_Z1w", 8)])
    first, second, third = (
        tuned(case, constants={"w": np.full(8, value, np.uint8)}) for value in (1, 2, 1)
    )
    assert first.program.key == third.program.key != second.program.key
    assert case.cuda.calls.count("cuLibraryGetGlobal") == 2
    address = case.cuda.variables[b"_Z1w"]
    assert case.cuda.allocations[address].view(np.uint8)[:8].tolist() == [2] * 8


# Loading


@pytest.fixture
def loading(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Case:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return case


def test_entry_is_compiled_and_loaded(loading: Case) -> None:
    launch = KernelLaunch(kernel().source, call_of("saxpy", arguments()), (GEOMETRY,))
    recorded = KernelEntry.of(replace(entry(16, 1.0), config=CONFIG), launch)
    loaded = autotune.kernel(recorded)
    assert (loaded.grid, loaded.block, loaded.shared) == ((4, 1, 1), (256, 1, 1), 64)
    assert loaded.program.symbol.startswith("_Z5saxpyILi256ELi1EE")
    assert loading.cuda.limits[loaded.program.symbol] >= 64


CONSTANT = """
namespace { __constant__ float weights[4]; }
template <int THREADS, int EACH> __global__ void saxpy(float* y, const float* x, float a, int n) {
    y[threadIdx.x] = weights[threadIdx.x];
}
"""


def test_constants_are_filled_when_a_record_is_loaded(loading: Case) -> None:
    content = np.arange(4, dtype=np.float32)
    call = call_of("saxpy", arguments(), {"weights": content})
    launch = KernelLaunch(kernel(source=CONSTANT).source, call, (GEOMETRY,))
    recorded = KernelEntry.of(replace(entry(16, 1.0), config=CONFIG), launch)
    wanted = r"the constants are .*; saxpy was tuned with weights:float32\[4\]: give them"
    for missing in (None, {"weights": content[:2]}, {"others": content}):
        with pytest.raises(UsageError, match=wanted):
            autotune.kernel(recorded, constants=missing)
    autotune.kernel(recorded, constants={"weights": content})
    ((symbol, address),) = loading.cuda.variables.items()
    assert b"7weightsE" in symbol
    assert loading.cuda.allocations[address][:4].view(np.float32).tolist() == [0, 1, 2, 3]


def test_kernel_of_a_problem_has_no_constants() -> None:
    with pytest.raises(UsageError, match="constants are for a kernel of your own"):
        autotune.kernel(32, 32, 8, constants={"w": np.zeros(3)})  # type: ignore[call-overload]


def test_entry_without_source_says_what_to_do() -> None:
    recorded = KernelEntry.of(replace(entry(16, 1.0), config=CONFIG))
    with pytest.raises(NotFoundError, match=r"has no source: .* `autotune.tune_kernel` again"):
        autotune.kernel(recorded)


def test_source_of_the_sample_is_complete() -> None:
    assert kernel().source.complete
    assert not kernel(source=f"#include <cuda_fp16.h>\n{SAXPY}").source.complete
