"""The operands of a call, checked: the problem they pose and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.runtime import arrays
from autotune.runtime.arrays import MatrixMemory, Operand
from autotune.runtime.problems import result_shape
from autotune.runtime.scales import Scales, scale_memory

Addresses = tuple[int, int, int, int, int, int]
"""Addresses of A, B, C, the bias and the scales of A and B; 0 for those that are absent."""

OPERANDS = "A", "B", "out", "bias", "scale_a", "scale_b"

ABSENT = MatrixMemory(1, 0, 0)
"""The memory of an absent operand."""


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


class CheckedOperands(NamedTuple):
    """The problem that operands of one signature pose, and how they lie.

    Attributes:
        problem: the problem.
        ordinal: the device that holds the operands.
        memory: where the `OPERANDS` lie, relative to their addresses.
        leading: leading dimensions of A, B and C.
        strides: distances from one A, B and C of a batch to the next.
        alignment: the vectors that the operands allow.
        config: the configuration that runs them.
        vendor: whether the vendor's library was measured to be faster.
    """

    problem: Problem
    ordinal: int
    memory: tuple[MatrixMemory, ...]
    leading: tuple[int, int, int]
    strides: tuple[int, int, int]
    alignment: Alignment
    config: Config
    vendor: bool


def operand_memory(
    problem: Problem,
    matrices: tuple[Operand, Operand, Operand],
    bias: Operand | None,
    scales: Scales | None,
) -> tuple[MatrixMemory, ...]:
    """Where the `OPERANDS` of a problem lie, checked.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out = matrices
    ordinal = arrays.check(a)
    memory_a, memory_b = (
        arrays.memory_of(matrix, letter)[1]
        for matrix, letter in zip((a, b), problem.layout, strict=True)
    )
    memory_c = arrays.check_out(out, result_shape(a, b, problem), ordinal)
    memory_bias = ABSENT
    if bias is not None:
        memory_bias = arrays.check_bias(bias, problem.n, ordinal, out.dtype)
    of_scales = (ABSENT, ABSENT) if scales is None else scale_memory(scales, ordinal)
    return memory_a, memory_b, memory_c, memory_bias, *of_scales


def addresses_of(reads: Sequence[tuple[int, Any] | None]) -> Addresses:
    """The addresses of the operands, from what their frameworks read."""
    a, b, c, *rest = (0 if read is None else read[0] for read in reads)
    bias, scale_a, scale_b = rest
    return a, b, c, bias, scale_a, scale_b


def check_factors(problem: Problem, alpha: float, beta: float) -> None:
    """Refuses factors of a product in int32, which is an exact sum."""
    if problem.output_element.integer and (alpha, beta) != (1, 0):
        raise ArrayError(
            f"alpha is {alpha}, beta {beta}; a product in {problem.output_element.dtype} takes "
            "alpha=1 and beta=0: give another out"
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
    for name, address, operand in zip(OPERANDS, addresses, checked.memory, strict=True):
        if operand is memory or not operand.extent:
            continue
        if arrays.overlap(address, operand, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
