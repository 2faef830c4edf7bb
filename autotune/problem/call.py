"""The operands of a GEMM, calls of it, and calls of user kernels.

`OPERANDS` is the only list of operands: launch plans, the words of the C library, the checks of
arrays and their messages, the key of a bound call and the struct of the kernels follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from sys import byteorder
from typing import Any, Literal, NamedTuple, TypedDict

from autotune.problem.precision import ELEMENT_TYPES, ElementType
from autotune.problem.problem import Problem

Kind = Literal["matrix", "vector", "scales", "number"]
"""A matrix has a pitch and, in a batch, a stride; a vector has one element a column of B; scales
have the shapes of `Problem.scale_shapes`; a number is alone."""

WordType = Literal["pointer", "i64", "f32", "i32"]

A_MATRIX, B_MATRIX, C_MATRIX = range(3)
"""Places in `Problem.leading_dimensions`, `stored_rows` and `strides`."""


@dataclass(frozen=True)
class Operand:
    """An array that a GEMM reads or writes.

    Attributes:
        name: in launch plans, in kernels and in the C library.
        kind: storage of the operand.
        element: its element type in a problem.
        present: whether a problem has it.
        optional: whether a call may leave it out although the problem has it.
        place: the matrix, A, B or C, that has the shape; for scales, the matrix that they scale.
        argument: its keyword in Python, and its name in messages; `name` by default.
        field: its field in `gemm.h`; `name` by default.
        letter: letter of a matrix: `ld` and `stride_` with it name its pitch and its stride.
    """

    name: str
    kind: Kind
    element: Callable[[Problem], ElementType] = lambda _: ELEMENT_TYPES["f32"]
    present: Callable[[Problem], bool] = lambda _: True
    optional: bool = False
    place: int = C_MATRIX
    argument: str = ""
    field: str = ""
    letter: str = ""

    def __post_init__(self) -> None:
        for name in ("argument", "field"):
            object.__setattr__(self, name, getattr(self, name) or self.name)

    @property
    def pitch(self) -> str:
        """The word for the elements from one row to the next, such as `lda`."""
        return f"ld{self.letter}"

    @property
    def stride(self) -> str:
        """The word for the elements from one matrix of a batch to the next, such as `stride_a`."""
        return f"stride_{self.letter}"

    def count(self, problem: Problem) -> int:
        """Elements of a vector, of scales or of a number in a problem that has it."""
        if self.kind == "vector":
            return problem.n
        shapes = problem.scale_shapes if self.kind == "scales" else None
        return prod(shapes[self.place]) if shapes else 1


OPERANDS = (
    Operand(
        "a", "matrix", lambda p: p.operand_elements[0], place=A_MATRIX, argument="A", letter="a"
    ),
    Operand(
        "b", "matrix", lambda p: p.operand_elements[1], place=B_MATRIX, argument="B", letter="b"
    ),
    Operand("c", "matrix", lambda p: p.output_element, argument="out", letter="c"),
    Operand("bias", "vector", lambda p: p.bias_element, lambda p: p.has_bias),
    Operand("scale_a", "scales", present=lambda p: p.scale != "none", place=A_MATRIX),
    Operand("scale_b", "scales", present=lambda p: p.scale != "none", place=B_MATRIX),
    Operand("residual", "matrix", lambda p: p.output_element, lambda p: p.has_residual, letter="r"),
    Operand(
        "scale_c",
        "number",
        present=lambda p: p.has_fp8_output,
        optional=True,
        argument="scale_result",
        field="scale_result",
    ),
    Operand("amax", "number", present=lambda p: p.has_fp8_output, optional=True),
)

BY_NAME: Mapping[str, Operand] = {operand.name: operand for operand in OPERANDS}

MATRICES = tuple(operand for operand in OPERANDS if operand.kind == "matrix")

FURTHER = OPERANDS[3:]
"""The operands that only some problems have: all but A, B and C."""

WORDS: Mapping[str, WordType] = {
    **{operand.name: "pointer" for operand in OPERANDS},
    **{matrix.pitch: "i64" for matrix in MATRICES},
    **{matrix.stride: "i64" for matrix in MATRICES},
    **{"alpha": "f32", "beta": "f32", "b_ready": "i32"},
    **{"workspace": "pointer", "counters": "pointer"},
}
"""The words that a launch plan may give as the value of an argument, with their types in C: the
operands' addresses, the matrices' pitches and strides, the factors, whether B was there before the
launch, and the scratch memory."""

_ABSENT: Mapping[str, float] = dict.fromkeys(WORDS, 0)


class FurtherArrays(TypedDict, total=False):
    """The `FURTHER` operands as keywords of Python: arrays, or None for an absent operand.

    Attributes:
        bias: (n,), added to every row, of the type of `out`; bfloat16 for a result in fp8.
        scale_a: the scales of an fp8 or int8 A.
        scale_b: the scales of an fp8 or int8 B; without `scale_a` they quantise A.
        residual: a matrix like `out` that is added, for operands of 16 and 8 bits without an
            activation, of the type of `out`, row-major, without overlap with it.
        scale_result: one fp32 number that a result in fp8 is multiplied by, 1 by default.
        amax: one fp32 number that is raised to the largest size of a result in fp8 before its
            scale, where NaN does not count. Zero it before a call to get the largest size of
            that call alone.
    """

    bias: Any
    scale_a: Any
    scale_b: Any
    residual: Any
    scale_result: Any
    amax: Any


class LaunchWords(TypedDict, total=False):
    """The keywords of a launch at addresses: the addresses of the `FURTHER` operands, and the
    pitches and strides of the `MATRICES` in elements.

    None as a pitch or stride, the default, is without gaps; a stride of 0 for A or B is one matrix
    for the whole batch. The address of an operand that the problem does not have is 0, the
    default, and that of an `optional` operand may be 0.
    """

    lda: int | None
    ldb: int | None
    ldc: int | None
    ldr: int | None
    stride_a: int | None
    stride_b: int | None
    stride_c: int | None
    stride_r: int | None
    bias: int
    scale_a: int
    scale_b: int
    residual: int
    scale_result: int
    amax: int


@dataclass(frozen=True)
class Call:
    """A GEMM of operands in device memory.

    Attributes:
        addresses: the addresses of the operands by name; absent operands may be left out.
        pitches: elements from one row of each matrix to the next.
        strides: elements from one matrix of a batch to the next; 0 without a batch.
        alpha: factor of the product.
        beta: factor of C, which is not read if this is 0.
    """

    addresses: Mapping[str, int]
    pitches: Mapping[str, int]
    strides: Mapping[str, int]
    alpha: float = 1.0
    beta: float = 0.0

    def words(self) -> dict[str, float]:
        """The values of the `WORDS`: 0 for what is absent."""
        words = {**_ABSENT, **self.addresses, "alpha": self.alpha, "beta": self.beta}
        for name, pitch in self.pitches.items():
            words[BY_NAME[name].pitch] = pitch
        for name, stride in self.strides.items():
            words[BY_NAME[name].stride] = stride
        return words


LONGEST_NAME = 150
"""Characters of a kernel's name in the name of a file."""


