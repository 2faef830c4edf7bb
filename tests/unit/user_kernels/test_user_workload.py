"""Calls of user kernels, the results expected of them, and the comparison with these."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import fake_frameworks
from support.sample_user_kernels import arguments, kernel, reference, work

from autotune.api.kernels import TunedCall
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Argument
from autotune.problem.call import KernelCall
from autotune.user_kernels.arguments import call_of, launch_arguments, on_host
from autotune.user_kernels.results import ExpectedArray, Verification, compare
from autotune.user_kernels.workload import Workload, compared_on_host, unverified, with_results

F4 = np.float32


def doubled(x: Any, out: Any) -> list[Any]:
    """Only writes `out`."""
    del out
    return [None, 2 * x]


def workload_of(
    arguments: list[Any], computes: Callable[..., Any], **changes: Verification
) -> Workload:
    return work(arguments=arguments, reference=computes, **changes)


# Calls


def test_call_states_types_shapes_and_numbers() -> None:
    text = "saxpy(float32[1000], float32[1000], float32=2.5, int32=1000)"
    assert str(call_of("saxpy", arguments())) == text


def test_array_contents_do_not_change_the_call() -> None:
    first, second = arguments(), arguments()
    second[0][:] = 7
    assert call_of("k", first) == call_of("k", second)


def test_numbers_change_the_call() -> None:
    slugs = {call_of("k", [np.int32(size)]).slug for size in (1, 2)}
    assert len(slugs) == 2


def test_slug_is_valid_in_a_file_name() -> None:
    slug = KernelCall("my::k", ("float32[2,3]",)).slug
    assert (slug[:5], len(slug), slug.replace("-", "").isalnum()) == ("my-k-", 21, True)


@pytest.mark.parametrize(
    ("number", "argument"),
    [
        (np.int32(-7), Argument("i32", -7)),
        (np.uint64(2**63), Argument("u64", 2**63)),
        (np.float64(0.1), Argument("f64", 0.1)),
        (np.bool_(True), Argument("u8", 1)),
        (np.float16(1.0), Argument("u16", 0x3C00)),
        (np.zeros(()), Argument("pointer", "argument 0")),
    ],
)
def test_numbers_are_passed_by_value_and_arrays_by_address(number: Any, argument: Argument) -> None:
    assert launch_arguments([number]) == (argument,)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (4096, r"argument 0 is 4096; give a NumPy array, .* or a number .* numpy.int32\(4096\)"),
        ("x", "argument 0 is 'x'"),
        (np.datetime64("2026"), "argument 0 is .*; give a NumPy array, .* or a number"),
        (np.zeros(3, "U4"), "argument 0 is an array of <U4; give one of bool, .* numpy.uint16"),
        (np.zeros(3, ">f4"), "argument 0 is an array of >f4"),
        (
            np.zeros((4, 4))[:, :2],
            r"shape \(4, 2\) and strides \(32, 8\), .* without gaps; copy it in the order that "
            "the kernel indexes: .*ascontiguousarray, .* or .*asfortranarray",
        ),
        (np.zeros((2, 3, 4)).transpose(1, 0, 2), "without gaps"),
        (np.zeros(3, [("name", "U4")]), "or of structures of these"),
        (np.zeros((0, 4)), "at least an element"),
    ],
)
def test_invalid_arguments_are_refused(argument: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call_of("k", [argument])


# The reference


def test_arguments_without_a_reference_must_not_change() -> None:
    y, x = work().buffers
    assert (y.expected is None, x.expected is None) == (False, True)


def test_output_that_is_read_keeps_its_contents() -> None:
    (y, _) = work().buffers
    assert not y.written
    np.testing.assert_array_equal(y.before, arguments()[0])


def test_output_that_is_only_written_starts_as_nan() -> None:
    _, out = workload_of([np.ones(3, F4), np.ones(3, F4)], doubled).buffers
    assert out.written
    assert np.isnan(out.before).all()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_integer_output_starts_different_from_the_result(dtype: str) -> None:
    x = np.array([0, 1, 1, 0], dtype)
    _, out = workload_of([x, x.copy()], lambda x, _: [None, x]).buffers
    assert out.written
    assert (out.before != x.view(out.before.dtype)).all()


def test_border_that_the_reference_keeps_is_input() -> None:
    def inner(out: Any) -> list[Any]:
        out[1:-1] = 3
        return [out]

    (out,) = workload_of([np.arange(5.0)], inner).buffers
    assert not out.written
    np.testing.assert_array_equal(out.before, np.arange(5.0))


def test_each_output_is_examined_separately() -> None:
    def both(total: Any, copy: Any, x: Any) -> list[Any]:
        del copy
        return [total + x, x, None]

    total, copy, _ = workload_of([np.ones(2), np.ones(2), np.ones(2)], both).buffers
    assert (total.written, copy.written) == (False, True)


def test_output_whose_contents_break_the_reference_is_input() -> None:
    def counted(bins: Any) -> list[Any]:
        return [np.bincount(bins)[bins]]  # fails for negative numbers

    (bins,) = workload_of([np.array([2, 0])], counted).buffers
    np.testing.assert_array_equal(bins.before, [2, 0])


@pytest.mark.parametrize(
    ("out", "computes", "runs", "written"),
    [
        (np.zeros(3, F4), lambda _, x: [2 * x, None], 1, True),
        (np.ones(3, F4), lambda _, x: [2 * x, None], 2, True),
        (np.zeros(3, "i4"), lambda _, x: [(2 * x).astype("i4"), None], 2, True),
        (np.zeros(3, F4), lambda out, x: [out + x, None], 3, False),
    ],
    ids=["zeros", "other contents", "whole numbers", "zeros that are read"],
)
def test_reference_runs_seldom(
    out: Any, computes: Callable[..., Any], runs: int, written: bool
) -> None:
    ran: list[Any] = []

    def counted(*arrays: Any) -> Any:
        ran.append(arrays)
        return computes(*arrays)

    first, _ = workload_of([out, np.ones(3, F4)], counted).buffers
    assert (len(ran), first.written) == (runs, written)


def test_input_of_zeros_keeps_its_contents() -> None:
    def masked(out: Any, mask: Any, x: Any) -> list[Any]:
        del out
        return [np.where(mask >= 0, x, 0), None, None]

    arrays = [np.zeros(3, F4), np.zeros(3, F4), np.ones(3, F4)]
    out, mask, _ = workload_of(arrays, masked).buffers
    assert out.expected is not None
    assert (out.expected.values.tolist(), mask.before.tolist()) == ([1, 1, 1], [0, 0, 0])


def test_several_pure_outputs_take_one_more_run() -> None:
    ran: list[Any] = []

    def both(first: Any, second: Any, x: Any) -> list[Any]:
        ran.append((first, second))
        return [x, 2 * x, None]

    first, second, _ = workload_of([np.ones(2), np.ones(2), np.ones(2)], both).buffers
    assert (len(ran), first.written, second.written) == (2, True, True)


def test_reference_may_change_its_arguments() -> None:
    arrays = [np.ones(3, F4), np.zeros(3, F4)]

    def inside(x: Any, out: Any) -> list[Any]:
        out[:] = 2 * x
        x[:] = 9
        return [None, out]

    x, out = workload_of(arrays, inside).buffers
    assert out.expected is not None
    assert (arrays[0].tolist(), x.before.tolist(), out.expected.values.tolist()) == (
        [1, 1, 1],
        [1, 1, 1],
        [2, 2, 2],
    )


def test_probing_the_reference_emits_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        workload_of([np.ones(3, F4)], lambda x: [np.sqrt(x) + (x > 0)])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned NoneType for 2 arguments; return a list with the expected array"),
        ([None], "returned 1 for 2 arguments"),
        ([None, None], "expects every argument to stay as it is"),
        ([None, np.zeros(4)], r"expects shape \(4,\) in argument 1, which has shape \(3,\)"),
        ([None, np.zeros(3, complex)], "expects complex128 in argument 1, an array of float32"),
        ([None, np.array([1, np.nan, 2])], "expects NaN in 1 elements of argument 1"),
    ],
)
def test_invalid_expected_arrays_are_refused(returned: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workload_of([np.ones(3, F4), np.ones(3, F4)], lambda *_: returned)


@pytest.mark.parametrize("values", [[-1, 2], [1.0, 2.0], [300, 2]])
def test_expected_values_must_fit_the_type(values: list[float]) -> None:
    with pytest.raises(UsageError, match="an array of uint8, which cannot hold it"):
        workload_of([np.zeros(2, np.uint8)], lambda _: [np.array(values)])


def test_expected_value_for_a_number_is_refused() -> None:
    with pytest.raises(UsageError, match="in argument 1, which has a number"):
        workload_of([np.ones(3), np.int32(3)], lambda x, _: [x, np.ones(3)])


@pytest.mark.parametrize(
    ("name", "value"), [("rtol", -1.0), ("atol", math.inf), ("rtol", math.nan)]
)
def test_invalid_tolerance_is_refused(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=f"{name} is {value!r}; give a number of at least 0"):
        Verification(**changes)


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float16", 1e-2), ("float32", 1e-4), ("float64", 1e-9), ("int32", 0.0)]
)
def test_default_tolerances_follow_the_type(dtype: str, rtol: float) -> None:
    (buffer,) = workload_of([np.array([1, -3], dtype)], lambda x: [2 * x]).buffers
    assert buffer.expected is not None
    assert [buffer.expected.rtol, buffer.expected.atol] == pytest.approx([rtol, 4 * rtol])


def test_explicit_tolerances_are_used() -> None:
    (y, _) = work(verify=Verification(rtol=0.5, atol=0.25)).buffers
    assert y.expected is not None
    assert (y.expected.rtol, y.expected.atol) == (0.5, 0.25)


def test_tolerances_may_differ_by_argument() -> None:
    verify = Verification(rtol={1: 0.5}, atol={0: 0.25})
    values = np.array([1.0, 3.0], F4)
    call = workload_of([values, values], lambda *_: [values, values], verify=verify)
    first, second = (buffer.expected for buffer in call.buffers)
    assert first is not None
    assert second is not None
    assert [first.rtol, first.atol] == pytest.approx([1e-4, 0.25])
    assert [second.rtol, second.atol] == pytest.approx([0.5, 0.5 * 2])


def test_tolerance_of_no_array_is_refused() -> None:
    y, x, a, n = arguments()
    with pytest.raises(UsageError, match=r"rtol .* argument 2; the arrays are arguments 0, 1"):
        Verification(rtol={2: 0.5}).require([y, x, a, n], None)
    with pytest.raises(UsageError, match="atol is -1"):
        Verification(atol={0: -1})


# Comparison


def test_errors_within_the_tolerance_are_accepted() -> None:
    result = compare(np.array([1.05, 2.0]), ExpectedArray(np.array([1.0, 2.0]), 0.1, 0.0))
    assert [result.wrong, result.error, result.allowed] == pytest.approx([0, 0.05, 0.1])


def test_comparison_reports_the_worst_element() -> None:
    expected = np.arange(6.0).reshape(2, 3)
    actual = expected.copy()
    actual[1, 2] = 5.5
    result = compare(actual, ExpectedArray(expected, 0.0, 0.1))
    assert (result.wrong, result.place, result.actual, result.desired) == (1, (1, 2), 5.5, 5.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_is_wrong(value: float) -> None:
    result = compare(np.array([1.0, value]), ExpectedArray(np.array([1.0, 1.0]), 1e3, 1e3))
    assert (result.wrong, result.place) == (1, (1,))


def test_infinities_must_be_equal() -> None:
    expected = np.array([np.inf, np.inf, -np.inf])
    result = compare(np.array([np.inf, 1e300, np.inf]), ExpectedArray(expected, 0.1, 0.1))
    assert (result.wrong, result.place) == (2, (1,))


def test_large_integers_are_compared_exactly() -> None:
    expected = np.array([2**62])
    assert compare(expected + 1, ExpectedArray(expected, 0.0, 0.0)).wrong == 1


def test_complex_errors_are_distances() -> None:
    result = compare(np.array([3 + 4j]), ExpectedArray(np.array([0j]), 0.0, 5.0))
    assert (result.wrong, result.error) == (0, 5.0)


def test_elements_beyond_the_first_chunk_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.user_kernels.results.CHUNK", 3)
    expected = np.zeros(8)
    actual = expected.copy()
    actual[7] = 1
    result = compare(actual, ExpectedArray(expected, 0.0, 0.5))
    assert (result.wrong, result.place, result.allowed) == (1, (7,), 0.5)


def test_workload_keeps_the_precision_of_the_reference() -> None:
    (y, _) = work(reference=lambda y, x, a, _: [x.astype(float) * a + y, *[None] * 3]).buffers
    assert y.expected is not None
    assert y.expected.values.dtype == np.float64
    y32, x32 = arguments()[:2]
    result = compare(np.asarray(2.5 * x32 + y32, F4), y.expected)
    assert (result.wrong, 0 < result.error < 1e-6) == (0, True)


# Expected arrays, and results that stand in for a reference


def test_expected_arrays_may_be_given_as_such() -> None:
    y, x = work(reference=[arguments()[0] * 2, None, None, None]).buffers
    assert x.expected is None
    assert not y.written
    assert y.expected is not None
    np.testing.assert_array_equal(y.expected.values, arguments()[0] * 2)
    with pytest.raises(UsageError, match="the reference returned 1 for 4 arguments"):
        work(reference=[None])


def test_results_of_a_configuration_stand_in() -> None:
    call = unverified("saxpy", arguments())
    y, x = (buffer.before for buffer in call.buffers)
    assert [buffer.expected for buffer in call.buffers] == [None, None]
    verified = with_results(call, [y + 1, x.copy()], "saxpy:EACH=1", Verification())
    assert verified.verified == "saxpy:EACH=1"
    changed, unchanged = verified.buffers
    assert unchanged.expected is None
    assert changed.expected is not None
    np.testing.assert_array_equal(changed.expected.values, y + 1)
    np.testing.assert_array_equal(changed.before, y)
    assert changed.expected.rtol == 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [(0, "saxpy:EACH=1 runs but changes no array"), (math.nan, "saxpy:EACH=1 expects NaN in 1000")],
)
def test_results_that_verify_nothing_are_refused(change: float, message: str) -> None:
    call = unverified("saxpy", arguments())
    results = [call.buffers[0].before + F4(change), call.buffers[1].before]
    with pytest.raises(UsageError, match=message):
        with_results(call, results, "saxpy:EACH=1", Verification())


# Comparison on the host


def host_fault(verify: Verification, contents: list[Any], results_of: Any = None) -> str | None:
    call = compared_on_host(work(), verify, results_of)
    assert call.on_host is not None
    assert [buffer.free for buffer in call.buffers] == [True, False]
    return call.on_host(Config.of("saxpy", {"THREADS": 32}), contents)


def right() -> list[Any]:
    y, x, a, _ = arguments()
    return [a * x + y, x]


def test_results_stay_on_the_device_without_a_function() -> None:
    call = work()
    assert compared_on_host(call, Verification()) is call


def test_function_gets_outputs_alone() -> None:
    def check(expected: list[Any], actual: list[Any]) -> bool:
        assert [each is None for each in expected] == [False, True, True, True]
        return bool((expected[0] == actual[0]).all()) and actual[1:] == [None] * 3

    assert host_fault(Verification(check=check), right()) is None
    wrong = "wrong result: the check returned False"
    assert host_fault(Verification(check=lambda *_: False), right()) == wrong


def test_assertion_is_the_reason() -> None:
    def check(expected: list[Any], actual: list[Any]) -> bool:
        np.testing.assert_array_equal(actual[0], expected[0] + 1)
        return True

    reason = host_fault(Verification(check=check), right())
    assert reason is not None
    assert reason.startswith("wrong result: Arrays are not equal Mismatched elements: 1000 / 1000")


def test_function_that_returns_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="the check returned None; return whether"):
        host_fault(Verification(check=lambda *_: None), right())


def test_reference_of_a_configuration_decides() -> None:
    def results_of(config: Config) -> list[Any]:
        return [right()[0] * (config.values["THREADS"] == 64), None, None, None]

    reason = host_fault(Verification(), right(), results_of)
    assert reason is not None
    assert reason.startswith("argument 0: wrong result: 1000 of 1000 elements, such as ")
    same = host_fault(Verification(), right(), lambda _: [right()[0], None, None, None])
    assert same is None


def test_outputs_are_the_same_for_all_configurations() -> None:
    with pytest.raises(UsageError, match=r"in the arguments \[1\] of saxpy:THREADS=32, in \[0\]"):
        host_fault(Verification(), right(), lambda _: [None, right()[1], None, None])


class Tensor(fake_frameworks.Tensor):
    """A PyTorch tensor on a GPU."""

    __dlpack__ = None

    def __init__(self, host: Any, dtype: str | None = None, negative: bool = False) -> None:
        super().__init__(host, negative=negative)
        self.dtype = fake_frameworks.TorchType(f"torch.{dtype}") if dtype else self.dtype

    def numpy(self, *, force: bool = False) -> Any:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        if self.negative and not force:
            raise RuntimeError("Can't call numpy() on Tensor that has negative bit set.")
        return -self.host if self.negative else self.host

    def to(self, device: Any) -> Tensor:
        assert device == self.device
        return self

    def __mul__(self, factor: Any) -> Tensor:
        return Tensor(self.host * factor)

    __rmul__ = __mul__

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.host + other.host)


class CuPyArray:
    """An array of CuPy or PyCUDA."""

    gpudata = None
    device = nullcontext()

    def __init__(self, host: Any) -> None:
        self.host, self.shape, self.dtype = host, host.shape, host.dtype

    def get(self) -> Any:
        return self.host

    def __mul__(self, factor: Any) -> CuPyArray:
        return CuPyArray(self.host * factor)

    __rmul__ = __mul__

    def __add__(self, other: CuPyArray) -> CuPyArray:
        return CuPyArray(self.host + other.host)


LIBRARIES: dict[str, tuple[type, str, SimpleNamespace]] = {
    "torch": (
        Tensor,
        "torch",
        SimpleNamespace(Tensor=Tensor, from_numpy=Tensor, strided=Tensor.layout),
    ),
    "cupy": (CuPyArray, "cupy", SimpleNamespace(ndarray=CuPyArray, asarray=CuPyArray)),
    "pycuda": (
        CuPyArray,
        "pycuda.gpuarray",
        SimpleNamespace(GPUArray=CuPyArray, to_gpu=CuPyArray),
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_arrays_of_a_library_are_copied_and_handed_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, module, library = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, module, library)
    y, x, a, n = arguments()
    asked: list[type] = []

    def in_library(*own: Any) -> Any:
        asked.extend(type(array) for array in own[:2])
        return reference(*own)

    work = TunedCall([kind(y), kind(x), a, n], {}, in_library, Verification()).work(kernel())
    assert work.call == call_of("saxpy", arguments()) == call_of("saxpy", [kind(y), kind(x), a, n])
    assert set(asked) == {kind}
    first, second = work.buffers
    assert first.expected is not None
    np.testing.assert_array_equal(first.expected.values, a * x + y)
    np.testing.assert_array_equal(second.before, x)


def test_expected_arrays_may_be_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    y, x, a, n = arguments()
    results = [Tensor(a * x + y), None, None, None]
    work = TunedCall([y, x, a, n], {}, results, Verification()).work(kernel())
    assert work.buffers[0].expected is not None


def test_type_that_numpy_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    with pytest.raises(UsageError, match=r"argument 3 is a tensor of torch.bfloat16, .* bits"):
        on_host(Tensor(np.zeros(3), "bfloat16"), "argument 3")


def test_lazily_negated_tensor_is_copied_with_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    memory = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(on_host(Tensor(memory, negative=True), ""), -memory)


def test_tensor_without_dense_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    sparse = Tensor(np.zeros(3, np.float32))
    sparse.layout = "torch.sparse_coo"
    with pytest.raises(UsageError, match=r"argument 2 has the layout torch\.sparse_coo; give "):
        on_host(sparse, "argument 2")


def test_array_without_a_copy_is_refused() -> None:
    opaque = SimpleNamespace(__cuda_array_interface__={"typestr": "<f4"}, shape=(3,))
    assert str(call_of("k", [opaque])) == "k(float32[3])"
    with pytest.raises(UsageError, match="argument 0 is a SimpleNamespace, which offers no copy"):
        on_host(opaque, "argument 0")
