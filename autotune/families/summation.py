"""The order of summation of an element of C, which decides its bits and its error.

Errors are Frobenius norms over that of the product, of operands drawn from N(0, 1), as the
verification measures them. With u = 2^-24:

- fp32 additions in order err by `ROUNDING` u sqrt(n) after n terms, in any kernel
  (`autotune.measure.oracle.tolerance` derives it).
- Tensor cores truncate sums of tf32 products in each step, so that the error of a run grows with
  its length L: `TRUNCATION` u L, fitted.
- The parts of split operands hold 22 of 24 bits: `SPLITTING` u, fitted.
- fp8 sums keep 14 bits in tensor cores: `SHORT_RUN` up to 128 products, then `LONG_RUN` sqrt(L), in
  the simulation of `tolerance`.

Squares of errors add up. On 16,915 verified kernels (54 problems in `f32` and `tf32x3` on an H100)
the measured error is 0.93 to 1.07 of the predicted in 98 of 100. With `MARGIN` none of the 1,848
that failed is accepted, and none that passed within 2 % of the fastest time is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from autotune.device import Device
from autotune.families.shared.tiling import fill, tile_count
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div
from autotune.problem.problem import UNIT_ROUNDOFF, relative_bound


class Summation(NamedTuple):
    """The lengths of a configuration's sums.

    Attributes:
        length: terms of the one sum, added up in order in fp32, whose rounding errors are as large
            as those of all fp32 additions of an element together.
        run: products that tensor cores add up, truncating, before the sum is added in fp32; 0
            without tensor cores.
    """

    length: float
    run: float = 0.0


def sequential(_p: object, problem: Problem) -> Summation:
    """One sum of all products, in order."""
    return Summation(problem.k)


def in_order(*counts: float) -> float:
    """The length of sums of several levels, each of which adds up the results of the one before.

    A sum of n terms in order has the error variance of a random walk: proportional to n, relative
    to its own size. Levels add up their variances; a level of one term adds nothing.
    """
    return sum(count for count in counts if count > 1)


def split_length(k: int, splits: int, step: int) -> float:
    """The mean length of the parts of a K that is split in whole steps, weighted by their errors:
    parts of unequal lengths err like longer ones."""
    longest = ceil_div(ceil_div(k, step), splits) * step
    whole, rest = divmod(k, longest)
    return (whole * longest**2 + rest**2) / k


@dataclass(frozen=True)
class SummationOrder:
    """The order in which the products of an element of C are added up.

    Of two configurations of the same order, for problems that differ in M alone, each element has
    the same bits. The reverse does not hold: different orders may round to the same bits.

    A tree is a text. `1024` is a chain of instructions over 1024 of K, `+(4*1024)` four such chains
    added up in fp32 from zero, in the order of K.

    Attributes:
        instruction: the instruction that multiplies, with everything else that decides how it
            rounds: its precision, the operand that it takes as A, and where it reads this from.
        tree: how the results of the instructions are added up.
    """

    instruction: str
    tree: str

    def __str__(self) -> str:
        return f"{self.instruction} {self.tree}"


EXACT = SummationOrder("exact", "integers")
"""Every order of integers: their sums are never rounded."""


def unordered(_p: object, _problem: Problem) -> None:
    """No order: that of a family whose order depends on the alignment of its operands, or that no
    search tries."""


def from_zero(parts: Iterable[str]) -> str:
    """The tree of parts that are added up from zero, one after the other."""
    groups = [(part, len([*equal])) for part, equal in itertools.groupby(parts)]
    return f"+({','.join(f'{count}*{part}' if count > 1 else part for part, count in groups)})"


def chain(length: int, run: int = 0) -> str:
    """The tree of an accumulator over `length` of K, promoted after each `run` unless that is 0."""
    if not run:
        return str(length)
    whole, rest = divmod(length, run)
    return from_zero([str(run)] * whole + [str(rest)] * (rest > 0))


def sliced(tree: str, slices: int, piece: int) -> str:
    """The tree of slices that take turns at `piece` of K each and are added up in their order."""
    return tree if slices == 1 else f"{slices}/{piece}({tree})"


def split_evenly(iterations: int, splits: int) -> list[int]:
    """The k-iterations of each split, the first ones longer by one."""
    least, longer = divmod(iterations, splits)
    return [least + (split < longer) for split in range(splits)]


def split_by_longest(iterations: int, splits: int) -> list[int]:
    """The k-iterations of each split, all of the longest one's length but the last ones."""
    longest = ceil_div(iterations, splits)
    starts = [min(iterations, split * longest) for split in range(splits + 1)]
    return [end - start for start, end in itertools.pairwise(starts)]


