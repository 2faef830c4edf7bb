"""The numerical oracle: float64 results, and how far a kernel may be from them.

The float64 product takes the operands as stored: 16-bit numbers for 16-bit types, and fp32 numbers
for `tf32` and `tf32x3`, whose kernels do the rounding themselves.

Normal operands of 8 bits have factors that bring N(0, 1) into a type's range. With scales they are
quantised as a user would: the largest numbers of a row come close to the type's largest, and the
scale brings them back to N(0, 1). The scales differ by 0.8 to 1.25, so that a scale of the wrong
row shows. Without scales fp8 holds N(0, 1) as it is, int8 a multiple.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.measure.measurement import Failure, Measurement
from autotune.problem import GATE_SPAN, Problem
from autotune.problem.problem import UNIT_ROUNDOFF as UNIT_ROUNDOFF
from autotune.problem.problem import relative_bound

SLOPE = 1.13
"""Largest slope of an activation: GELU's and its tanh form's are 1.129, near x = sqrt 2, SiLU's is
1.100."""

GELU_TAIL = {"f32": 0, "f16": 6, "bf16": 80, "e4m3": 80, "e5m2": 80}
"""Largest error that the fits of `log2_gelu_tail` (`cuda_src/include/common/epilogue.cuh`) cause in
GELU, by the type of C, in units of 2^-24. The largest for fp32, 0.1, counts as a rounding."""

LIBRARY_ROUNDINGS = 4
"""Additional roundings to C's type that a library may do: between the product and an activation,
and of split-K partial sums, which PyTorch's defaults let cuBLAS add up in 16 bits."""


