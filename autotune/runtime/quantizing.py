"""quantize(): matrices in 8 bits with their scales, by the kernel on the caller's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from autotune.cuda.launches import Dependence
from autotune.errors import ArrayError, UsageError
from autotune.families.plan import VECTOR_BYTES
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK, ElementType
from autotune.problem.call import Call
from autotune.problem.fields import LARGEST_DIMENSION
from autotune.problem.integers import ceil_div
from autotune.problem.words import dtype_word
from autotune.runtime import arrays
from autotune.runtime.arrays import ArrayInfo, MatrixMemory, listed
from autotune.runtime.executable import Enqueue
from autotune.runtime.frameworks.base import dense
from autotune.runtime.scales import SCALE_BYTES
from autotune.runtime.state import Runtime

SOURCES = {row.dtype: row for row in ELEMENT_TYPES.values() if row.bytes > 1 and row.compute}
"""The element types that are quantised, by their names in the array libraries."""

TARGETS = {row.name: row for row in ELEMENT_TYPES.values() if row.bytes == 1}
"""The element types that they are quantised to."""

GRANULARITIES = ("tensor", "row", "block")

KEPT_CALLS = 1024
"""Bound calls that are kept. When there are more, all are dropped."""

Place = tuple[int, int]
"""The address of a matrix, and the elements from one of its rows to the next."""


class _QuantizingCall(NamedTuple):
    """A call whose launches are bound to its arrays on a device."""

    ordinal: int
    enqueue: Enqueue


class Quantizer:
    """`q = x / scale`, rounded to 8 bits, for arrays of any shape.

    Calls with the arrays of an earlier call are not checked again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._calls: dict[Any, _QuantizingCall] = {}

    def __call__(self, x: Any, dtype: Any, scale: Any, out: Any) -> tuple[Any, Any]:
        """Enqueues the launches on the caller's current stream; see `autotune.quantize`."""
        framework = self.runtime.framework(x, "x")
        target = target_of(dtype)
        fixed = not isinstance(scale, str)
        word = "tensor" if fixed else scale
        q, scales = out if isinstance(out, (tuple, list)) else (out, None)
        if fixed:
            if scales is not None:
                raise UsageError("scale is an array, so that out takes no scales; give out=q")
            scales = scale
        if q is None or scales is None:
            shapes = result_shapes(framework.describe(x, "x"), word)
            q = framework.empty(x, shapes[0], target.dtype) if q is None else q
            scales = framework.empty(x, shapes[1], "float32") if scales is None else scales
        operands = x, q, scales
        reads = tuple(
            self.runtime.framework(array, name).read(array)
            for array, name in zip(operands, ("x", "out", "scales"), strict=True)
        )
        key = reads, target.name, word, fixed
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= KEPT_CALLS:
                self._calls.clear()
            call = self._calls[key] = self._bind(operands, reads, target, word, fixed)
        call.enqueue(framework.stream(operands, call.ordinal))
        return q, scales

    def _bind(
        self, operands: Sequence[Any], reads: Any, target: ElementType, scale: str, fixed: bool
    ) -> _QuantizingCall:
        """A new call, checked and bound."""
        describe = self.runtime.describe
        x, q, scales = map(describe, operands, ("x", "out", "scale" if fixed else "scales"))
        (from_x, _), (to_q, _), (of_scales, _) = reads
        ordinal, memory = check_source(x)
        shapes = result_shapes(x, scale)
        places = (from_x, memory.leading), (to_q, _check_out(q, shapes[0], target, ordinal).leading)
        _check_scales(scales, shapes[1], ordinal, fixed)
        _refuse_overlap(places, memory, of_scales, prod(shapes[1]))
        quantizing = quantizing_of(x, target, scale, *places, fixed)
        return _QuantizingCall(
            ordinal, bind_quantizing(self.runtime, ordinal, quantizing, *places, of_scales)
        )


def quantizing_of(
    x: ArrayInfo, target: ElementType, scale: str, source: Place, result: Place, fixed: bool = False
) -> Quantizing:
    """How a checked array is quantised between two places.

    Raises:
        ArrayError: if it has too many rows or columns.
    """
    element, pitches = SOURCES[x.dtype], (source[1], result[1])
    *outer, rows, columns = x.shape
    batch, numbers = prod(outer), prod(x.shape)
    if scale == "tensor" and pitches == (columns, columns) and numbers <= LARGEST_DIMENSION:
        # One row, so that a block need not end with a short one.
        batch, rows, columns, pitches = 1, 1, numbers, (numbers, numbers)
    vector = VECTOR_BYTES // element.bytes
    steps = columns, *pitches, source[0] // element.bytes, result[0]
    while any(step % vector for step in steps):
        vector //= 2
    sizes = rows, columns, batch
    try:
        return Quantizing(element, target, scale, *sizes, vector=vector, fixed=fixed)
    except ValueError as error:
        raise ArrayError(f"x of shape {x.shape}: {error}") from error


def bind_quantizing(
    runtime: Runtime,
    ordinal: int,
    quantizing: Quantizing,
    source: Place,
    result: Place,
    scales: int,
    dependent: bool = False,
) -> Callable[[int], None]:
    """The function that enqueues a quantisation between addresses on a stream."""
    executable = runtime.loaded(quantizing.plan(), ordinal)
    addresses = {"a": source[0], "c": result[0], "scale_a": scales}
    call = Call(addresses, {"a": source[1], "c": result[1]}, {})
    return executable.bind(call, Dependence(dependent)).enqueue


