"""An alpha of 0 leaves A and B out of the product, on the way through the vendor's library too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch, Tensor
from support.runtime_case import Case

SHAPES = ((5, 3), (3, 7), (5, 7)), ((2, 5, 3), (2, 3, 7), (2, 5, 7))


def operands(case: Case, shapes: Any) -> list[Tensor]:
    """A and B of NaN, and C."""
    a, b, out = (Tensor(case.matrix(*shape)) for shape in shapes)
    a.host[:] = b.host[:] = np.nan
    return [a, b, out]


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("shapes", SHAPES)
def test_vendor_ignores_nan_with_alpha_0(
    case: Case, torch: FakeTorch, shapes: Any, beta: float
) -> None:
    case.vendor = True
    a, b, out = operands(case, shapes)
    expected = beta * out.host
    case.matmul(a, b, out, 0.0, beta)
    np.testing.assert_array_equal(out.host, expected)
    assert [name for name, _ in torch.products] == ["addmm" if out.dim() == 2 else "baddbmm"]


@pytest.mark.parametrize("fuses", [False, True])
def test_vendor_applies_the_epilogue_with_alpha_0(
    case: Case, torch: FakeTorch, fuses: bool
) -> None:
    case.vendor, torch.fuses = True, fuses
    a, b, out = operands(case, SHAPES[0])
    bias = Tensor(case.matrix(7))
    case.matmul(a, b, out, 0.0, bias=bias, activation="relu")
    np.testing.assert_array_equal(out.host, np.broadcast_to(np.maximum(bias.host, 0), (5, 7)))
    assert [name for name, _ in torch.products] == ["addmm", "relu_"]
