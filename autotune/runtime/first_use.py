"""The first-use check: whether a loaded kernel computes a product of small integers exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import VerificationError
from autotune.families.plan import Alignment
from autotune.measure import exact, oracle
from autotune.measure.exact import Draw
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK, Problem
from autotune.problem.call import BY_NAME, MATRICES, Call
from autotune.problem.integers import ceil_div, round_up
from autotune.runtime.launcher import Executable, Gpu

CHUNK = 2**22
"""Elements that are drawn at a time, which takes some 200 MB of host memory."""

UNWRITTEN = 77
"""Stands for NaN among integers."""

STREAM = 0
"""The legacy default stream, which a copy to the host waits for."""

SCALINGS = ((exact.ALPHA, -1.0), (exact.ALPHA, 0.0))
"""Alpha and beta: with C as an input, and with a C of NaN that must not be read."""

PLAIN_SCALINGS = ((1.0, 0.0),)
"""Alpha and beta of problems that have no others."""


def check(gpu: Gpu, executable: Executable, problem: Problem, alignment: Alignment) -> None:
    """Runs an executable on integers, with and without C as an input.

    Host time and memory grow with the operands: some seconds for 4096 x 4096 x 4096.

    Raises:
        VerificationError: if an element is not exactly right.
        RunnerError: if memory is short, or the driver refuses a launch.
    """
    draw = Draw.of(problem)
    widths = (alignment.a, alignment.b, alignment.c)
    lda, ldb, ldc = map(round_up, problem.leading_dimensions, widths)
    a, b = _operand(problem, 0, draw, lda), _operand(problem, 1, draw, ldb)
    bias = exact.even(draw.bias, np.arange(problem.n))
    sizes = problem.batch, problem.m, problem.width
    before = -exact.raised(draw.c, np.arange(math.prod(sizes))).reshape(sizes)
    added = exact.even(draw.residual, np.arange(before.size)).reshape(sizes)
    scales = _scales(problem, draw)
    for alpha, beta in SCALINGS if problem.has_factors else PLAIN_SCALINGS:
        old = _with_gaps(before if beta else np.full_like(before, np.nan), ldc)
        types = problem.output_type, problem.bias_element.name, problem.output_type
        filled = old, bias, _with_gaps(added, ldc)
        stored = (_stored(values, type) for values, type in zip(filled, types, strict=True))
        inputs = a, b, *stored, *(values for values, _ in scales)
        result = _run(gpu, executable, problem, inputs, (lda, ldb, ldc), (alpha, beta))
        factors = [factor for _, factor in scales]
        wanted = _product(problem, draw, before, bias, factors, (alpha, beta))
        wanted += added if problem.has_residual else 0
        wrong = ~(np.abs(result[..., : problem.width] - wanted) <= _tolerance(problem, wanted))
        if count := int(np.count_nonzero(wrong)):
            raise VerificationError(
                f"{executable.plan.config} computes {count} of {wrong.size} elements of {problem} "
                f"wrong on {gpu.device.name}; `autotune tune {problem}` finds another kernel"
            )


def _run(
    gpu: Gpu,
    executable: Executable,
    problem: Problem,
    inputs: Sequence[NDArray[Any]],
    leading: tuple[int, int, int],
    scaling: tuple[float, float],
) -> NDArray[np.float64]:
    """C after a run, with its gaps."""
    driver = gpu.driver
    with driver.entered(gpu.ordinal), ExitStack() as stack:
        addresses = []
        for array in inputs:
            addresses.append(driver.allocate(array.nbytes))
            stack.callback(driver.free, addresses[-1])
            driver.upload(addresses[-1], array)
        names = "a", "b", "c", "bias", "residual", "scale_a", "scale_b"
        present = {
            name: address
            for name, address in zip(names, addresses, strict=True)
            if BY_NAME[name].present(problem)
        }
        stored = {row.name: (leading[row.place], inputs[row.place]) for row in MATRICES}
        call = Call(
            present,
            {name: pitch for name, (pitch, _) in stored.items()},
            {
                name: array[0].size if problem.batch > 1 else 0
                for name, (_, array) in stored.items()
            },
            *scaling,
        )
        bound = executable.bind(call)
        bound.enqueue(STREAM)
        result = np.empty_like(inputs[2])
        driver.download(result, present["c"])
    return _values(result, problem.output_type)


def _operand(problem: Problem, side: int, draw: Draw, leading: int) -> NDArray[Any]:
    """A (side 0) or B (side 1) as it is stored, with gaps of NaN."""
    count = problem.n if side else problem.m
    k_down = problem.layout[side] == ("n" if side else "t")
    rows, columns = (problem.k, count) if k_down else (count, problem.k)
    shape = problem.batch, rows, leading
    stored = _stored(np.full(shape, np.nan, np.float32), problem.operand_types[side])
    for matrix, numbers in _chunks(problem.batch, count, problem.k):
        seed = draw.b if side else draw.a
        factors = exact.factors(side, matrix * count + numbers, problem.k, seed, draw.pairing)
        bits = _stored(factors, problem.operand_types[side])
        if k_down:
            stored[matrix, :, numbers[0] : numbers[-1] + 1] = bits.T
        else:
            stored[matrix, numbers[0] : numbers[-1] + 1, :columns] = bits
    return stored


def _chunks(batch: int, count: int, k: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each matrix with the numbers of some of its rows, `CHUNK` elements at a time."""
    step = max(1, CHUNK // k)
    for matrix in range(batch):
        for first in range(0, count, step):
            yield matrix, np.arange(first, min(count, first + step))


def _product(
    problem: Problem,
    draw: Draw,
    before: NDArray[np.float32],
    bias: NDArray[np.float32],
    factors: Sequence[NDArray[np.float32]],
    scaling: tuple[float, float],
) -> NDArray[np.float64]:
    """The exact result, from the places of K that have no partner."""
    pairing, batch = draw.pairing, problem.batch
    left, right = (
        factors[side][..., None]
        * exact.unpaired(side, np.arange(batch * size), seed, pairing).reshape(batch, size, -1)
        for side, (size, seed) in enumerate(((problem.m, draw.a), (problem.n, draw.b)))
    )
    rows = replace(problem, layout="nt")
    alpha, beta = scaling
    return oracle.product(rows, left, right, before, bias, alpha=alpha, beta=beta)


def _tolerance(problem: Problem, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest error of each element. A curved activation of an integer is rounded to the type
    of C, and so are integers to fp8."""
    curved = problem.gated or problem.activation in exact.ROUNDED or problem.has_fp8_output
    rounded: NDArray[np.float64] = np.abs(wanted) * (curved * problem.output_element.roundoff)
    return exact.tolerance(problem) + rounded


def _scales(problem: Problem, draw: Draw) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """The scales of A and of B, and the factor by which they multiply each row of A and column of
    B, of shape (batch, m) or (batch, n).

    They are powers of 2, some of them not 1, so that no kernel passes that ignores them. Along K
    those of a block of A and of B make up for each other, so that partners still cancel.
    """
    sides = []
    blocks = ceil_div(problem.k, SCALE_BLOCK)
    along = 2 * _halves(draw.c, (blocks,))
    for side, (size, seed) in enumerate(((problem.m, draw.a), (problem.n, draw.b))):
        if problem.scale in ("none", "tensor"):
            factor = np.full((problem.batch, size), 0.5 if problem.scale == "tensor" else 1)
            scales = factor[0, :1]
        elif problem.scale == "row":
            factor = scales = _halves(seed, (problem.batch, size))
        elif side == 0:
            factor = _halves(seed, (problem.batch, size))
            scales = factor[:, None, :] * along[:, None]
        else:
            columns = ceil_div(size, SCALE_BLOCK)
            of_blocks = _halves(seed, (problem.batch, columns))
            factor = np.repeat(of_blocks, SCALE_BLOCK, axis=1)[:, :size]
            scales = of_blocks[..., None] / along
        sides.append((np.ascontiguousarray(scales, np.float32), factor.astype(np.float32)))
    return sides


def _halves(seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """1 or 0.5 at random; along the last axis 0.5 first, then 1."""
    halves = 0.5 ** np.random.default_rng(seed).integers(0, 2, shape)
    halves[..., 0] = 0.5
    halves[..., 1:2] = 1.0
    return np.asarray(halves)


def _with_gaps(matrices: NDArray[np.float32], leading: int) -> NDArray[np.float32]:
    batch, rows, columns = matrices.shape
    padded = np.full((batch, rows, leading), np.nan, np.float32)
    padded[..., :columns] = matrices
    return padded


def _stored(values: NDArray[np.float32], type: str) -> NDArray[Any]:
    """Integers and NaN as an element type; bfloat16 and fp8 as their bits."""
    element = ELEMENT_TYPES[type]
    if element.integer:
        return np.nan_to_num(values, nan=UNWRITTEN).astype(
            np.int8 if element.bytes == 1 else np.int32
        )
    if element.bytes == 1:
        # The positive codes ascend, and NaN comes after them.
        codes = np.searchsorted(_numbers_of_fp8(element.mantissa_bits)[:0x7F], np.abs(values))
        return (codes | np.where(values < 0, 0x80, 0)).astype(np.uint8)
    if type == "f16":
        return values.astype(np.float16)
    if type == "bf16":
        bits: NDArray[np.uint16] = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits
    return values


def _values(stored: NDArray[Any], type: str) -> NDArray[np.float64]:
    if type == "bf16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    if type in ("e4m3", "e5m2"):
        numbers: NDArray[np.float64] = _numbers_of_fp8(ELEMENT_TYPES[type].mantissa_bits)[stored]
        return numbers
    return stored.astype(np.float64)


@lru_cache(maxsize=2)
def _numbers_of_fp8(mantissa_bits: int) -> NDArray[np.float64]:
    """The number of each of the 256 codes of a format of 8 bits: 0x7F is the only NaN."""
    codes = np.arange(256)
    size = codes & 0x7F
    exponent, fraction = size >> mantissa_bits, size % (1 << mantissa_bits)
    least = 2 - (1 << (6 - mantissa_bits)) - mantissa_bits
    whole = np.where(exponent == 0, fraction, fraction + (1 << mantissa_bits))
    values = np.ldexp(whole.astype(np.float64), least + np.maximum(exponent, 1) - 1)
    values[size == 0x7F] = np.nan
    signed: NDArray[np.float64] = np.where(codes & 0x80, -values, values)
    return signed
