"""The A of a product that is quantised on the way in."""

from __future__ import annotations

from dataclasses import replace

from autotune.errors import ArrayError
from autotune.families.plan import VECTOR_BYTES
from autotune.problem import COMPUTES, ELEMENT_TYPES, PRECISIONS, ElementType
from autotune.problem.aliases import canonical
from autotune.problem.integers import round_up
from autotune.runtime import arrays
from autotune.runtime.arrays import Operand
from autotune.runtime.quantizing import SOURCES, check_source


def target_beside(a: Operand, b: Operand, compute: str | None) -> ElementType:
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


def quantised_operand(a: Operand, target: ElementType) -> Operand:
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
