"""Lazily negated tensors, and an alpha of 0, on a real GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runtime_gpu import NAIVE, SIMT, SPLIT, TILED, drawn, runtime_of

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.quantized import Quantizer
from autotune.runtime.state import Runtime

NEGATED = r"is lazily negated \(is_neg\), .* give \.resolve_neg\(\)"


@pytest.fixture
def runs(driver: Driver, cache: Path) -> Callable[[Config], Runtime]:
    return partial(runtime_of, driver, cache)


def column(torch: Any, rows: int) -> Any:
    """A lazily negated column by public functions."""
    z = torch.randn(rows, dtype=torch.complex64, device="cuda")
    return z.conj().imag.unsqueeze(1)


@pytest.mark.parametrize("place", range(3))
def test_negated_tensor_is_refused_where_the_plain_one_ran(
    torch: Any, runs: Callable[[Config], Runtime], place: int
) -> None:
    multiply = Matmul(runs(SIMT))
    arrays = [torch.randn(*shape, device="cuda") for shape in ((64, 96), (96, 80), (64, 80))]
    for _ in range(2):  # the second call is launched by machine code, if that was compiled
        multiply(*arrays)
    before = arrays[2].clone()
    arrays[place] = torch._neg_view(arrays[place])
    with pytest.raises(ArrayError, match=NEGATED):
        multiply(*arrays)
    assert torch.equal(arrays[2].abs(), before.abs())


def test_negated_tensor_is_multiplied_once_resolved(
    torch: Any, runs: Callable[[Config], Runtime]
) -> None:
    a, b = torch.randn(64, 512, device="cuda"), column(torch, 512)
    result: Any = Matmul(runs(SIMT))(a, b.resolve_neg())
    torch.testing.assert_close(result, a @ b, rtol=1e-4, atol=1e-4)


def test_operator_multiplies_negated_tensors(torch: Any) -> None:
    a, b = torch.randn(64, 512, device="cuda"), column(torch, 512)
    bias = torch._neg_view(torch.randn(1, device="cuda"))
    result = importlib.import_module("autotune.torch").mm(a, b, bias)
    torch.testing.assert_close(result, a @ b + bias, rtol=1e-4, atol=1e-4)


def test_quantising_refuses_negated_tensors(torch: Any, runs: Callable[[Config], Runtime]) -> None:
    x = torch._neg_view(torch.randn(64, 128, device="cuda"))
    with pytest.raises(ArrayError, match=NEGATED):
        Quantizer(runs(SIMT))(x, "e4m3", "row", None)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("config", [NAIVE, TILED, SIMT, SPLIT], ids=str)
def test_alpha_of_0_ignores_nan(
    torch: Any, runs: Callable[[Config], Runtime], config: Config, beta: float
) -> None:
    ignores_nan(torch, Matmul(runs(config)), "float32", beta)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_alpha_of_0_ignores_nan_on_tensor_cores(
    torch: Any, driver: Driver, cache: Path, family: str, dtype: str, beta: float
) -> None:
    if family == "wgmma" and driver.probe(0).compute_capability != (9, 0):
        pytest.skip("wgmma is of compute capability 9.0 alone")
    multiply = Matmul(drawn(driver, cache, family, {}))
    ignores_nan(torch, multiply, dtype, beta, compute="tf32" if dtype == "float32" else None)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_cublas_with_alpha_of_0_ignores_nan(
    torch: Any,
    runs: Callable[[Config], Runtime],
    monkeypatch: pytest.MonkeyPatch,
    batch: tuple[int, ...],
    dtype: str,
    beta: float,
) -> None:
    runtime = runs(NAIVE)
    find: Any = runtime._find
    monkeypatch.setattr(runtime, "_find", lambda *asked: replace(find(*asked), vendor=True))
    ignores_nan(torch, Matmul(runtime), dtype, beta, batch)


def ignores_nan(
    torch: Any,
    multiply: Matmul,
    dtype: str,
    beta: float,
    batch: tuple[int, ...] = (),
    compute: str | None = None,
) -> None:
    """Asserts that A and B of NaN leave beta C."""
    kind = getattr(torch, dtype)
    a, b, out = (
        torch.full((*batch, *shape), value, device="cuda", dtype=kind)
        for shape, value in (((72, 136), torch.nan), ((136, 88), torch.nan), ((72, 88), 3.0))
    )
    multiply(a, b, out, 0.0, beta, compute=compute)
    assert bool((out == 3 * beta).all())
