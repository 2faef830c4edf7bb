"""Warm calls in machine code, with a fake exchange API and the fake GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_dlpack import Exchange
from support.fake_driver import Matrix, Status
from support.fake_frameworks import FakeTorch, Interface, Parameter, Tensor
from support.native_library import built_library, library_in
from support.numpy_types import decoded
from support.runtime_case import SPLIT, TYPED, Case

from autotune.errors import ArrayError, RunnerError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.launcher import BoundGemm
from autotune.runtime.native import calls as native
from autotune.runtime.native.build import FLAGS
from autotune.runtime.native.calls import CallCache
from autotune.settings import Policy

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with built_library(tmp_path_factory.mktemp("library")):
        yield native.library()


@pytest.fixture
def case() -> Case:
    case = Case(config=TYPED)
    case.cuda.make_context()
    return case


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def torch(case: Case, exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
    module = FakeTorch(case.cuda)
    module.records = False
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def operands(case: Case, torch: FakeTorch, m: int = 5, n: int = 7, k: int = 3) -> Any:
    return [torch.on("cuda:0", operand.host) for operand in case.operands(m, n, k)]


def close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def prepared(case: Case) -> list[Any]:
    """The keys of the calls that Python has bound."""
    return list(case.matmul._bound)


def test_warm_call_is_launched_in_machine_code(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    case.matmul(a, b, out)
    case.matmul._bound.clear()
    a.host[:] += 1
    calls = case.calls(lambda: case.matmul(a, b, out))
    assert calls == ["cuCtxGetId", "cuLaunchKernelEx"]
    assert close(out.host, a.host @ b.host)
    assert prepared(case) == []


def test_machine_code_keeps_dependent_launches_apart(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    for dependent in (False, True):
        case.matmul(a, b, out, policy=Policy(dependent=dependent))
    case.matmul._bound.clear()
    for dependent in (True, False):
        case.matmul(a, b, out, policy=Policy(dependent=dependent))
    assert prepared(case) == []
    assert [launch.dependent for launch in case.cuda.launches] == [False, True, True, False]


def test_machine_code_launches_the_same_as_python(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    for _ in range(2):
        case.matmul(a, b, out, 2.0, 0.5)
    first, second = case.cuda.launches
    assert first == second


def test_machine_code_uses_the_current_stream_of_the_library(
    case: Case, torch: FakeTorch, exchange: Exchange
) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    exchange.stream = 33
    case.matmul(*arrays)
    assert [launch.stream for launch in case.cuda.launches] == [0, 33]


def scaled(case: Case, torch: FakeTorch) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    """A, B and C of an fp8 product, and scales of its rows and columns."""
    shapes = ((5, 3), "float8_e4m3fn"), ((3, 7), "float8_e4m3fn"), ((5, 7), "bfloat16")
    matrices = [case.matrix(*shape, dtype=dtype) for shape, dtype in shapes]
    scales = [case.cuda.hold(np.full(count, 2.0, np.float32)) for count in (5, 7)]
    a, b, out, scale_a, scale_b = (torch.on("cuda:0", host) for host in (*matrices, *scales))
    return (a, b, out), {"scale_a": scale_a, "scale_b": scale_b}


def test_machine_code_launches_calls_with_scales(case: Case, torch: FakeTorch) -> None:
    arrays, scales = scaled(case, torch)
    case.matmul(*arrays, **scales)
    before = decoded(arrays[2].host)
    case.matmul._bound.clear()
    scales["scale_a"].host[:] = 4
    calls = case.calls(lambda: case.matmul(*arrays, **scales))
    assert calls == ["cuCtxGetId", "cuLaunchKernelEx"]
    assert close(decoded(arrays[2].host), 2 * before)
    assert prepared(case) == []


def test_machine_code_tells_scales_apart(case: Case, torch: FakeTorch) -> None:
    arrays, scales = scaled(case, torch)
    _, others = scaled(case, torch)
    others["scale_b"].host[:] = 8
    case.matmul(*arrays)
    plain = decoded(arrays[2].host)
    for keywords, factor in ((scales, 4), ({}, 1), (others, 16), (scales, 4), ({}, 1)):
        case.matmul(*arrays, **keywords)
        assert close(decoded(arrays[2].host), factor * plain)
    assert len(prepared(case)) == 3


def test_machine_code_reads_scales_without_axes(case: Case, torch: FakeTorch) -> None:
    arrays, _ = scaled(case, torch)
    numbers = [torch.on("cuda:0", case.cuda.hold(np.asarray(2.0, np.float32))) for _ in "ab"]
    case.matmul(*arrays, scale_a=numbers[0], scale_b=numbers[1])
    case.matmul._bound.clear()
    case.matmul(*arrays, scale_a=numbers[0], scale_b=numbers[1])
    assert prepared(case) == []


def test_machine_code_does_not_drop_a_single_scale(case: Case, torch: FakeTorch) -> None:
    arrays, scales = scaled(case, torch)
    case.matmul(*arrays)
    for name, array in scales.items():
        with pytest.raises(ArrayError, match="scale_a and scale_b belong together"):
            case.matmul(*arrays, **{name: array})


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 2.0},
        {"beta": 1.0},
        {"activation": "relu"},
        {"policy": Policy(vendor=False)},
        {"policy": Policy(cold=True)},
        {"compute": "tf32"},
    ],
)
def test_other_keyword_arguments_are_another_call(
    case: Case, torch: FakeTorch, change: dict[str, Any]
) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    case.matmul(*arrays, **change)
    assert len(prepared(case)) == 2


def test_another_address_is_another_call(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    case.matmul(a, b, out)
    elsewhere = torch.on("cuda:0", case.matrix(5, 7))
    case.matmul(a, b, elsewhere)
    assert close(elsewhere.host, a.host @ b.host)


def test_other_strides_are_another_call(case: Case, torch: FakeTorch) -> None:
    a, b, out = (torch.on("cuda:0", operand.host) for operand in case.operands(4, 4, 4))
    case.matmul(a, b, out)
    transposed = torch.on("cuda:0", a.host.T)
    case.matmul(transposed, b, out)
    assert close(out.host, a.host.T @ b.host)


@pytest.mark.parametrize("place", range(3))
def test_negated_tensor_of_known_memory_is_another_call(
    case: Case, torch: FakeTorch, place: int
) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    arrays[place] = Tensor(arrays[place].host, negative=True)
    with pytest.raises(ArrayError, match="is lazily negated"):
        case.matmul(*arrays)
    assert len(case.cuda.launches) == 1


def test_error_of_the_negation_leaves_the_call_to_python(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[Any] = iter([])
    monkeypatch.setattr(Tensor, "is_neg", lambda _: next(answers, False))
    arrays = operands(case, torch)
    case.matmul(*arrays)
    answers = (1 / 0 for _ in "a")
    case.matmul(*arrays)
    assert len(case.cuda.launches) == 2


def test_another_type_is_another_call(case: Case, torch: FakeTorch) -> None:
    memory = [case.matrix(4, 8, dtype="float16") for _ in range(2)]
    memory.append(case.matrix(8, 8, dtype="float16"))
    a, out, b = memory
    halves: Any = [torch.on("cuda:0", operand) for operand in (a, b, out)]
    case.matmul(*halves)
    floats: Any = [torch.on("cuda:0", half.view(np.float32)) for half in (a, b[:4], out)]
    case.matmul(*floats)
    assert [str(problem) for problem in case.looked_up] == ["4x8x8:f16:nn", "4x4x4:f32:nn"]


def test_bias_is_part_of_the_call(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    first, second = (torch.on("cuda:0", case.matrix(7)) for _ in "ab")
    for bias in (first, None, second, first):
        case.matmul(a, b, out, bias=bias)
        added = 0 if bias is None else bias.host
        assert close(out.host, a.host @ b.host + added)
    assert len(prepared(case)) == 3


def test_parameters_and_tensors_share_a_table(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    weight = Parameter(b.host)
    case.matmul(a, weight, out)
    case.matmul._bound.clear()
    case.matmul(a, weight, out)
    assert prepared(case) == []


def test_known_call_refuses_arrays_that_record_gradients(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    case.matmul(a, b, out)
    torch.records, a.requires_grad = True, True
    with pytest.raises(ArrayError, match="A requires a gradient"):
        case.matmul(a, b, out)


def test_python_enqueues_known_calls_with_scratch_memory(case: Case, torch: FakeTorch) -> None:
    case.config = SPLIT
    a, b, out = operands(case, torch, 4, 8, 16)
    case.matmul(a, b, out)
    case.matmul._bound.clear()
    torch.current = 5
    case.matmul(a, b, out)
    assert close(out.host, a.host @ b.host)
    assert (prepared(case), case.cuda.launches[-1].stream) == ([], 5)


def test_thread_of_another_context_enters_that_of_the_device(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    case.cuda.make_context(1)
    case.matmul(*arrays)
    assert [launch.context for launch in case.cuda.launches] == [1000, 100]


def test_kernel_keeps_its_own_calls(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    for _ in range(2):
        kernel(*arrays)
    assert (len(kernel._bound), prepared(case)) == (1, [])


def test_refused_launch_is_reported(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    case.cuda.refuse = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RunnerError, match="cuLaunchKernelEx gave CUDA_ERROR_INVALID_VALUE"):
        case.matmul(*arrays)


def test_retuned_problem_is_looked_up_again(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    case.matmul.forget(Problem(5, 7, 3))
    case.matmul(*arrays)
    assert len(case.looked_up) == 2


def test_arrays_that_are_not_exported_are_read_in_python(
    case: Case, torch: FakeTorch, exchange: Exchange
) -> None:
    exchange.refuses = True
    a, b, out = operands(case, torch)
    for _ in range(2):
        case.matmul(a, b, out)
    assert close(out.host, a.host @ b.host)


def test_python_reports_the_errors(case: Case, torch: FakeTorch) -> None:
    a, _, _ = operands(case, torch)
    with pytest.raises(ArrayError, match="the inner sizes 3 and 5 differ"):
        case.matmul(a, a)


def test_full_table_is_replaced(case: Case, torch: FakeTorch) -> None:
    a, b, _ = operands(case, torch, 1, 1, 1)
    memory = case.cuda.hold(np.zeros((5000, 1, 1), np.float32))
    for place in memory:
        case.matmul(a, b, torch.on("cuda:0", place))
    assert np.all(memory == a.host @ b.host)
    (calls,) = case.matmul._native._caches.values()
    assert len(calls._table.bound) == 5000 - 4096


def test_forgotten_call_is_kept_again(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    case.matmul(*arrays)
    case.matmul._native.forget()
    case.matmul(*arrays)
    case.matmul._bound.clear()
    case.matmul(*arrays)
    assert prepared(case) == []


# Without machine code.


def unserved(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    for _ in range(2):
        case.matmul(a, b, out)
    assert close(out.host, a.host @ b.host)
    assert case.matmul._native._caches == {}


def test_python_serves_without_the_library(case: Case, torch: FakeTorch, tmp_path: Path) -> None:
    with library_in(tmp_path):
        unserved(case, torch)


def test_python_serves_without_the_gil(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    native.library.cache_clear()
    try:
        unserved(case, torch)
    finally:
        native.library.cache_clear()


@pytest.mark.usefixtures("torch")
def test_exchange_api_of_another_major_version_is_ignored(exchange: Exchange) -> None:
    exchange.table[0] = 2
    assert native.exchange_api(Tensor) is None


def test_machine_code_compiles_without_warnings(tmp_path: Path) -> None:
    source = Path(native.__file__).with_name("calls.c")
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    command = ["cc", *FLAGS, *strict, str(source), "-o", str(tmp_path / "calls.so")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


def test_real_pytorch_tensors_are_recognised(case: Case, library: Any) -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    api = native.exchange_api(torch.Tensor)
    assert api is not None
    calls = CallCache(library, api, case.runtime.framework(torch.ones(1), "A"), case.runtime.driver)
    a, b, out = torch.ones(3, 4), torch.ones(4, 5).t().contiguous().t(), torch.ones(3, 5)
    enqueued: list[int] = []
    bound = BoundGemm(0, enqueued.append, None)
    calls.serve(torch.Tensor)
    calls.keep((a, b, out), (1.0,), bound)
    assert calls.repeat((a, b, out), (1.0,)) is bound
    assert calls.repeat((a, b.contiguous(), out), (1.0,)) is False
    assert calls.repeat((a, torch._neg_view(b), out), (1.0,)) is False


def test_python_serves_arrays_of_two_libraries(case: Case, torch: FakeTorch) -> None:
    torch.records = True
    a, b, out = operands(case, torch)
    for _ in range(2):
        case.matmul(a, b, Interface(out.host))
    assert close(out.host, a.host @ b.host)
