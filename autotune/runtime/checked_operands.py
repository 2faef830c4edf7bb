"""The operands of a call, checked: the problem they pose and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NamedTuple

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo, MatrixMemory
from autotune.runtime.batches import Launches, Offsets, launches_of
from autotune.runtime.executable import Steps
from autotune.runtime.scales import Scales, number_memory, scale_memory

Addresses = tuple[int, int, int, int, int, int, int, int, int]
"""Addresses of the `OPERANDS`; 0 for those that are absent."""

Arrays = tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any]
"""A, B, C, a bias, the scales of A and B, a residual, the scale of C and `amax`; None for those
that are absent."""

OPERANDS = "A", "B", "out", "bias", "scale_a", "scale_b", "residual", "scale_result", "amax"

OfResult = tuple[ArrayInfo | None, ArrayInfo | None]
"""The scale of an fp8 C, and what its largest size raises."""

ABSENT = MatrixMemory(1, 0, 0)
"""The memory of an absent operand."""

NOTHING = Config("nothing")
"""The configuration of calls that launch nothing."""


class Keywords(NamedTuple):
    """The arguments of a call that are no arrays, in the order of its key.

    Attributes:
        alpha: factor of the product.
        beta: factor of C.
        activation: the activation or None.
        compute: the precision or None.
        accumulate: how sums of fp8 are added up, or None.
        scale: the granularity of the scales or None.
        dependent: whether it is a programmatic dependent launch.
        cold: whether the operands are cold.
        vendor: whether the vendor's library may multiply.
        unbiased: whether there is no bias.
        unscaled: whether there are no scales.
        alone: whether there is no residual.
    """

    alpha: float
    beta: float
    activation: str | None
    compute: str | None
    accumulate: str | None
    scale: str | None
    dependent: bool
    cold: bool
    vendor: bool
    unbiased: bool
    unscaled: bool
    alone: bool


class QuantizedKeywords(NamedTuple):
    """The arguments of a call that are no arrays, as those of `Keywords`, where A is quantised on
    the way in."""

    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    compute: str | None = None
    accumulate: str | None = None
    scale: str | None = None
    dependent: bool = False
    cold: bool = False


class CheckedOperands(NamedTuple):
    """The problem that operands of one signature pose, and how they lie.

    Attributes:
        problem: the problem.
        ordinal: the device that holds the operands.
        memory: where the `OPERANDS` lie, relative to their addresses.
        leading: leading dimensions of A, B, C and the residual.
        strides: distances from one of each to the next of a batch.
        alignment: the vectors that the operands allow.
        config: the configuration that runs them.
        vendor: whether the vendor's library was measured to be faster, or has to run what no record
            serves.
        offsets: bytes from A, B and C of the first launch to those of each; there are several
            launches for some batches of several axes, and none for an empty result.
        sums: whether there is anything to sum; where K is 0, the problem's K is 1, for operands of
            zeros.
    """

    problem: Problem
    ordinal: int
    memory: tuple[MatrixMemory, ...]
    leading: Steps
    strides: Steps
    alignment: Alignment
    config: Config
    vendor: bool
    offsets: tuple[Offsets, ...] = ((0, 0, 0),)
    sums: bool = True


def checked_operands(
    problem: Problem,
    matrices: tuple[ArrayInfo, ArrayInfo, ArrayInfo],
    bias: ArrayInfo | None,
    scales: Scales | None,
    residual: ArrayInfo | None,
    of_result: OfResult,
    addresses: Addresses,
    choose: Callable[[Problem, int, Alignment, bool], tuple[Config, bool]],
) -> CheckedOperands:
    """The operands of a call, checked.

    Args:
        problem: the problem that they pose.
        matrices: A, B and C.
        bias: the bias, if there is one.
        scales: the scales of A and B, if there are any.
        residual: the residual, if there is one.
        of_result: the scale of C and `amax`, if there are any.
        addresses: of all of them.
        choose: returns the configuration for a problem on a device, and whether the vendor's
            library is to run it; it is told the alignment, and whether there is anything to sum.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out = matrices
    ordinal = max(map(arrays.check, (a, b)))
    launches = launches_of(a, b, out, gated=problem.gated)
    sums = not (a.empty or b.empty)
    memory = operand_memory(problem, launches, ordinal, bias, scales if sums else None)
    memory_r = ABSENT
    if residual is not None:
        memory_r = arrays.check_residual(residual, out, memory[2], ordinal)
    memory = *memory, memory_r, *result_memory(problem, of_result, ordinal)
    check_addresses(addresses, memory)
    (a_memory, b_memory, c_memory), stride_r = memory[:3], memory_r.stride
    leading = a_memory.leading, b_memory.leading, c_memory.leading, memory_r.leading
    strides = a_memory.stride, b_memory.stride, c_memory.stride, stride_r
    if out.empty:
        return CheckedOperands(
            *(problem, ordinal, memory, leading, strides, Alignment(1, 1, 1), NOTHING, False, ())
        )
    if not sums:
        ordinal = arrays.check(out, types=arrays.OUTPUT_TYPES)
        leading = *problem.leading_dimensions[:2], *leading[2:]
    steps = *launches.steps(strides[:3]), stride_r
    alignment = aligned(problem, leading, steps, addresses)
    shape = problem, ordinal, memory, leading, strides, alignment
    offsets = tuple(launches.offsets(problems.sizes(problem)))
    return CheckedOperands(*shape, *choose(problem, ordinal, alignment, sums), offsets, sums)


