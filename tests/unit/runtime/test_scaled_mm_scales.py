"""The scales of `torch._scaled_mm` as those of `autotune.matmul`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.errors import ArrayError
from autotune.runtime.frameworks import own_scale_b, own_scales


class Scales:
    """A tensor of scales; `copied` says whether its memory is new."""

    def __init__(self, host: Any, copied: bool = False) -> None:
        self.host, self.copied, self.shape = host, copied, host.shape

    def t(self) -> Scales:
        return Scales(self.host.T, self.copied)

    def contiguous(self) -> Scales:
        if self.host.flags.c_contiguous:
            return self
        return Scales(np.ascontiguousarray(self.host), copied=True)


def sized(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


def converted(sizes: tuple[int, int, int], a: Any, b: Any) -> tuple[Scales, Scales]:
    m, n, k = sizes
    return own_scales(sized(m, k), sized(k, n), Scales(a), Scales(b))


@pytest.mark.parametrize(("a", "b"), [((), ()), ((1,), (1,)), ((1, 1), ()), ((5, 1), (1, 7))])
def test_numbers_and_rows_stay_as_they_are(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    host_a, host_b = np.zeros(a), np.zeros(b)
    own_a, own_b = converted((5, 7, 300), host_a, host_b)
    assert (own_a.host is host_a, own_b.host is host_b) == (True, True)


def test_blocks_stored_by_columns_are_not_copied() -> None:
    a, b = np.arange(15.0).reshape(3, 5).T, np.arange(6.0).reshape(2, 3).T
    own_a, own_b = converted((5, 200, 300), a, b)
    assert (own_a.shape, own_b.shape) == ((3, 5), (2, 3))
    assert (own_a.copied, own_b.copied) == (False, False)


def test_blocks_stored_otherwise_are_copied() -> None:
    a, padded = np.arange(15.0).reshape(5, 3), np.arange(8.0).reshape(2, 4)[:, :3].T
    own_a, own_b = converted((5, 200, 300), a, padded)
    assert np.array_equal(own_a.host, a.T)
    assert np.array_equal(own_b.host, padded.T)
    assert (own_a.copied, own_b.copied) == (True, True)


def test_single_block_along_k_is_not_a_row() -> None:
    own_a, own_b = converted((5, 200, 64), np.zeros((5, 1)), np.zeros((1, 2)))
    assert (own_a.shape, own_b.shape) == ((1, 5), (2, 1))


@pytest.mark.parametrize(("a", "b"), [((5,), (7,)), ((5, 1), (1, 1)), ((3, 5), (1, 3))])
def test_other_shapes_are_refused(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ArrayError) as error:
        converted((5, 7, 300), np.zeros(a), np.zeros(b))
    assert str(error.value) == (
        f"scale_a is {a}, scale_b {b}; a product of (5, 300) and (300, 7) takes one number each, "
        "(5, 1) and (1, 7), or (5, 3) and (3, 1)"
    )


def test_scales_of_b_alone_are_converted() -> None:
    b = sized(300, 200)
    for shape in ((), (1,), (1, 1), (1, 200)):
        scales = Scales(np.zeros(shape))
        assert own_scale_b(b, scales) is scales
    assert own_scale_b(b, Scales(np.zeros((3, 2)))).shape == (2, 3)
    with pytest.raises(ArrayError, match=r"scale_b is \(200,\); a B of \(300, 200\) takes one num"):
        own_scale_b(b, Scales(np.zeros(200)))
