"""What an operand must look like: its shape, type and strides against the kernels' rules."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ArrayError
from autotune.problem import Problem

_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Operand:
    """An array as any framework can describe it, without its address.

    Attributes:
        name: what messages call it: `A`, `B` or `out`.
        shape: its sizes.
        strides: distances between neighbours along each axis, in elements.
        dtype: the element type's name, such as `float32`.
        ordinal: the CUDA device that holds it; None if it is not on one.
        read_only: whether it must not be written.
        recorded: whether its framework would have to differentiate through the product.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    ordinal: int | None
    read_only: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class Window:
    """The memory of an operand: `rows` of `columns` elements, `leading` elements apart."""

    rows: int
    columns: int
    leading: int

    @property
    def extent(self) -> int:
        """Bytes from its first element to the end of its last."""
        return ((self.rows - 1) * self.leading + self.columns) * _ELEMENT_BYTES


def check(operand: Operand) -> int:
    """The device that holds an operand which the kernels could take, whatever its strides.

    Raises:
        ArrayError: for an array that is empty, on the CPU, of another type than fp32 or not of
            2 dimensions.
    """
    name = operand.name
    if 0 in operand.shape:
        raise ArrayError(f"{name} is empty {operand.shape}; every size must be at least 1")
    if operand.ordinal is None:
        raise ArrayError(f"{name} is on the CPU; move it to a CUDA device")
    if operand.dtype != "float32":
        raise ArrayError(f"{name} is {operand.dtype}; the kernels take float32: convert it")
    if len(operand.shape) != 2:
        raise ArrayError(
            f"{name} has {len(operand.shape)} dimensions {operand.shape}; give a matrix"
        )
    if operand.recorded:
        raise ArrayError(
            f"{name} requires a gradient, which the product does not record; "
            "give .detach() or work under torch.no_grad()"
        )
    return operand.ordinal


def window(operand: Operand, layout: str | None = None) -> tuple[str, Window]:
    """How an operand lies in memory: `n`, row by row, or `t`, column by column.

    An axis of size 1 has no stride that matters. Where both are possible, `layout` decides,
    and `n` if it is None.

    Raises:
        ArrayError: if its strides are neither, or not as `layout` asks.
    """
    (rows, columns), (row_stride, column_stride) = operand.shape, operand.strides
    stored = {
        "n": _window(rows, columns, row_stride, column_stride),
        "t": _window(columns, rows, column_stride, row_stride),
    }
    for letter in layout or "nt":
        found = stored[letter]
        if found is not None:
            return letter, found
    wanted = {"n": "row-major", "t": "the transpose of a row-major matrix"}
    raise ArrayError(
        f"{operand.name} of shape {operand.shape} has strides {operand.strides}; it must be "
        f"{wanted[layout] if layout else 'row-major or transposed'}: copy it with .contiguous()"
    )


def problem_of(a: Operand, b: Operand, layout: str | None = None, compute: str = "f32") -> Problem:
    """The problem that two operands pose; with `layout` they must lie as it says.

    Raises:
        ArrayError: if they are not matrices in fp32 on one device that fit each other.
    """
    homes = check(a), check(b)
    if homes[0] != homes[1]:
        raise ArrayError(f"A is on CUDA device {homes[0]}, B on {homes[1]}; move one of them")
    if a.shape[1] != b.shape[0]:
        raise ArrayError(
            f"A {a.shape} times B {b.shape}: the inner sizes {a.shape[1]} and {b.shape[0]} differ"
        )
    letters = layout or (None, None)
    stored = "".join(window(one, letter)[0] for one, letter in zip((a, b), letters, strict=True))
    return Problem(a.shape[0], b.shape[1], a.shape[1], compute, stored)


def check_out(out: Operand, problem: Problem, ordinal: int) -> Window:
    """The memory of an output that a problem on a device can be written to.

    Raises:
        ArrayError: if it is not a writable row-major fp32 matrix of the right shape there.
    """
    home = check(out)
    if home != ordinal:
        raise ArrayError(f"A is on CUDA device {ordinal}, out on {home}; move one of them")
    if out.shape != (problem.m, problem.n):
        raise ArrayError(f"out is {out.shape}; the product is {(problem.m, problem.n)}")
    if out.read_only:
        raise ArrayError("out is read-only; give a writable array")
    return window(out, "n")[1]


def overlap(address: int, memory: Window, other: int, other_memory: Window) -> bool:
    """Whether two operands share an element.

    Column ranges of one matrix interleave without sharing any; windows with different leading
    dimensions count as shared as soon as their extents do.
    """
    if other < address:
        address, memory, other, other_memory = other, other_memory, address, memory
    if other >= address + memory.extent:
        return False
    if memory.leading != other_memory.leading:
        return True
    column = (other - address) // _ELEMENT_BYTES % memory.leading
    return column < memory.columns or column + other_memory.columns > memory.leading


def _window(rows: int, columns: int, row_stride: int, column_stride: int) -> Window | None:
    """Rows of neighbouring elements that do not overlap, if the strides describe such."""
    leading = row_stride if rows > 1 else columns
    if (column_stride == 1 or columns == 1) and columns <= leading:
        return Window(rows, columns, leading)
    return None
