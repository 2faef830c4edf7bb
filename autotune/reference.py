"""The numerical oracle: float64 products, and how far an fp32 kernel may be from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.problem import Problem

UNIT_ROUNDOFF = 2.0**-24


def tolerance(problem: Problem, alpha: float = 1.0, beta: float = 0.0) -> float:
    """The largest absolute error allowed in an element of C, for operands drawn from N(0, 1).

        u (|alpha| (8 K + 64) + 16 |beta|),  u = 2^-24

    Added up one by one in fp32, the partial sums are a random walk W and each step rounds by at
    most u |W|, uniformly: given the walk, the error is normal with variance 0.18 u^2 sum W^2
    (1/3 for the uniform law, 0.541 for where W lies in its binade). The walk's scale varies too,
    so the tail is exponential: with E exp(s error) = cos(0.42 s u K)^(-1/2) (Cameron and Martin's
    formula for squared Brownian motion), P(|error| > x u K) falls as exp(-3.7 x). A simulation of
    3e6 sums of 512 terms agrees: a root mean square of 0.30 u K, 3e-6 of all beyond 3 u K. Beyond
    8 u K there are fewer than 1 in 1e13. Blocked, split and tree orders have smaller errors.
    64 u covers the products themselves at small K, and 16 u |beta| the addition of beta C.
    """
    return UNIT_ROUNDOFF * (abs(alpha) * (8 * problem.k + 64) + 16 * abs(beta))


def product(
    problem: Problem,
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    c: NDArray[np.float32] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> NDArray[np.float64]:
    """alpha op(A) op(B) + beta C in float64, of shape (m, n).

    `a` and `b` have the shapes in which they are stored: (k, m) and (n, k) where the layout says
    `t`. `c` is not looked at for beta = 0.
    """
    left = a if problem.layout[0] == "n" else a.T
    right = b if problem.layout[1] == "n" else b.T
    result: NDArray[np.float64] = alpha * (left.astype(np.float64) @ right.astype(np.float64))
    if beta != 0 and c is not None:
        result += beta * c.astype(np.float64)
    return result
