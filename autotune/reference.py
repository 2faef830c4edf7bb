"""The numerical oracle: float64 products, and how far an fp32 kernel may be from them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotune.problem import Problem

UNIT_ROUNDOFF = 2.0**-24

GELU_SLOPE = 1.13
"""GELU's steepest: 1.1289, at x = sqrt 2."""

ACCURACY = 1.5
"""A kernel's relative error may be so many times the vendor library's."""

EXACT = 2 * UNIT_ROUNDOFF
"""A relative error that is never too much: a few roundings, where the vendor's may be one or none,
as at K = 1."""

COMPARABLE = 512
"""Elements of C from which on two relative errors can be compared.

An error has an excess kurtosis of 4 (`tolerance` has its law), so the root mean square of n of them
scatters by sqrt(6 / n) / 2, and the ratio of two by 1.73 / sqrt(n): 8 % at 512. A kernel that is as
accurate as the vendor's is found above `ACCURACY` when that is 6.5 standard deviations off."""


def tolerance(problem: Problem, alpha: float = 1.0, beta: float = 0.0) -> float:
    """The largest absolute error allowed in an element of C, for operands drawn from N(0, 1).

        u (|alpha| (8 K + 64) + 16 |beta|),  u = 2^-24, without an epilogue

    Added up one by one in fp32, the partial sums are a random walk W and each step rounds by at
    most u |W|, uniformly: given the walk, the error is normal with variance 0.18 u^2 sum W^2
    (1/3 for the uniform law, 0.541 for where W lies in its binade). The walk's scale varies too,
    so the tail is exponential: with E exp(s error) = cos(0.42 s u K)^(-1/2) (Cameron and Martin's
    formula for squared Brownian motion), P(|error| > x u K) falls as exp(-3.7 x). A simulation of
    3e6 sums of 512 terms agrees: a root mean square of 0.30 u K, 3e-6 of all beyond 3 u K. Beyond
    8 u K there are fewer than 1 in 1e13. Blocked, split and tree orders have smaller errors.
    64 u covers the products themselves at small K, and 16 u |beta| the addition of beta C.

    An epilogue comes on top. No element is larger than

        x = |alpha| (8 sqrt(K) + 32) + 8 |beta| + 8 (with a bias):

    a sum of K products of two normals exceeds sqrt(2 K t) + t once in exp(t) times, since its
    E exp(s sum) = (1 - s^2)^(-K/2) <= exp(K s^2 / (2 - 2 s)), and t = 32; a normal number exceeds 8
    once in 1e15. Adding the bias rounds once, u x. ReLU moves two numbers no further apart and is
    exact. GELU moves them apart by `GELU_SLOPE` at most, and as x (1 + erf(x / sqrt 2)) / 2 adds
    at most (2.5 x + 0.6) u of its own: erf is within 2 units in the last place (CUDA programming
    guide), its argument within 2 u of its size, and each other step rounds once.
    """
    allowed = abs(alpha) * (8 * problem.k + 64) + 16 * abs(beta)
    largest = abs(alpha) * (8 * math.sqrt(problem.k) + 32) + 8 * abs(beta)
    if problem.has_bias:
        largest += 8
        allowed += largest
    if problem.epilogue.endswith("gelu"):
        allowed = GELU_SLOPE * allowed + 3 * largest + 1
    return UNIT_ROUNDOFF * allowed


def relative_bound(problem: Problem, vendor: float | None) -> float:
    """The largest relative error (Frobenius norms) allowed beside the vendor library's.

    Infinite if the vendor's is not known, and where C has fewer than `COMPARABLE` elements: there
    `tolerance` rules alone.
    """
    if vendor is None or problem.batch * problem.m * problem.n < COMPARABLE:
        return math.inf
    return max(ACCURACY * vendor, EXACT)


def product(
    problem: Problem,
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    c: NDArray[np.float32] | None = None,
    bias: NDArray[np.float32] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> NDArray[np.float64]:
    """act(alpha op(A) op(B) + beta C + bias) in float64, of shape (m, n) or (batch, m, n).

    `a` and `b` have the shapes in which they are stored: (k, m) and (n, k) where the layout says
    `t`, with the batch in front if there is one. `c` is not looked at for beta = 0.
    """
    left = a if problem.layout[0] == "n" else a.swapaxes(-1, -2)
    right = b if problem.layout[1] == "n" else b.swapaxes(-1, -2)
    result: NDArray[np.float64] = alpha * (left.astype(np.float64) @ right.astype(np.float64))
    if beta != 0 and c is not None:
        result += beta * c.astype(np.float64)
    if problem.has_bias and bias is not None:
        result += bias.astype(np.float64)
    if problem.epilogue.endswith("relu"):
        np.maximum(result, 0.0, out=result)
    if problem.epilogue.endswith("gelu"):
        result *= (1 + np.vectorize(math.erf)(result * math.sqrt(0.5))) / 2
    return result
