"""Operands of small integers whose product every correct kernel computes bit for bit.

A tolerance hides one missing term among thousands. Here most places of K have a partner with the
same column of A and the negative row of B, so that their products cancel. C is the sum over the
three or four other places, whatever K is: an odd number between -13 and 13. All sums on the way
are integers that fp32 holds exactly, in any order, so nothing is rounded, and a term that is
missing or wrong changes C by a whole number. Partners lie at a distance that is drawn anew for each
product: no tile, split or chunk of K contains them all.

Sums that keep 14 bits hold whole numbers up to 2^14. The sum of n products without their partners
has a root mean square of 2.5 sqrt(n) for factors of 1 and 2, and of sqrt(n) for factors of 1. At
K = 10^6 at most half of the partners are missing: 1770 for factors of 1 and 2, of which 2^14 is 9
times. A longer K has factors of 1, and partners at most `NEAR` places apart: at most 1000 in any
sum over neighbouring places.

`cuda_src/verify.cu` makes the same numbers on the device.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from autotune.problem import Problem

ALPHA = 2.0
"""A factor other than 1 that keeps integers exact."""

ROUNDED: Mapping[str | None, float] = {"gelu": 2.0**-18, "gelu_tanh": 2.0**-18, "silu": 2.0**-16}
"""Error allowed where the epilogue computes an activation, whose argument is 14 at least. SiLU is
1.2e-5 off its argument there, which 16 bits round away."""

GATED_ROUNDED = 2.0**-14
"""Error allowed in silu(gate) up of integers up to 13, beside the rounding to C's type: SiLU errs
by a few units of 2^-24 of its argument."""

RESULT_SCALE = 2.0
"""The scale of an fp8 C, which keeps all of it in range."""

JUST_ROUNDED = 2.0**-60
"""A share that allows for nothing but the rounding of the exact value."""

NEARLY = 0.25
"""Error allowed beside a denormal number, which may be flushed to zero."""

DENORMAL: Mapping[str, float] = {
    "f32": 2.0**-130,
    "f16": 2.0**-16,
    "bf16": 2.0**-130,
    "e4m3": 2.0**-9,
    "e5m2": 2.0**-16,
    "i8": 0.0,
}
"""A denormal number of each operand type."""

INFINITE = ("f32", "f16", "bf16", "e5m2")
"""Operand types with infinities."""

EXTREME_SCALES = (0.0, 2.0**-100, 2.0**100)
"""Scales that a kernel has to apply as they are: 8e-31 and 1e30 as powers of 2, which round
nothing."""

NEAR = 1_000_000
"""The largest distance of partners, and the largest K of factors beyond 1, where sums keep 14
bits."""

NEIGHBOURS, ALIKE = 16, 1
"""The largest distance of partners, and their size, for a library that adds partial sums of K in
16 bits: bfloat16 holds whole numbers up to 256. A part of K lacks the partners of 16 products of 1
or -1 at most: the sum of any of 64 parts has a root mean square of 32 at most, beside 13 of C."""

APART = 9
"""The least distance of partners for a library. Neighbours would be partners within a short tail of
K, whose sum is then 0: of four places that a product leaves out one draw in six saw nothing."""

_UNPAIRED = 3
# By the lowest four bits of a random number: a sign, and sizes up to 8, of 1, of 2, and of 1 or 2.
_SIGN = np.where(np.arange(16) & 1, -1, 1).astype(np.float32)
_PAIRED = _SIGN * (1 + np.arange(16, dtype=np.float32) // 2)
_ONE = _SIGN
_EVEN = 2 * _SIGN, _SIGN * (1 + np.arange(16, dtype=np.float32) // 2 % 2)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Pairing:
    """The places of K without a partner, and the order in which neighbours are partners.

    Attributes:
        first: the first place without a partner.
        terms: number of places from there on without a term.
        paired: number of the other places, even.
        factor: factor of the affine map that orders them, coprime to `paired`.
        shift: its shift.
        sizes: the largest factor of a paired place, a power of 2 up to 8.
    """

    first: int
    terms: int
    paired: int
    factor: int
    shift: int
    sizes: int = 8

    @classmethod
    def draw(
        cls, k: int, random: Random, sizes: int = 8, nearest: int = 1, farthest: int | None = None
    ) -> Pairing:
        """A pairing of `k` places, with paired factors of up to `sizes` and partners that are
        `nearest` to `farthest` places apart, counted on from the end to the start; nearer ones
        where K has no such pairing."""
        terms = min(k, _UNPAIRED + (k - _UNPAIRED) % 2)
        paired = k - terms
        if not paired:
            return cls(0, terms, 0, 1, 0, sizes)
        # Places `distance` apart, whose product with the factor is 1, are neighbours in the order.
        largest = min(paired, farthest or paired)
        if all(math.gcd(each, paired) > 1 for each in range(nearest, largest + 1, 2)):
            nearest = 1
        distance = random.randrange(nearest, largest + 1, 2)
        while math.gcd(distance, paired) > 1:
            distance = random.randrange(nearest, largest + 1, 2)
        first, shift = random.randrange(paired + 1), random.randrange(paired)
        return cls(first, terms, paired, pow(distance, -1, paired), shift, sizes)


@dataclass(frozen=True)
class Draw:
    """One exact product: the seeds of its operands, and the pairing of K."""

    a: int
    b: int
    c: int
    bias: int
    pairing: Pairing
    scale_a: int = 0
    scale_b: int = 0
    residual: int = 0

    @classmethod
    def of(cls, problem: Problem) -> Draw:
        """A draw that nobody can foresee, for a kernel of a problem."""
        if problem.accumulate == "fast":
            return cls._paired(problem.k, 2 if problem.k <= NEAR else 1, farthest=NEAR)
        return cls._paired(problem.k)

    @classmethod
    def of_library(cls, problem: Problem) -> Draw:
        """A draw that nobody can foresee, for a library."""
        return cls._paired(problem.k, ALIKE, APART, NEIGHBOURS)

    @classmethod
    def _paired(cls, k: int, sizes: int = 8, nearest: int = 1, farthest: int | None = None) -> Draw:
        a, b, c, bias, scale_a, scale_b, residual = (secrets.randbits(62) for _ in range(7))
        pairing = Pairing.draw(k, secrets.SystemRandom(), sizes, nearest, farthest)
        return cls(a, b, c, bias, pairing, scale_a, scale_b, residual)


@dataclass(frozen=True)
class Special:
    """A value that one row of op(A), or one column of op(B), holds at one place of K, or its scale.

    Attributes:
        value: an infinity, NaN, a denormal or an extreme number.
        row: the row of the first op(A), or None.
        column: the column of the first op(B), or None.
        scale: whether it is the scale that belongs to the row or column.
    """

    value: float
    row: int | None = None
    column: int | None = None
    scale: bool = False


def factors(
    side: int, rows: NDArray[np.int64], k: int, seed: int, pairing: Pairing
) -> NDArray[np.float32]:
    """The factors (rows, k) of rows of op(A), for side 0, or of columns of op(B), for side 1.

    `rows` are numbers of rows or columns, counted on from matrix to matrix of a batch.
    """
    places = np.arange(k)
    terms = places - pairing.first
    unpaired = (terms >= 0) & (terms < pairing.terms)
    order = np.where(places < pairing.first, places, places - pairing.terms)
    order = (order * pairing.factor + pairing.shift) % max(1, pairing.paired)
    numbers = np.where(unpaired, terms, pairing.terms + order // 2)
    # The lowest four bits give the sign and the size.
    bits = _mixed(_stream(seed, (rows[:, None] << 32) + numbers)).astype(np.uint8) & 15
    values: NDArray[np.float32] = _PAIRED[bits & (2 * pairing.sizes - 1)]
    values[:, side * (order & 1) == 1] *= -1
    few = np.where(terms[unpaired] == 0, _ONE[bits[:, unpaired]], _EVEN[side][bits[:, unpaired]])
    values[:, unpaired] = few
    return values


def unpaired(
    side: int, rows: NDArray[np.int64], seed: int, pairing: Pairing
) -> NDArray[np.float32]:
    """The factors at the places of K that have no partner: all that C consists of."""
    alone = Pairing(0, pairing.terms, 0, 1, 0)
    return factors(side, rows, pairing.terms, seed, alone)


def raised(seed: int, indices: NDArray[np.int64]) -> NDArray[np.float32]:
    """The numbers 44, 48 and 52 that C holds before, by their places in memory."""
    steps: NDArray[np.uint64] = _mixed(_stream(seed, indices)) % np.uint64(3)
    return 44 + 4 * steps.astype(np.float32)


def even(seed: int, indices: NDArray[np.int64]) -> NDArray[np.float32]:
    """The numbers -4, -2, 2 and 4 of the bias and the residual."""
    bits = _mixed(_stream(seed, indices))
    sizes = 2 * (1 + (bits >> np.uint64(1) & np.uint64(1))).astype(np.float32)
    numbers: NDArray[np.float32] = np.where(bits & np.uint64(1), -sizes, sizes)
    return numbers


def specials(problem: Problem) -> tuple[Special, ...]:
    """Values that must reach one row or column and leave all other elements exact."""
    row, column = secrets.randbelow(problem.m), secrets.randbelow(problem.n)
    a, b = problem.operand_types
    if problem.operand_elements[0].integer:
        values = [Special(127.0, row=row), Special(-128.0, column=column)]
    else:
        values = [
            Special(math.nan, column=column),
            Special(DENORMAL[a], row=row),
            Special(-DENORMAL[b], column=column),
        ]
    if a in INFINITE:
        values.insert(0, Special(math.inf, row=row))
    elif b in INFINITE:
        values.insert(0, Special(math.inf, column=column))
    if problem.scale != "none":
        values += [Special(value, row=row, scale=True) for value in EXTREME_SCALES]
        values += [Special(value, column=column, scale=True) for value in EXTREME_SCALES]
    return tuple(values)


def tolerance(problem: Problem, special: Special | None = None) -> float:
    """The largest error of an element: 0, unless the epilogue rounds or an operand is denormal.

    A denormal number replaces a 1 or -1 and may count as 0: less than the 2 by which a missing term
    changes C. `slack` adds to it beside an extreme number or scale.
    """
    if special is not None and abs(special.value) in DENORMAL.values():
        return NEARLY
    if special is not None and not math.isfinite(special.value):
        return NEARLY
    if problem.gated or (problem.has_fp8_output and problem.activation in ROUNDED):
        return GATED_ROUNDED
    return ROUNDED.get(problem.activation, 0.0)


def slack(problem: Problem, special: Special | None) -> float:
    """The error allowed beside a special value, as a share of the exact value.

    With extreme numbers and scales C does not hold every result exactly: it is rounded, and an
    activation errs by a share of its argument. What a gate makes is never an integer.
    An fp8 C has to be rounded as its exact value is, unless it is of an activation.
    """
    if problem.has_fp8_output and not (problem.gated or problem.activation in ROUNDED):
        return JUST_ROUNDED
    if problem.gated or problem.has_fp8_output:
        return problem.output_element.roundoff + 2.0**-20
    if special is None or not (special.scale or problem.operand_elements[0].integer):
        return 0.0
    return problem.output_element.roundoff + 2.0**-20


def _stream(seed: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The states of SplitMix64 at `indices` of the stream `seed`."""
    states: NDArray[np.uint64] = np.uint64(seed) + indices.astype(np.uint64) * _GOLDEN
    return states


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64."""
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = bits ^ bits >> np.uint64(31)
    return mixed