ACCURACY = "accuracy"
"""The reason of the rule on the predicted error."""
ROUNDING, TRUNCATION, SPLITTING = 0.30, 0.1185, 1.6
SHORT_RUN, LONG_RUN = 1.3e-4, 2.1e-5
ROUNDED_OUTPUT = 0.42
"""Relative error of rounding C, in units of its largest rounding."""
MARGIN = 1.05
"""The prediction may be off by this factor."""

VENDOR_TILE = 128
"""Side of the tiles of C of cuBLAS's larger fp32 kernels."""
VENDOR_BLOCKS, SHORTEST_PART, SHORTEST_THIN_PART = 256, 64, 32
"""Blocks up to which cuBLAS splits K, and the terms of the shortest part of K where C has the area
of a tile or more. The last is for a C of at most `THIN` rows or columns."""
FULL_WAVES, FULL_SPLITS, FULL_SPLITS_OF_FEW, VENDOR_SPLITS = 0.95, 2, 3, 4
"""Fill of the waves from which it splits K into few parts, if at all, in problems whose rows start
at multiples of 16 bytes: two at most, or three between `FEW_WAVES` and `SEVERAL_WAVES`; the most
parts of others."""
FEW_WAVES, USUAL_PART, MANY_WAVES_PART = 2, 400, 300
"""The waves below which cuBLAS may split a long K into parts of `USUAL_PART` terms, unless the
waves are full. With more waves the parts have `MANY_WAVES_PART` terms or more: there is little to
gain, and the shortest recorded part has 360."""
SEVERAL_WAVES, LONG_PART = 4, 1400
"""The waves below which cuBLAS may split a very long K into parts of `LONG_PART` terms or more."""
THIN, DOT_PARTS, DOT_SUMS = 16, 256, 30
"""Rows or columns of C up to which it may compute dot products of operands that run along K: at
most `DOT_PARTS` threads add up a part of K each, and adding up their results counts as `DOT_SUMS`
terms."""
SCATTER = 3
"""Standard deviations by which an error may differ from the one predicted for its sums."""


class VendorErrors(NamedTuple):
    """Bounds on the relative error of the vendor's library."""

    least: float
    most: float


class ErrorLimit(NamedTuple):
    """The predicted relative error up to which configurations of a problem are taken.

    Attributes:
        error: the limit; infinite if nothing is refused.
        basis: what it rests on, as the end of a sentence about the vendor's library.
    """

    error: float
    basis: str

    def fault(self, summation: Summation, problem: Problem) -> str | None:
        """The reason to refuse a configuration that sums like this; None if there is none."""
        error = predicted_error(summation, problem)
        if error is None or error <= self.error:
            return None
        return f"relative error of about {error:.2g}; {self.error:.2g} at most, {self.basis}"


def predicted_error(summation: Summation, problem: Problem) -> float | None:
    """The predicted relative error; None for a precision in which that of rounding the operands or
    the result is always accepted, or whose sums are exact."""
    precision = problem.precision
    if precision.sums not in ("fp32", "promoted"):
        return None
    length, run = summation
    if precision.eight_bit:
        rounded = ROUNDED_OUTPUT * problem.output_element.roundoff
        return math.hypot(SHORT_RUN if run <= SCALE_BLOCK else LONG_RUN * math.sqrt(run), rounded)
    on_tensor_cores = (TRUNCATION * run, SPLITTING) if run else ()
    return UNIT_ROUNDOFF * math.hypot(ROUNDING * math.sqrt(length), *on_tensor_cores)


