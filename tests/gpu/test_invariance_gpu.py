"""Batch invariance on the GPU: a row of C has the same bits whatever the rows beside it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import runtime
from autotune.errors import NotFoundError

SIZES = (1, 2, 3, 5, 8, 9, 16, 17, 31, 64, 65, 100, 128, 200, 255, 256, 300)
"""17 sizes, which make 136 pairs; the last one is outside the tuned range."""
N, K = 1024, 2048


@pytest.fixture(scope="module")
def tuned(cache: Path, torch: Any) -> Iterator[None]:
    """A cache with a batch-invariant range of M up to 256."""
    del torch
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
        for compute in ("bf16", "f16"):
            autotune.tune(
                f"1..256x{N}x{K}:{compute}:nt", trials=24, batch_invariant=True, progress=False
            )
        runtime.batch_invariant.cache_clear()
        yield
        runtime.batch_invariant.cache_clear()


@pytest.mark.parametrize("compute", ["bf16", "f16"])
@pytest.mark.parametrize("alpha", [1.0, 1.7])
@pytest.mark.usefixtures("tuned")
def test_rows_have_the_same_bits_for_each_pair_of_m(torch: Any, compute: str, alpha: float) -> None:
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[compute]
    torch.manual_seed(1)
    a = torch.randn(SIZES[-1], K, dtype=dtype, device="cuda")
    weight = torch.randn(N, K, dtype=dtype, device="cuda")
    bias = torch.randn(N, dtype=dtype, device="cuda")
    results: dict[int, Any] = {
        m: autotune.matmul(a[:m], weight.t(), alpha=alpha, bias=bias, batch_invariant=True)
        for m in SIZES
    }
    expected = alpha * (a.double() @ weight.t().double()) + bias.double()
    assert (results[SIZES[-1]].double() - expected).abs().max() < 2.0
    pairs = [*combinations(SIZES, 2)]
    assert len(pairs) >= 64
    for few, many in pairs:
        assert torch.equal(results[few], results[many][:few]), (few, many)


@pytest.mark.usefixtures("tuned")
def test_patched_layer_has_the_same_bits_in_any_batch(torch: Any) -> None:
    from autotune.torch import patch

    layer = torch.nn.Linear(K, N, dtype=torch.bfloat16, device="cuda")
    report = patch(layer, rows=SIZES[:-1], batch_invariant=True)
    assert report.kept == ()
    x = torch.randn(SIZES[-1], K, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        whole = layer(x)
        for m in SIZES:
            assert torch.equal(layer(x[:m]), whole[:m]), m


@pytest.mark.usefixtures("tuned")
def test_product_without_a_range_is_refused(torch: Any) -> None:
    a = torch.randn(4, 64, device="cuda")
    with pytest.raises(NotFoundError, match="no batch-invariant range serves"):
        autotune.matmul(a, a.t(), batch_invariant=True)