def target_of(dtype: Any) -> ElementType:
    """The element type of 8 bits that a word or a dtype means.

    Raises:
        UsageError: for any other.
    """
    if isinstance(dtype, str) and dtype in TARGETS:
        return TARGETS[dtype]
    name = dtype_word(dtype)
    for row in TARGETS.values():
        if name in (row.name, row.dtype):
            return row
    legal = listed((row.dtype if row.integer else row.name for row in TARGETS.values()), "or")
    raise UsageError(f"dtype is {name}; give {legal}")


def result_shapes(x: ArrayInfo, scale: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the quantised array and of its scales.

    Raises:
        UsageError: for another granularity.
    """
    if scale not in GRANULARITIES:
        legal = listed(GRANULARITIES, "or")
        raise UsageError(f"scale is {scale!r}; give {legal}, or an fp32 array of one number")
    if scale == "tensor":
        return x.shape, (1,)
    if scale == "row":
        return x.shape, x.shape[:-1]
    *outer, rows, columns = x.shape
    return x.shape, (*outer, ceil_div(columns, SCALE_BLOCK), rows)


def check_source(x: ArrayInfo) -> tuple[int, MatrixMemory]:
    """The device that holds an array to be quantised, and where its rows lie.

    Raises:
        ArrayError: for an array that is empty, on the CPU, of another type, that requires a
            gradient, or whose rows are not equally far apart.
    """
    name = x.name
    if x.recorded:
        raise ArrayError(
            f"{name} requires a gradient, which quantising does not record; give .detach() or work "
            "under torch.no_grad()"
        )
    ordinal = arrays.check(x, types=SOURCES)
    if x.empty:
        raise ArrayError(f"{name} is empty {x.shape}; there is nothing to quantise")
    return ordinal, _rows_of(x, SOURCES[x.dtype].bytes)


def _rows_of(x: ArrayInfo, element_bytes: int) -> MatrixMemory:
    """Where the rows of an array lie, over all of its axes but the last."""
    *sizes, columns = x.shape
    *steps, step = x.strides
    axes = [(size, step) for size, step in zip(sizes, steps, strict=True) if size > 1]
    leading = axes[-1][1] if axes else columns
    expected = leading
    for size, stride in reversed(axes):
        if stride != expected:
            break
        expected *= size
    else:
        if (step == 1 or columns == 1) and leading >= columns:
            return MatrixMemory(prod(sizes), columns, leading, element_bytes=element_bytes)
    raise ArrayError(
        f"{x.name} of shape {x.shape} has strides {x.strides}; it must be row-major, with all rows "
        "equally far apart: copy it with .contiguous()"
    )


def _check_out(
    q: ArrayInfo, shape: tuple[int, ...], target: ElementType, ordinal: int
) -> MatrixMemory:
    if arrays.check(q, types=[row.dtype for row in TARGETS.values()]) != ordinal:
        raise ArrayError(f"x is on CUDA device {ordinal}, out on {q.ordinal}; move one of them")
    if q.dtype != target.dtype:
        raise ArrayError(f"out is {q.dtype}, dtype {target.dtype}; give one like the other")
    if q.shape != shape:
        raise ArrayError(f"out is {q.shape}, x {shape}; give an array of that shape")
    if q.read_only:
        raise ArrayError("out is read-only; give a writable array")
    return _rows_of(q, 1)


def _check_scales(scales: ArrayInfo, shape: tuple[int, ...], ordinal: int, fixed: bool) -> None:
    name = scales.name
    if scales.ordinal != ordinal:
        place = "the CPU" if scales.ordinal is None else f"CUDA device {scales.ordinal}"
        raise ArrayError(f"x is on CUDA device {ordinal}, {name} on {place}; move one of them")
    if scales.dtype != "float32":
        raise ArrayError(f"{name} is {scales.dtype}; scales are float32: convert it")
    if fixed and prod(scales.shape) != 1:
        raise ArrayError(f"scale is {scales.shape}; an array has one number for the whole tensor")
    if not fixed and scales.shape != shape:
        raise ArrayError(f"scales are {scales.shape}; x takes {shape}")
    steps = zip(scales.shape, scales.strides, dense(scales.shape), strict=True)
    if any(size > 1 and stride != step for size, stride, step in steps):
        raise ArrayError(
            f"{name} of shape {scales.shape} has strides {scales.strides}; copy it with "
            ".contiguous()"
        )
    if scales.read_only and not fixed:
        raise ArrayError("scales are read-only; give a writable array")


def _refuse_overlap(
    places: tuple[Place, Place], memory: MatrixMemory, scales: int, count: int
) -> None:
    """Refuses results that share memory with the matrix or with each other."""
    (source, _), (result, leading) = places
    of_result = MatrixMemory(memory.rows, memory.columns, leading, element_bytes=1)
    of_scales = MatrixMemory(1, count, count, element_bytes=SCALE_BYTES)
    for name, first, second in (
        ("out", (result, of_result), (source, memory)),
        ("scales", (scales, of_scales), (source, memory)),
        ("scales", (scales, of_scales), (result, of_result)),
    ):
        if arrays.overlap(*first, *second):
            source_name = "x" if second[1] is memory else "out"
            raise ArrayError(f"{name} at {first[0]:#x} overlaps {source_name}; give another")