def vendor_errors(problem: Problem, device: Device) -> VendorErrors:
    """Bounds on the vendor's error in fp32 before it has run: how cuBLAS splits K is not known.

    Its errors on 220 recorded problems, which tell its splits, are between the bounds, except where
    K is under 64. Other precisions need none: their limits do not depend on it.
    """
    if problem.precision.vendor != "f32":
        return VendorErrors(0.0, 0.0)
    lengths = _least_length(problem, device), problem.k
    least, most = (ROUNDING * UNIT_ROUNDOFF * math.sqrt(length) for length in lengths)
    scatter = SCATTER * _scatter(problem)
    return VendorErrors(least * max(0.0, 1 - scatter), most * (1 + scatter))


def _scatter(problem: Problem) -> float:
    """The relative standard deviation of the error of sums in order, over draws of the operands.

    The squared error of a row of C is proportional to the mean of the partial sums' variances,
    sum_i (K - i) a_i^2 / sum_i a_i^2, whose relative variance is 2 / (3 K) for a_i from N(0, 1).
    Columns scatter alike; the error is the square root of a mean over rows and columns.
    """
    lines = 1 / (problem.batch * problem.m) + 1 / (problem.batch * problem.n)
    return math.sqrt(lines / (6 * problem.k))


def _least_length(problem: Problem, device: Device) -> float:
    """The length of the vendor's sums in fp32 if it splits K as often as it may."""
    k, area = problem.k, problem.batch * problem.m * problem.n / VENDOR_TILE**2
    tiles = tile_count(problem, VENDOR_TILE, VENDOR_TILE) * problem.batch
    waves, thin = tiles / device.sms, min(problem.m, problem.n) <= THIN
    full = waves >= 1 and fill(tiles, device.sms) >= FULL_WAVES
    full = full and all(size % 4 == 0 for size in (problem.m, problem.n, k))
    splits: float = VENDOR_SPLITS
    if full:
        splits = FULL_SPLITS_OF_FEW if FEW_WAVES <= waves < SEVERAL_WAVES else FULL_SPLITS
    if waves >= FEW_WAVES:
        splits = min(splits, max(1.0, k / MANY_WAVES_PART))
    elif not full:
        splits = max(splits, k / USUAL_PART)
    if waves < SEVERAL_WAVES:
        splits = max(splits, k / LONG_PART)
    splits = max(splits, VENDOR_BLOCKS / area)
    if area >= 1:
        splits = min(splits, max(1.0, k / (SHORTEST_THIN_PART if thin else SHORTEST_PART)))
    splits = min(splits, math.sqrt(k))
    length = in_order(k / splits, splits)
    return min(length, DOT_SUMS + k / DOT_PARTS) if problem.layout == "nt" and thin else length


def measured_limit(problem: Problem, vendor_error: float) -> ErrorLimit:
    """The limit where the vendor's error was measured."""
    return _limit(problem, vendor_error, 1 / MARGIN, f"whose own is {vendor_error:.2g}")


def promised_limit(problem: Problem, device: Device) -> ErrorLimit:
    """The limit that keeps the promised bound whatever the vendor's error is."""
    error = vendor_errors(problem, device).least
    return _limit(problem, error, 1 / MARGIN, f"whose own may be {error:.2g}")


def possible_limit(problem: Problem, device: Device) -> ErrorLimit:
    """The limit above which no configuration can keep the bound."""
    error = vendor_errors(problem, device).most
    return _limit(problem, error, MARGIN, f"whose own is {error:.2g} at most")


def _limit(problem: Problem, vendor_error: float, margin: float, basis: str) -> ErrorLimit:
    times = f"for {problem.precision.accuracy:g} times the vendor library's, {basis}"
    return ErrorLimit(margin * relative_bound(problem, vendor_error), times)
