"""matmul of an A that is quantised on the way in, on the fake GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.eight_bits import decoded as values_of
from support.fake_frameworks import FakeTorch, Tensor
from support.numpy_types import decoded
from support.quantising import quantised
from support.runtime_case import TYPED, Case

import autotune
from autotune import runtime
from autotune.api import matmul as api
from autotune.device import Device
from autotune.errors import ArrayError, FrozenError, ProblemError
from autotune.families.config import Config
from autotune.families.plan import Alignment, LaunchPlan
from autotune.measure.oracle import activated, gates
from autotune.problem import Problem
from autotune.runtime.matmul import Matmul
from autotune.settings import Mode

M, N, K = 5, 7, 300


SHAPES: dict[str, tuple[int, ...]] = {"tensor": (1,), "row": (N,), "block": (1, 3)}

TYPES = {
    "f8": ("float8_e4m3fn", "e4m3"),
    "f8e5": ("float8_e4m3fn", "e5m2"),
    "i8": ("int8", "i8"),
}

NO_BLOCKS = ("i8", "block")


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case(config=TYPED)
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return case


def tensor(case: Case, torch: FakeTorch, *shape: int, dtype: str = "bfloat16") -> Any:
    return torch.on("cuda:0", case.matrix(*shape, dtype=dtype, factor=4))


def scales(case: Case, torch: FakeTorch, *shape: int) -> Tensor:
    host = 0.5 + np.random.default_rng(3).random(shape)
    return torch.on("cuda:0", case.cuda.hold(host.astype(np.float32)))


def operands(
    case: Case, torch: FakeTorch, scale: str = "row", dtype: str = "bfloat16", b: str = "f8"
) -> tuple[Any, Any, Any]:
    """A (5 x 300), B (300 x 7), and the scales of B."""
    right = tensor(case, torch, N, K, dtype=TYPES[b][0])
    return (
        tensor(case, torch, M, K, dtype=dtype),
        torch.on("cuda:0", right.host.T),
        scales(case, torch, *SHAPES[scale]),
    )


def product(a: Any, b: Any, scale_b: Any, scale: str, element: str) -> Any:
    """The product of the quantised A, in float64."""
    codes, of_a = quantised(decoded(a.host)[None], element, scale)
    left = values_of(codes[0], element).astype(float)
    right = decoded(b.host).astype(float)
    if scale == "block":
        left *= np.repeat(of_a[0], 128, axis=0)[:K].T
        right *= np.repeat(np.repeat(scale_b.host, 128, 0)[:N], 128, 1)[:, :K].T
        return left @ right
    return left * of_a.reshape(-1, 1) @ right * scale_b.host


@pytest.mark.parametrize(
    ("compute", "scale"),
    [(compute, scale) for compute in TYPES for scale in SHAPES if (compute, scale) != NO_BLOCKS],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_product_is_that_of_the_quantised_matrix(
    case: Case, torch: FakeTorch, dtype: str, compute: str, scale: str
) -> None:
    a, b, scale_b = operands(case, torch, scale, dtype, compute)
    out: Any = autotune.matmul(a, b, compute=compute, scale_b=scale_b)
    assert out.dtype == "torch.bfloat16"
    assert case.looked_up == [Problem(M, N, K, compute, "nt", scale=scale)]
    wanted = product(a, b, scale_b, scale, TYPES[compute][1])
    assert np.allclose(decoded(out.host), wanted, rtol=1e-2, atol=0.2)
    kernels = [launch.kernel.partition("<")[0] for launch in case.cuda.launches]
    assert kernels == [*(["largest"] if scale == "tensor" else []), "quantize", "scaled"]


def test_other_type_of_fp8_is_that_of_b(case: Case, torch: FakeTorch) -> None:
    a, _, scale_b = operands(case, torch)
    b = tensor(case, torch, K, N, dtype="float8_e5m2")
    autotune.matmul(a, b, compute="f8e5", scale_b=scale_b)
    assert case.looked_up == [Problem(M, N, K, "f8e5", scale="row", e5m2="b")]


def test_product_starts_while_its_operand_is_quantised(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    autotune.matmul(a, b, compute="f8", scale_b=scale_b)
    autotune.matmul(a, b, compute="f8", scale_b=scale_b, policy=autotune.Policy(dependent=True))
    assert [launch.dependent for launch in case.cuda.launches] == [False, True, True, True]
    case.cuda.attributes["COMPUTE_CAPABILITY_MINOR"] = 9
    case.cuda.attributes["COMPUTE_CAPABILITY_MAJOR"] = 8
    older = Matmul(type(case.runtime)(case.runtime.driver, case._find, case._plan, case._build))
    older(a, b, compute="f8", scale_b=scale_b)
    assert [launch.dependent for launch in case.cuda.launches[4:]] == [False, False]


def test_only_a_waits_for_the_launch_that_quantises_it(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    codes = tensor(case, torch, M, K, dtype="float8_e4m3fn")
    autotune.matmul(a, b, compute="f8", scale_b=scale_b)
    for dependent in (False, True):
        of_a = scales(case, torch, M)
        autotune.matmul(
            codes, b, scale_a=of_a, scale_b=scale_b, policy=autotune.Policy(dependent=dependent)
        )
    assert b_ready(case) == [1, 0, 0]


def test_copied_b_waits_too(case: Case, torch: FakeTorch) -> None:
    def after_a_copy(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        plan = case._plan(config, problem, alignment)
        return replace(plan, launches=plan.launches * 2, product=1)

    multiply = Matmul(
        type(case.runtime)(case.runtime.driver, case._find, after_a_copy, case._build)
    )
    a, b, scale_b = operands(case, torch)
    multiply(a, b, compute="f8", scale_b=scale_b)
    assert b_ready(case) == [0, 0]


def b_ready(case: Case) -> list[int]:
    """Whether B was ready for each product."""
    return [call.arguments[-3] for call in case.cuda.launches if "scaled" in call.kernel]


def test_gates_follow_the_product(case: Case, torch: FakeTorch) -> None:
    a, right = tensor(case, torch, M, K), tensor(case, torch, 32, K, dtype=TYPES["f8"][0])
    b, scale_b = torch.on("cuda:0", right.host.T), scales(case, torch, 32)
    out: Any = autotune.matmul(a, b, activation="swiglu", compute="f8", scale_b=scale_b)
    gate, up = gates(product(a, b, scale_b, "row", "e4m3"))
    assert tuple(out.shape) == (M, 16)
    assert np.allclose(decoded(out.host), activated(gate, "silu") * up, rtol=1e-2, atol=1e-2)
    assert [problem.epilogue for problem in case.looked_up] == ["swiglu"]


def test_epilogue_and_factors_follow_the_product(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    bias, out = tensor(case, torch, N, dtype="float32"), tensor(case, torch, M, N, dtype="float32")
    before = out.host.copy()
    autotune.matmul(
        a, b, out, 2.0, 0.5, bias=bias, activation="relu", compute="f8", scale_b=scale_b
    )
    wanted = 2 * product(a, b, scale_b, "row", "e4m3") + before / 2 + bias.host
    assert np.allclose(out.host, np.maximum(wanted, 0), rtol=1e-4, atol=1e-2)


def test_batch_is_quantised_matrix_by_matrix(case: Case, torch: FakeTorch) -> None:
    a = tensor(case, torch, 2, M, K)
    b = tensor(case, torch, 2, K, N, dtype="float8_e4m3fn")
    scale_b = scales(case, torch, 2, N)
    out: Any = autotune.matmul(a, b, compute="f8", scale_b=scale_b)
    for matrix in range(2):
        left, right, of_b = (Tensor(each.host[matrix]) for each in (a, b, scale_b))
        wanted = product(left, right, of_b, "row", "e4m3")
        assert np.allclose(decoded(out.host[matrix]), wanted, rtol=1e-2, atol=0.2)


def test_repeated_call_only_launches(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    out = tensor(case, torch, M, N)
    case.cuda.make_context()
    call = partial(autotune.matmul, a, b, out, compute="f8", scale_b=scale_b)
    call()
    calls = case.calls(call)
    assert calls.count("cuLaunchKernelEx") == 2
    assert not {"cuMemAlloc", "cuLibraryLoadData"} & {*calls}
    assert len(case.looked_up) == 1


def test_streams_and_graphs_have_memory_of_their_own(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    out = tensor(case, torch, M, N)
    case.cuda.make_context()
    call = partial(autotune.matmul, a, b, out, compute="f8", scale_b=scale_b)
    places = []
    for stream in (0, 7, 0, 9):
        torch.current = stream
        case.cuda.captures = {9: 1} if stream == 9 else {}
        call()
        places.append(case.cuda.launches[-1].arguments[0])
    assert places[0] == places[2]
    assert len({*places}) == 3


def test_memory_grows_with_the_operand(case: Case, torch: FakeTorch) -> None:
    case.cuda.make_context()
    for rows in (M, 40, M):
        a, b = tensor(case, torch, rows, K), tensor(case, torch, K, N, dtype="float8_e4m3fn")
        scale_b = scales(case, torch, N)
        out: Any = autotune.matmul(a, b, compute="f8", scale_b=scale_b)
        wanted = product(a, b, scale_b, "row", "e4m3")
        assert np.allclose(decoded(out.host), wanted, rtol=1e-2, atol=0.2)
    assert case.cuda.calls.count("cuMemAlloc") == 2


def test_vendor_does_not_quantise(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    a, b, scale_b = operands(case, torch)
    autotune.matmul(a, b, compute="f8", scale_b=scale_b)
    assert [launch.kernel.partition("<")[0] for launch in case.cuda.launches] == [
        "quantize",
        "scaled",
    ]


def test_frozen_product_without_a_record_is_refused(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case.runtime, "mode", Mode("frozen"))
    case.config = None
    a, b, scale_b = operands(case, torch)
    with pytest.raises(FrozenError, match="cuBLAS does not serve this call"):
        autotune.matmul(a, b, compute="f8", scale_b=scale_b)


def test_problem_that_is_forgotten_is_looked_up_again(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    call = partial(autotune.matmul, a, b, compute="f8", scale_b=scale_b)
    call()
    case.matmul.forget(case.looked_up[0])
    call()
    assert len(case.looked_up) == 2


def test_tuning_tunes_the_product(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.how = "nearest"
    tuned: list[Any] = []

    def tune(problem: Problem, device: Device, objective: str, quick: bool) -> None:
        assert device == case.runtime.gpu(0).device
        tuned.append((problem, objective, quick))

    monkeypatch.setattr(api, "_tune", tune)
    a, b, scale_b = operands(case, torch)
    with pytest.warns(runtime.UntunedWarning):
        autotune.matmul(a, b, compute="f8", scale_b=scale_b, policy=autotune.Policy(tune=True))
    assert tuned == [(Problem(M, N, K, "f8", "nt", scale="row"), "hot", False)]


def test_empty_matrix_is_not_quantised(case: Case, torch: FakeTorch) -> None:
    a, b = tensor(case, torch, 0, K), tensor(case, torch, K, N, dtype="float8_e4m3fn")
    out: Any = autotune.matmul(a, b, compute="f8", scale_b=scales(case, torch, N))
    assert (out.shape, case.cuda.launches) == ((0, N), [])


# Refusals.


def refused(case: Case, *arrays: Any, **keywords: Any) -> str:
    """The message of the refusal, which is one line; asserts that nothing was launched."""
    with pytest.raises((ArrayError, ProblemError)) as error:
        autotune.matmul(*arrays, **{"compute": "f8", **keywords})
    assert case.cuda.launches == []
    assert "\n" not in str(error.value)
    return str(error.value)


def test_operands_that_do_not_fit_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    say = partial(refused, case)
    message = "A is bfloat16 and compute is None; give f8, f8e5 or i8 to quantise A, or its scale_a"
    assert say(a, b, scale_b=scale_b, compute=None) == message
    assert "A is bfloat16 and compute is bf16" in say(a, b, scale_b=scale_b, compute="bf16")
    message = "B is float8_e4m3fn; i8 quantises A alone: give B in int8"
    assert say(a, b, scale_b=scale_b, compute="i8") == message
    assert "give B in float8_e5m2 or float8_e4m3fn" in say(a, a, scale_b=scale_b, compute="f8e5")
    assert "scale_a and scale_b belong together" in say(b, b, scale_b=scale_b)
    wrong = scales(case, torch, N + 1)
    message = "scale_b is (8,); 5x7x300:f8:nt takes (1,) a tensor, or (7,) a row, or (1, 3) a block"
    assert say(a, b, scale_b=wrong) == message
    assert "takes (7,) a row" in say(a, b, scale_b=scales(case, torch, 1), scale="row")
    assert "the inner sizes 7 and 300 differ" in say(tensor(case, torch, M, N), b, scale_b=scale_b)


def test_matrices_that_no_kernel_quantises_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = operands(case, torch)
    turned = torch.on("cuda:0", case.matrix(K, M, dtype="bfloat16").T)
    assert "A of shape (5, 300) has strides (1, 5)" in refused(case, turned, b, scale_b=scale_b)
    deep = tensor(case, torch, 2, 2, M, K)
    assert "A has 4 dimensions (2, 2, 5, 300)" in refused(case, deep, b, scale_b=scale_b)
    a.requires_grad = True
    assert "A requires a gradient" in refused(case, a, b, scale_b=scale_b)
    a.requires_grad = False
    batch = tensor(case, torch, 2, K, N, dtype="float8_e4m3fn")
    message = refused(case, a, batch, scale_b=scales(case, torch, 2, N))
    assert "A is a matrix (5, 300), B a batch (2, 300, 7)" in message
    assert "beta is 1.0 but there is no out" in refused(case, a, b, beta=1.0, scale_b=scale_b)
