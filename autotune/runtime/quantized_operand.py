"""The A of a product that is quantised on the way in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from autotune.errors import ArrayError
from autotune.families.plan import VECTOR_BYTES
from autotune.problem import COMPUTES, ELEMENT_TYPES, PRECISIONS, ElementType, Problem
from autotune.problem.integers import round_up
from autotune.problem.words import canonical
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.frameworks.base import dense
from autotune.runtime.quantizing import SOURCES, check_source, result_shapes
from autotune.runtime.scales import Scales, granularity_of


class Posed(NamedTuple):
    """The problem that operands pose: A as it comes and as it is multiplied, B, C, which may not
    be allocated yet, and the scales of A and B."""

    problem: Problem
    source: ArrayInfo
    a: ArrayInfo
    b: ArrayInfo
    out: ArrayInfo | None
    scales: Scales


def posed(
    a: ArrayInfo,
    b: ArrayInfo,
    out: ArrayInfo | None,
    scale_b: ArrayInfo,
    *,
    compute: str | None,
    epilogue: str = "none",
    output: str | None = None,
    scale: str | None = None,
    accumulate: str = "exact",
) -> Posed:
    """The problem of operands whose A is quantised on the way in.

    Raises:
        ArrayError: if they do not fit each other, or A cannot be quantised.
        ProblemError: for an unknown compute, output or scale.
    """
    quantised = quantised_operand(a, target_beside(a, b, compute))
    problem = problems.problem_of(
        *(quantised, b, out),
        compute=compute,
        epilogue=epilogue,
        output=output,
        accumulate=accumulate,
    )
    if a.empty or b.empty:
        return Posed(problem, a, quantised, b, out, (scale_b, scale_b))
    word = granularity_of(problem, scale_b, scale)
    if len(a.shape) == 2 and problem.batch > 1 and word != "tensor":
        raise ArrayError(
            f"A is a matrix {a.shape}, B a batch {b.shape}; with scales a {word}, an A that is "
            "quantised takes the batch of B"
        )
    shape = result_shapes(a, word)[1]
    scale_a = ArrayInfo("scale_a", shape, dense(shape), "float32", a.ordinal)
    return Posed(replace(problem, scale=word), a, quantised, b, out, (scale_a, scale_b))


def target_beside(a: ArrayInfo, b: ArrayInfo, compute: str | None) -> ElementType:
    """The type that A is quantised to.

    Raises:
        ArrayError: if it is not to be quantised.
        ProblemError: for an unknown compute.
    """
    if a.dtype not in SOURCES:
        raise ArrayError("scale_a and scale_b belong together; give both or none")
    types = {row.dtype: row for row in ELEMENT_TYPES.values()}
    row = None if compute is None else PRECISIONS[canonical("compute", compute, COMPUTES)]
    if row is None or not row.eight_bit:
        raise ArrayError(
            f"A is {a.dtype} and compute is {compute}; give f8, f8e5 or i8 to quantise A, or its "
            "scale_a"
        )
    legal = [element.dtype for element in (row.operand, row.second) if element is not None]
    if b.dtype not in legal:
        raise ArrayError(
            f"B is {b.dtype}; {row.name} quantises A alone: give B in {arrays.listed(legal, 'or')}"
        )
    return row.second if row.second and types[b.dtype] is row.operand else row.operand


def refuse_additions(names: Collection[str]) -> None:
    """Refuses the operands that a product cannot take while it quantises its A.

    Args:
        names: the keywords of those that are given.

    Raises:
        ArrayError: if there are any.
    """
    for name in names:
        raise ArrayError(f"an A that is quantised on the way in takes no {name}; give scale_a")


def quantised_operand(a: ArrayInfo, target: ElementType) -> ArrayInfo:
    """A as it will lie in memory of the stream, checked: its rows start at whole vectors.

    Raises:
        ArrayError: for an A that cannot be quantised.
    """
    if len(a.shape) not in (2, 3):
        raise ArrayError(
            f"A has {len(a.shape)} dimensions {a.shape}; to be quantised it takes 2 or 3: "
            "reshape it"
        )
    if not a.empty:
        check_source(a)
    *outer, rows, columns = a.shape
    pitch = round_up(max(1, columns), VECTOR_BYTES)
    strides = (*(rows * pitch for _ in outer), pitch, 1)
    return replace(a, strides=strides, dtype=target.dtype)