def operand_memory(
    problem: Problem,
    launches: Launches,
    ordinal: int,
    bias: ArrayInfo | None,
    scales: Scales | None,
) -> tuple[MatrixMemory, ...]:
    """Where the first six `OPERANDS` of a problem lie, checked.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out, _ = launches
    assert out is not None
    memory_a, memory_b = (
        arrays.memory_of(matrix, letter)[1]
        for matrix, letter in zip((a, b), problem.layout, strict=True)
    )
    shape = problems.result_shape(a, b, problem.epilogue)
    memory_c = arrays.check_out(out, shape, ordinal)
    matrices = launches.memory((memory_a, memory_b, memory_c))
    arrays.check_disjoint(out, matrices[2], shape)
    memory_bias = ABSENT
    if bias is not None:
        memory_bias = arrays.check_bias(bias, shape[-1], ordinal, problem.bias_element.dtype)
    of_scales = (ABSENT, ABSENT) if scales is None else scale_memory(scales, ordinal)
    return *matrices, memory_bias, *of_scales


def result_memory(
    problem: Problem, of_result: OfResult, ordinal: int
) -> tuple[MatrixMemory, MatrixMemory]:
    """Where the scale of C and `amax` lie, checked.

    Raises:
        ArrayError: if they are no numbers in fp32 on the device, or C is not fp8.
    """
    scale, amax = (
        ABSENT if operand is None else number_memory(operand, ordinal) for operand in of_result
    )
    if of_result != (None, None) and not problem.has_fp8_output:
        raise ArrayError(
            f"scale_result and amax are for a result in fp8; this one is "
            f"{problem.output_element.dtype}"
        )
    return scale, amax


def aligned(problem: Problem, leading: Steps, strides: Steps, addresses: Addresses) -> Alignment:
    """The vectors that operands allow; C and the residual share one width.

    Args:
        problem: the problem.
        leading: leading dimensions of A, B, C and the residual.
        strides: distances from one of each to the next of a batch.
        addresses: addresses of the `OPERANDS`.
    """
    return Alignment.of(
        (leading[0], leading[1], gcd(*leading[2:])),
        # What divides both addresses divides the bits that are set in either.
        (addresses[0], addresses[1], addresses[2] | addresses[6]),
        problems.sizes(problem),
        (strides[0], strides[1], gcd(*strides[2:])),
    )


def addresses_of(reads: Sequence[tuple[int, Any] | None]) -> Addresses:
    """The addresses of the operands, from what their frameworks read."""
    a, b, c, *rest = (0 if read is None else read[0] for read in reads)
    bias, scale_a, scale_b, residual, scale_result, amax = rest
    return a, b, c, bias, scale_a, scale_b, residual, scale_result, amax


def check_factors(problem: Problem, alpha: float, beta: float) -> None:
    """Refuses factors of a product in int32, which is an exact sum, and of gates."""
    if problem.has_factors or (alpha, beta) == (1, 0):
        return
    if problem.gated:
        product, otherwise = f"{problem.epilogue}", "leave them out"
    else:
        product, otherwise = f"a product in {problem.output_element.dtype}", "give another out"
    raise ArrayError(
        f"alpha is {alpha}, beta {beta}; {product} takes alpha=1 and beta=0: {otherwise}"
    )


def check_addresses(addresses: Addresses, memory: Sequence[MatrixMemory]) -> None:
    """Refuses operands that do not start at a multiple of their element size."""
    for name, address, operand in zip(OPERANDS, addresses, memory, strict=True):
        if address % operand.element_bytes:
            raise ArrayError(
                f"{name} is at {address:#x}, no multiple of its {operand.element_bytes}-byte "
                "elements: copy it"
            )


def refuse_overlap(checked: CheckedOperands, addresses: Addresses) -> None:
    """Refuses an output that shares elements with another operand."""
    out, memory = addresses[2], checked.memory[2]
    if not memory.extent:
        return
    for name, address, operand in zip(OPERANDS, addresses, checked.memory, strict=True):
        if operand is memory or not operand.extent:
            continue
        if arrays.overlap(address, operand, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
