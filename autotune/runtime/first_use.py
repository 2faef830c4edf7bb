"""The first-use check: whether a loaded kernel computes a product of small integers exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import VerificationError
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.problem.integers import round_up
from autotune.runtime.executable import Executable, Gpu
from autotune.verification import exact, oracle
from autotune.verification.exact import Draw

CHUNK = 2**22
"""Elements that are drawn at a time, which takes some 200 MB of host memory."""

STREAM = 0
"""The legacy default stream, which a copy to the host waits for."""

SCALINGS = ((exact.ALPHA, -1.0), (exact.ALPHA, 0.0))
"""Alpha and beta: with C as an input, and with a C of NaN that must not be read."""


def check(gpu: Gpu, executable: Executable, problem: Problem, alignment: Alignment) -> None:
    """Runs an executable on integers, with and without C as an input.

    Host time and memory grow with the operands: some seconds for 4096 x 4096 x 4096.

    Raises:
        VerificationError: if an element is not exactly right.
        RunnerError: if memory is short, or the driver refuses a launch.
    """
    draw = Draw.of(problem.k)
    widths = (alignment.a, alignment.b, alignment.c)
    lda, ldb, ldc = map(round_up, problem.leading_dimensions, widths)
    a, b = _operand(problem, 0, draw, lda), _operand(problem, 1, draw, ldb)
    bias = exact.even(draw.bias, np.arange(problem.n))
    sizes = problem.batch, problem.m, problem.n
    before = -exact.raised(draw.c, np.arange(problem.batch * problem.m * problem.n)).reshape(sizes)
    for alpha, beta in SCALINGS:
        old = _with_gaps(before if beta else np.full_like(before, np.nan), ldc)
        inputs = a, b, _stored(old, problem.output_type), _stored(bias, problem.output_type)
        result = _run(gpu, executable, problem, inputs, (lda, ldb, ldc), (alpha, beta))
        wanted = _product(problem, draw, before, bias, (alpha, beta))
        wrong = ~(np.abs(result[..., : problem.n] - wanted) <= exact.tolerance(problem))
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
    entered = driver.context_on(gpu.ordinal) is None
    with ExitStack() as stack:
        stack.enter_context(driver.entered(gpu.ordinal) if entered else nullcontext())
        addresses = []
        for array in inputs:
            addresses.append(driver.allocate(array.nbytes))
            stack.callback(driver.free, addresses[-1])
            driver.upload(addresses[-1], array)
        a, b, c, bias = addresses
        steps = [array[0].size if problem.batch > 1 else 0 for array in inputs[:3]]
        strides = steps[0], steps[1], steps[2]
        pointers = a, b, c, bias if problem.has_bias else 0
        bound = executable.bind(pointers, leading, strides, *scaling)
        bound.enqueue(STREAM)
        result = np.empty_like(inputs[2])
        driver.download(result, c)
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
    scaling: tuple[float, float],
) -> NDArray[np.float64]:
    """The exact result, from the places of K that have no partner."""
    pairing, batch = draw.pairing, problem.batch
    left, right = (
        exact.unpaired(side, np.arange(batch * size), seed, pairing).reshape(batch, size, -1)
        for side, (size, seed) in enumerate(((problem.m, draw.a), (problem.n, draw.b)))
    )
    rows = replace(problem, layout="nt")
    alpha, beta = scaling
    return oracle.product(rows, left, right, before, bias, alpha=alpha, beta=beta)


def _with_gaps(matrices: NDArray[np.float32], leading: int) -> NDArray[np.float32]:
    batch, rows, columns = matrices.shape
    padded = np.full((batch, rows, leading), np.nan, np.float32)
    padded[..., :columns] = matrices
    return padded


def _stored(values: NDArray[np.float32], type: str) -> NDArray[Any]:
    """Integers and NaN as an element type; bfloat16 as its bits."""
    if type == "f16":
        return values.astype(np.float16)
    if type == "bf16":
        bits: NDArray[np.uint16] = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits
    return values


def _values(stored: NDArray[Any], type: str) -> NDArray[np.float64]:
    if type == "bf16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float64)