def tolerance(
    problem: Problem, alpha: float = 1.0, beta: float = 0.0, *, magnitude: float | None = None
) -> float:
    """The largest error allowed in an element of C, for operands drawn from N(0, 1).

        u (|alpha| s + 16 |beta|),  u = 2^-24, without an epilogue, where

        s = 8 K + 64                                               f32
        s = 24 K + 2 K^1.5 + 64                                    f16, bf16
        s = 24 K + 2 K^1.5 + 64 + 2^13 (13 sqrt(K) + 128)          tf32
        s = 16 K + 64 sqrt(K) + 1664                               tf32x3
        s = p (8 K + 2^15 sqrt(K) + 2^20) + 4 p x                  f8, exact accumulation
        s = p (2^14 K + 2^8 K^1.5 + 2^18) + 4 p x                  f8, fast accumulation
        s = 4 p x                                                  i8; 0 if C is int32

    p is the `magnitude` of a product in units of that of two normal numbers, by default that of
    `product_size`; x = 8 sqrt(K) + 32 bounds their sum, as below.

    Errors are those that `cuda_src/verify.cu` computes: the rounding to a 16-bit C does not count,
    up to half a unit in the last place of the exact value.

    f32. In a sequential fp32 sum the partial sums are a random walk W and each step rounds by
    at most u |W|, uniformly: for a given walk, the error is normal with variance 0.18 u^2 sum W^2
    (1/3 for the uniform law, 0.541 for where W lies in its binade). The walk's scale varies too,
    so the tail is exponential: with E exp(s error) = cos(0.42 s u K)^(-1/2) (Cameron and Martin's
    formula for squared Brownian motion), P(|error| > x u K) falls as exp(-3.7 x). A simulation of
    3e6 sums of 512 terms agrees: a root mean square of 0.30 u K, 3e-6 of all beyond 3 u K. Beyond
    8 u K there are fewer than 1 in 1e13. Blocked, split and tree orders have smaller errors.
    64 u covers the products themselves at small K, and 16 u |beta| the addition of beta C.

    f16, bf16. Products are exact in fp32. Tensor cores add four or more of them to the sum at a
    time: all are aligned to the largest, with at least 23 bits behind its first, and lower bits
    are truncated, as are those of the result (Fasi, Higham, Mikaitis, Pranesh 2021: "Numerical
    behavior of NVIDIA tensor cores"). The truncation of a product has the product's random sign
    and is uniform up to a unit in the last place of the largest: four times the variance of the
    roundings above, so twice the 8 K, and as much again for the scatter of all other truncations.
    Truncating the sum always makes it smaller, on average by 0.72 u |W| (half a unit in the last
    place), at most twice in four products: it adds up to 0.36 u times the area under |W|. The
    area under W is normal with variance K^3 / 3, so it exceeds 5 K^1.5 once in 1e16: 2 K^1.5. IEEE
    sums are as those of f32.

    tf32. Both operands are rounded to 11 bits, to the nearest or, by kernels that leave it to the
    tensor cores, towards zero. Then a product is off by up to 4 h of its size, h = 2^-11, and by
    1.6 h in the root mean square (to the nearest 0.6 h). By Bernstein's inequality the sum of K
    such errors, each the product of two normals and a bounded number, exceeds
    1.6 h sqrt(2 K t) + 4 h t once in exp(t) times; t = 32, as below: h (13 sqrt(K) + 128).

    tf32x3. Operands split in two parts, each rounded or truncated, err by at most 48 u of a
    product, and 8 u in the root mean square: u (64 sqrt(K) + 1536) by the same inequality. Sums
    truncated all along K would not be near fp32; those promoted out of the tensor cores in time may
    err twice as far as f32.

    f8. Products are exact. Tensor cores align 16 or 32 of them and the sum to the largest and keep
    13 bits behind its first (DeepSeek-V3, 2024, section 3.5.2: about 14 bits), so u becomes
    2^10 u. In a simulation of 2e4 sums with that rule the error of a sum of K, all of it at 14
    bits, has a root mean square of 410 u K at most, up to K = 16384. The f32 sums' law allows
    27 times as much once in 1e13: 11,100 u K, below 2^14 u K. Truncating the sum itself loses
    0.36 2^10 u |W| in 16 products: 2^8 u K^1.5 for an area of 5 K^1.5. With sums promoted after
    128 products the errors of K / 128 sums add up, each with a root mean square of 27,000 u and
    independent signs. By Bernstein's inequality their sum exceeds 8 * 27,000 u sqrt(K / 128), which
    is 19,100 u sqrt(K), plus 32 times the scale of a sum's tail, 32,000 u, once in 1e13. Adding
    them is as in f32.

    i8. Sums are exact.

    The scales of f8 and i8 and the conversion of int32 round a few times: 4 u of the sum.

    An epilogue adds to this. No element is larger than

        x = |alpha| (8 sqrt(K) + 32) + 8 |beta| + 8 (with a bias) + 8 (with a residual):

    a sum of K products of two normals exceeds sqrt(2 K t) + t once in exp(t) times, since its E
    exp(s sum) = (1 - s^2)^(-K/2) <= exp(K s^2 / (2 - 2 s)), and t = 32; a normal number exceeds 8
    once in 1e15. Adding the bias rounds once, u x, and so does adding the residual. ReLU is exact
    and does not enlarge differences. GELU, its tanh form and SiLU enlarge them by `SLOPE` at most,
    and add at most (3 x + 1) u of their own: powers of 2 err by 4 u of their size and 0.7 u of
    their exponent's, reciprocals by 2 u (PTX ISA), other steps by u, and what follows of that is
    largest where the result is x or half of it. The fit of GELU adds `GELU_TAIL` u.

    SwiGLU counts errors in units of 1 + |gate| + |up| + d. Two sums that err by d make one of
    |silu(gate + d) (up + d) - silu(gate) up| <= SLOPE d (|up| + d) + |gate| d, which is below
    SLOPE d such units. SiLU errs by another (3 x + 1) u, times |up|, and their product is rounded.

    Finally the value with its error is rounded to a C of 16 or 8 bits, which changes the error by
    as large a fraction as the exact value.
    """
    size = product_size(problem) if magnitude is None else magnitude
    if problem.output_element.integer:
        return 0.0
    allowed = abs(alpha) * size * _sum_error(problem) + 16 * abs(beta)
    largest = _largest(problem, alpha, beta, size)
    if problem.precision.eight_bit:
        allowed += 4 * abs(alpha) * size * largest_sum(problem.k)
    allowed += largest * (problem.has_bias + problem.has_residual)
    if problem.activation in CURVES:
        fit = GELU_TAIL[problem.output_type] if problem.activation == "gelu" else 0
        allowed = SLOPE * allowed + 3 * largest + 1 + fit
    if problem.gated:
        allowed = SLOPE * allowed + 4 * largest + 1
    rounded = UNIT_ROUNDOFF * allowed * (1 + problem.output_element.roundoff)
    underflow = problem.output_element.underflow
    if problem.has_fp8_output:
        underflow /= result_scale(problem, alpha, beta, magnitude=magnitude)
    return rounded + underflow