class ArrayText(NamedTuple):
    """An array in the text of a call: `float32[4096,512]`, or `float32[4096,512,F]` if its first
    index varies fastest in memory (Fortran order).

    The elements of a structured array are `struct16{tag:int8@0,at:float64@8}`, with the size and
    the offsets in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    fortran: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join([*map(str, self.shape), *['F'] * self.fortran])}]"

    @classmethod
    def of(cls, text: str) -> ArrayText:
        """The array of a text."""
        dtype, _, sizes = text.removesuffix("]").rpartition("[")
        *_, order = parts = sizes.split(",")
        shape = tuple(int(size) for size in parts if size and size != "F")
        return cls(dtype, shape, order == "F")


LONGEST_TEXT = 200
"""Characters of a structure's layout, or of a value, in the text of a call."""


def dtype_text(dtype: Any) -> str:
    """A NumPy type in the text of a call: `float32`, or the layout of a structure."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return str(ArrayText(dtype_text(base), shape))
    if dtype.names is None:
        return str(dtype.name)
    fields = ((re.sub(r"\W", "_", name), *dtype.fields[name][:2]) for name in dtype.names)
    members = ",".join(f"{name}:{dtype_text(kind)}@{offset}" for name, kind, offset in fields)
    return f"struct{dtype.itemsize}{{{shortened(members)}}}"


def shortened(text: str) -> str:
    """A text, or its hash if it is long."""
    digest = sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= LONGEST_TEXT else f"#{digest}"


def driver_value(number: Any) -> int | float | bytes:
    """A NumPy number or structure as a plan has it: float16 as its bits, complex numbers and
    structures as their bytes."""
    if number.dtype.kind in "cV":
        return bytes(number.tobytes())
    if number.dtype.name == "float16":
        return int.from_bytes(number.tobytes(), byteorder)
    value: int | float = number.item()
    return int(value) if isinstance(value, bool) else value


TEXTURE = "texture("
"""The start of a texture's text in a call."""


@dataclass(frozen=True, order=True)
class KernelCall:
    """A user kernel and its arguments, as far as they distinguish one tuning from another.

    Attributes:
        name: the kernel's name in C++, such as `transpose` or `filters::blur`.
        arguments: type and shape of each array, `float32[4096,4096]`; type and value of each
            number or structure, `int32=4096`; the reading of each texture,
            `texture(float32[480,640],clamp,linear)`.
        constants: name, type and shape of each `__constant__` variable that the caller fills,
            `weights:float32[9]`, sorted.
    """

    name: str
    arguments: tuple[str, ...]
    constants: tuple[str, ...] = ()

    def __str__(self) -> str:
        constants = f"; {', '.join(self.constants)}" if self.constants else ""
        return f"{self.name}({', '.join(self.arguments)}{constants})"

    @property
    def slug(self) -> str:
        """The call as part of a file name: the kernel's name, shortened, and a hash of the whole
        call."""
        name = re.sub(r"\W+", "-", self.name)[:LONGEST_NAME]
        return f"{name}-{sha256(str(self).encode()).hexdigest()[:16]}"
