"""Products whose result is fp8, with its scale and `amax`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch
from support.numpy_types import decoded, encoded
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.frameworks import Torch

E4M3 = "float8_e4m3fn"
M, N, K = 5, 7, 300


@pytest.fixture
def case() -> Case:
    return Case(config=TYPED)


def matrices(case: Case, torch: FakeTorch) -> tuple[Any, Any]:
    a, b = (torch.on("cuda:0", case.matrix(*s, dtype=E4M3)) for s in ((M, K), (K, N)))
    return a, b


def number(case: Case, torch: FakeTorch, value: float, *shape: int) -> Any:
    return torch.on("cuda:0", case.cuda.hold(np.full(shape, value, np.float32)))


def wanted(a: Any, b: Any, scale: float) -> Any:
    product = decoded(a.host).astype(float) @ decoded(b.host).astype(float)
    return decoded(encoded((scale * product).astype(np.float32), E4M3))


def test_result_is_scaled_and_amax_raised(case: Case, torch: FakeTorch) -> None:
    a, b = matrices(case, torch)
    scale, amax = number(case, torch, 4.0), number(case, torch, 1.0, 1)
    out: Any = case.matmul(a, b, out_dtype="e4m3", scale_result=scale, amax=amax)
    assert case.looked_up == [Problem(M, N, K, "f8", output="e4m3")]
    assert out.dtype == f"torch.{E4M3}"
    assert np.allclose(decoded(out.host), wanted(a, b, 4.0), rtol=0.13)
    largest = np.abs(decoded(a.host).astype(float) @ decoded(b.host).astype(float)).max()
    assert amax.host[0] == pytest.approx(largest, rel=1e-5)
    scale.host[...] = 0.25
    case.matmul(a, b, out, scale_result=scale, amax=amax)
    assert np.allclose(decoded(out.host), wanted(a, b, 0.25), rtol=0.13, atol=2.0**-9)
    case.matmul(a, b, out)
    assert np.allclose(decoded(out.host), wanted(a, b, 1.0), rtol=0.13, atol=2.0**-9)


def test_kernel_scales_its_result(case: Case, torch: FakeTorch) -> None:
    kernel = Kernel(case.runtime, Problem(M, N, K, "f8", output="e4m3"), 0)
    a, b = matrices(case, torch)
    out = torch.on("cuda:0", case.matrix(M, N, dtype=E4M3))
    scale, amax = number(case, torch, 2.0), number(case, torch, 0.0)
    kernel.bind(a, b, out, scale_result=scale, amax=amax)()
    assert np.allclose(decoded(out.host), wanted(a, b, 2.0), rtol=0.13)
    out.host[:] = 0
    addresses = [array.data_ptr() for array in (a, b, out)]
    kernel.launch(*addresses, scale_result=scale.data_ptr(), amax=amax.data_ptr())
    assert np.allclose(decoded(out.host), wanted(a, b, 2.0), rtol=0.13)
    assert amax.host > 0


def test_bias_of_an_fp8_result_is_bfloat16(case: Case, torch: FakeTorch) -> None:
    a, b = matrices(case, torch)
    bias = torch.on("cuda:0", case.matrix(N, dtype="bfloat16"))
    out: Any = case.matmul(a, b, bias=bias, out_dtype="e4m3")
    assert case.looked_up[0].epilogue == "bias"
    short = torch.on("cuda:0", case.matrix(N, dtype=E4M3))
    with pytest.raises(ArrayError, match="bias is float8_e4m3fn, out bfloat16"):
        case.matmul(a, b, out, bias=short)


@pytest.mark.parametrize(
    ("shape", "keywords", "message"),
    [
        ((2,), {"out_dtype": "e4m3"}, r"scale_result is \(2,\); give one number"),
        ((1,), {}, "scale_result and amax are for a result in fp8; this one is bfloat16"),
        ((1,), {"out_dtype": "e4m3", "alpha": 2.0}, "a product in float8_e4m3fn takes alpha=1"),
    ],
)
def test_scale_that_does_not_fit_is_refused(
    case: Case, torch: FakeTorch, shape: tuple[int, ...], keywords: Any, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        case.matmul(
            *matrices(case, torch), scale_result=number(case, torch, 1.0, *shape), **keywords
        )
    assert case.cuda.launches == []


def test_kernel_of_another_type_takes_no_scale(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(M, N, K, "f8"), 0)
    with pytest.raises(ArrayError, match="amax is at 0x100; 5x7x300:f8:nn takes none: 0"):
        kernel.launch(0x100, 0x100, 0x100, amax=0x100)


def test_vendor_is_not_asked_for_a_scaled_result(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.vendor = True
    a, b = matrices(case, torch)
    asked: list[list[str]] = []

    def vendor_gemm(_torch: Torch, _problem: Problem, arrays: Any, *_factors: float) -> bool:
        asked.append([*arrays])
        return False

    monkeypatch.setattr(Torch, "vendor_gemm", vendor_gemm)
    case.matmul(a, b, out_dtype="e4m3")
    case.matmul(a, b, out_dtype="e4m3", scale_result=number(case, torch, 4.0))
    assert asked == [["a", "b", "c"]]