def result_scale(
    problem: Problem, alpha: float = 1.0, beta: float = 0.0, *, magnitude: float | None = None
) -> float:
    """The scale of an fp8 C of normal operands: the power of 2 that brings the largest element into
    range; 1 for other types of C."""
    if not problem.has_fp8_output:
        return 1.0
    size = product_size(problem) if magnitude is None else magnitude
    largest = _largest(problem, alpha, beta, size)
    if problem.gated:
        largest *= largest
    return 2.0 ** math.floor(math.log2(problem.output_element.largest / largest))


def library_tolerance(problem: Problem, alpha: float = 1.0, beta: float = 0.0) -> float:
    """The largest error allowed in an element of a library's result.

    That of a kernel, and `LIBRARY_ROUNDINGS` roundings of the largest element.
    """
    roundings = LIBRARY_ROUNDINGS * problem.output_element.roundoff
    largest = _largest(problem, alpha, beta, product_size(problem))
    return tolerance(problem, alpha, beta) + roundings * largest


def product(
    problem: Problem,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> NDArray[np.float64]:
    """act(alpha op(A) op(B) + beta C + bias) in float64, of shape (m, n) or (batch, m, n), with
    SwiGLU of n / 2 columns.

    `a` and `b` have their stored shapes: (k, m) and (n, k) where the layout says `t`, preceded by
    the batch if there is one. `c` is ignored for beta = 0. Arrays are float32 or float16; bfloat16
    and fp8 values are passed as float32, because NumPy has no such types.
    """
    left = (a if problem.layout[0] == "n" else a.swapaxes(-1, -2)).astype(np.float64)
    right = (b if problem.layout[1] == "n" else b.swapaxes(-1, -2)).astype(np.float64)
    result: NDArray[np.float64] = alpha * (left @ right)
    if beta != 0 and c is not None:
        result += beta * c.astype(np.float64)
    if problem.has_bias and bias is not None:
        result += bias.astype(np.float64)
    if problem.gated:
        gate, up = gates(result)
        np.multiply(activated(gate, "silu"), up, out=gate)
        return gate
    return activated(result, problem.activation)


def gates(sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The gates among the columns of a product, and their values."""
    *rows, columns = sums.shape
    pairs = sums.reshape(*rows, columns // (2 * GATE_SPAN), 2, GATE_SPAN)
    gate, up = (pairs[..., half, :].reshape(*rows, columns // 2) for half in (0, 1))
    return gate, up


def activated(x: NDArray[Any], activation: str | None) -> NDArray[np.float64]:
    """An activation of each element in float64, as `Problem` defines it."""
    wide: NDArray[np.float64] = x.astype(np.float64)
    if activation is None:
        return wide
    if activation == "relu":
        np.maximum(wide, 0.0, out=wide)
        return wide
    if activation == "gelu":
        np.maximum(wide, -50.0, out=wide)  # 0 at -infinity, where the formula gives NaN
    with np.errstate(over="ignore", invalid="ignore"):
        wide *= CURVES[activation](wide)
    return wide


_erf = np.vectorize(math.erf, otypes=[float])

CURVES: Mapping[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "gelu": lambda x: (1 + _erf(math.sqrt(0.5) * x)) / 2,
    "gelu_tanh": lambda x: (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: 1 / (1 + np.exp(-x)),
}
"""The activations x P(x) by their P, a distribution function: the normal one, its approximation by
a hyperbolic tangent, and the logistic one."""


def _sum_error(problem: Problem) -> float:
    """The largest error of a sum of products, in units of 2^-24; `tolerance` derives it."""
    k, root, error = problem.k, math.sqrt(problem.k), problem.sum_error
    sums = error.linear * k + error.drift * k * root + error.root * root + error.constant
    return sums + problem.precision.operand_roundoff / UNIT_ROUNDOFF * (13 * root + 128)


def _largest(problem: Problem, alpha: float, beta: float, magnitude: float) -> float:
    """A bound on the size of an element; `tolerance` derives it."""
    added = 8 * (abs(beta) + problem.has_bias + problem.has_residual)
    return abs(alpha) * magnitude * largest_sum(problem.k) + added


LARGEST_NORMAL = 5.25
"""The normal number that becomes a type's largest; two in 10^7 are larger, and become it too."""

UNEVEN = 1.25
"""The largest scale, in units of the one that brings an operand back to N(0, 1)."""

INTEGER_FACTOR = 32.0
"""Factor of int8 operands without scales: 127 is the number 4."""

LARGEST_F16 = 65504.0
LARGEST_GATED = 255.0
"""The largest sums whose product fp16 holds."""

LARGEST_I32 = 2.0**31 - 1


def operand_factor(problem: Problem, side: int) -> float:
    """The factor of the normal numbers of A (side 0) or B before they are rounded."""
    element = problem.operand_elements[side]
    if problem.scale != "none":
        return element.largest / LARGEST_NORMAL
    if not element.integer:
        return _fitting(problem, 1.0)
    if problem.gated or problem.output != "f16":
        return _fitting(problem, INTEGER_FACTOR)
    fitting = math.sqrt(LARGEST_F16 / largest_sum(problem.k))
    return 2.0 ** math.floor(math.log2(min(INTEGER_FACTOR, fitting)))


def scale_size(problem: Problem, side: int) -> float:
    """The size of the scales that undo `operand_factor`."""
    return _fitting(problem, 1.0) / operand_factor(problem, side)


def _fitting(problem: Problem, largest: float) -> float:
    """A factor up to `largest` of each operand with which an fp16 C holds the sums, or what gates
    make of them.

    With scales the factor is theirs. It makes room for `extremes` too, whose products are
    `LARGEST_NORMAL`^2 times as large as those of two normal numbers.
    """
    if problem.output_type != "f16":
        return largest
    most = LARGEST_GATED if problem.gated else LARGEST_F16
    if problem.scale != "none" and not problem.gated:
        most /= LARGEST_NORMAL**2
    return min(largest, math.sqrt(most / (UNEVEN**2 * largest_sum(problem.k))))


def largest_sum(k: int) -> float:
    """A bound on sums of `k` products of two normal numbers; `oracle.tolerance` derives it."""
    return 8 * math.sqrt(k) + 32


def product_size(problem: Problem, factors: tuple[float, float] | None = None) -> float:
    """The products of two elements, in units of those of two normal numbers, at most.

    Args:
        problem: the problem.
        factors: the factors of A and B, if they are not those of `operand_factor`; what they raise
            beyond a type's largest number is rounded to that.
    """
    product = 1.0
    for side, element in enumerate(problem.operand_elements):
        own = operand_factor(problem, side)
        if element.bytes > 1:
            product *= own
            continue
        size = min(factors[side], element.largest) if factors else own
        scale = UNEVEN * scale_size(problem, side) if problem.scale != "none" else 1.0
        # Rounding enlarges a number by this much at most: half of the last bit, or of 1.
        rounding = 0.5 / size if element.integer else element.roundoff
        product *= size * scale * (1 + rounding)
    return product


def extremes(problem: Problem) -> tuple[tuple[float, float], ...]:
    """Factors of A and B for operands that are all maximal, and all denormal.

    None for types of more than 8 bits, none that is maximal where C or an int32 sum would overflow.
    """
    elements = problem.operand_elements
    if elements[0].bytes > 1:
        return ()
    a, b = (1e6 * element.largest for element in elements)
    overflows = problem.output == "f16" and (problem.scale == "none" or problem.gated)
    if elements[0].integer:
        largest = elements[0].largest * elements[1].largest * largest_sum(problem.k)
        overflows = overflows or largest > LARGEST_I32
    maximal = () if overflows else ((a, b),)
    if elements[0].integer:
        return maximal
    # Six denormal steps are still below the least normal number of e4m3; e5m2 has three.
    small_a, small_b = (2.5 * element.underflow for element in elements)
    return *maximal, (small_a, small_b)


def checked_accuracy(
    problem: Problem, outcome: Measurement | Failure, baseline_error: float | None
) -> Measurement | Failure:
    """The outcome, or a failure if it is too inaccurate beside the vendor baseline.

    `baseline_error` is the baseline's relative error on operands of the same kind; without it
    nothing is checked.
    """
    if isinstance(outcome, Failure) or outcome.relative_error is None:
        return outcome
    return inaccuracy(problem, outcome.relative_error, baseline_error) or outcome


def inaccuracy(
    problem: Problem, error: float | None, baseline_error: float | None
) -> Failure | None:
    """The failure of a relative error that is too large beside the baseline's, else None."""
    bound = relative_bound(problem, baseline_error)
    if baseline_error is None or error is None or error <= bound:
        return None
    times = f"{error / baseline_error:.1f} times" if baseline_error else "more than"
    return Failure(
        "accuracy",
        f"relative error {error:.2g} is {times} the vendor library's {baseline_error:.2g}; "
        f"{bound:.2g} is allowed",
    )
