"""Sums of fp8 products as tensor cores add them: 32 at a time, in 14 bits of the largest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
AT_ONCE = 32


def sums(products: Numbers, length: int) -> Numbers:
    """The sum of each `length` products along the first axis, a multiple of `AT_ONCE`."""
    groups = products.reshape(-1, length, *products.shape[1:])
    total = np.zeros((len(groups), *products.shape[1:]))
    for place in range(0, length, AT_ONCE):
        addends = np.concatenate([total[:, None], groups[:, place : place + AT_ONCE]], 1)
        aligned = _truncated(addends, np.abs(addends).max(1, keepdims=True)).sum(1)
        total = _truncated(aligned, np.abs(aligned))
    return total


def _truncated(values: Numbers, size: Numbers) -> Numbers:
    """The values cut after 13 bits behind the first of `size`."""
    last = np.ldexp(1.0, np.frexp(size)[1] - 14)
    cut: Numbers = np.trunc(values / last) * last
    return cut
