"""The B of SwiGLU, made of two weights: `interleave`."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune.errors import ArrayError
from autotune.measure.oracle import gates


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_outputs_alternate_in_eights(axis: int) -> None:
    gate, up = np.random.default_rng(0).standard_normal((2, 24, 32))
    whole = autotune.interleave(gate, up, axis)
    assert whole.shape == ((48, 32) if axis in (0, -2) else (24, 64))
    first, second = gates(np.moveaxis(whole, axis, -1))
    np.testing.assert_array_equal(first, np.moveaxis(gate, axis, -1))
    np.testing.assert_array_equal(second, np.moveaxis(up, axis, -1))


def test_scales_of_rows_alternate_like_the_rows() -> None:
    whole = autotune.interleave(np.arange(16), 100 + np.arange(16))
    assert whole[[0, 7, 8, 15, 16, 31]].tolist() == [0, 7, 100, 107, 8, 115]


@pytest.mark.parametrize(
    ("gate", "up", "axis", "message"),
    [
        ((16, 4), (16, 5), 0, r"the gate is \(16, 4\) of float64, the other weight \(16, 5\)"),
        ((12, 4), (12, 4), 0, r"give 12 outputs, axis 0, as a multiple of 8"),
        ((16, 4), (16, 4), 2, "axis is 2; the weights have 2 axes"),
    ],
)
def test_other_weights_are_refused(
    gate: tuple[int, ...], up: tuple[int, ...], axis: int, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        autotune.interleave(np.zeros(gate), np.zeros(up), axis)
