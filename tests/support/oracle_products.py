"""The float64 oracle with scales and a residual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.measure import oracle
from autotune.problem import SCALE_BLOCK, Problem


def product(
    problem: Problem,
    a: NDArray[Any],
    b: NDArray[Any],
    *added: NDArray[Any] | None,
    scales: tuple[NDArray[Any], NDArray[Any]] | None = None,
    residual: NDArray[Any] | None = None,
    **others: Any,
) -> NDArray[np.float64]:
    """`oracle.product` of A and B times their scales, in the problem's shapes, plus a residual."""
    if scales is not None:
        left = a if problem.layout[0] == "n" else a.swapaxes(-1, -2)
        right = b if problem.layout[1] == "n" else b.swapaxes(-1, -2)
        factors = (spread_scales(problem, side, each) for side, each in enumerate(scales))
        a, b = (
            matrix.astype(np.float64) * (factor if matrix.ndim == 3 else factor[0])
            for matrix, factor in zip((left, right), factors, strict=True)
        )
        problem, b = replace(problem, layout="nt"), b.swapaxes(-1, -2)
    result = oracle.product(problem, a, b, *added, **others)
    return result if residual is None else result + residual.astype(np.float64)


def spread_scales(problem: Problem, side: int, scales: NDArray[Any]) -> NDArray[np.float64]:
    """The scales of the elements of op(A) (side 0), (batch, m, k), or op(B), (batch, k, n), with
    sizes of 1 along which they are the same."""
    wide = scales.astype(np.float64)
    if problem.scale == "tensor":
        return wide.reshape(1, 1, 1)
    if problem.scale == "row":
        return wide.reshape(problem.batch, *((1, problem.n) if side else (problem.m, 1)))
    if side:
        columns = wide.repeat(SCALE_BLOCK, axis=1)[:, : problem.n].swapaxes(1, 2)
        scale_b: NDArray[np.float64] = columns.repeat(SCALE_BLOCK, axis=1)[:, : problem.k]
        return scale_b
    scale_a: NDArray[np.float64] = wide.swapaxes(1, 2).repeat(SCALE_BLOCK, axis=2)
    return scale_a[..., : problem.k]
