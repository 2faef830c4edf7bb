"""The seam of quantised operands: `quantize()`, and a matmul that quantises its A on the way in.

The launches of such a matmul quantise A into memory of the stream and multiply it there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from autotune.cuda.launches import Dependence, has_dependent_launch
from autotune.errors import ArrayError, UsageError
from autotune.families.plan import VECTOR_BYTES
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import COMPUTES, ELEMENT_TYPES, PRECISIONS, SCALE_BLOCK, ElementType
from autotune.problem.call import BY_NAME, Call
from autotune.problem.fields import LARGEST_DIMENSION
from autotune.problem.integers import ceil_div, round_up
from autotune.problem.words import canonical, dtype_word
from autotune.runtime.arrays import (
    ArrayInfo,
    MatrixMemory,
    check,
    check_beside,
    dense,
    listed,
    overlap,
)
from autotune.runtime.launcher import BoundGemm
from autotune.runtime.operands import (
    SCALE_BYTES,
    Addresses,
    CallOptions,
    CheckedOperands,
    granularity,
    problem_of,
    scale_memory,
)
from autotune.runtime.state import Runtime

SOURCES = {row.dtype: row for row in ELEMENT_TYPES.values() if row.bytes > 1 and row.compute}
"""The element types that are quantised, by their names in the array libraries."""

TARGETS = {row.name: row for row in ELEMENT_TYPES.values() if row.bytes == 1}
"""The element types that they are quantised to."""

GRANULARITIES = ("tensor", "row", "block")

LINE = 128
"""The alignment in bytes of the scales of A."""

KEPT_CALLS = 1024
"""Bound calls that are kept. When there are more, all are dropped."""

Place = tuple[int, int]
"""The address of a matrix, and the elements from one of its rows to the next."""


class Quantizer:
    """`q = x / scale`, rounded to 8 bits, for arrays of any shape.

    Calls with the arrays of an earlier call are not checked again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._calls: dict[Any, BoundGemm] = {}

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
    ) -> BoundGemm:
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
        return bind_quantizing(self.runtime, ordinal, quantizing, *places, of_scales)


@lru_cache(maxsize=8)
def quantizer(runtime: Runtime) -> Quantizer:
    """The quantiser that shares what a runtime has loaded."""
    return Quantizer(runtime)


def quantizing_of(
    x: ArrayInfo, target: ElementType, scale: str, source: Place, result: Place, fixed: bool = False
) -> Quantizing:
    """The quantisation of a checked array, from one address to another.

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
) -> BoundGemm:
    """The launches of a quantisation between addresses."""
    executable = runtime.loaded(quantizing.plan(), ordinal)
    addresses = {"a": source[0], "c": result[0], "scale_a": scales}
    call = Call(addresses, {"a": source[1], "c": result[1]}, {})
    return executable.bind(call, Dependence(dependent))


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
    ordinal = check(x, types=SOURCES)
    if x.empty:
        raise ArrayError(f"{name} is empty {x.shape}; there is nothing to quantise")
    return ordinal, _rows_of(x, SOURCES[x.dtype].bytes)


def _rows_of(x: ArrayInfo, element_bytes: int) -> MatrixMemory:
    """The memory of an array's rows, over all axes but the last."""
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
    check(q, types=[row.dtype for row in TARGETS.values()])
    check_beside(q, ordinal, "x")
    if q.dtype != target.dtype:
        raise ArrayError(f"out is {q.dtype}, dtype {target.dtype}; give one like the other")
    if q.shape != shape:
        raise ArrayError(f"out is {q.shape}, x {shape}; give an array of that shape")
    if q.read_only:
        raise ArrayError("out is read-only; give a writable array")
    return _rows_of(q, 1)


def _check_scales(scales: ArrayInfo, shape: tuple[int, ...], ordinal: int, fixed: bool) -> None:
    scale_memory(scales, ordinal, "x")
    if fixed and prod(scales.shape) != 1:
        raise ArrayError(f"scale is {scales.shape}; an array has one number for the whole tensor")
    if not fixed and scales.shape != shape:
        raise ArrayError(f"scales are {scales.shape}; x takes {shape}")
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
        if overlap(*first, *second):
            source_name = "x" if second[1] is memory else "out"
            raise ArrayError(f"{name} at {first[0]:#x} overlaps {source_name}; give another")


def quantises(names: Container[str]) -> bool:
    """Whether a call with operands of these names quantises its A: there are scales of B alone."""
    return "scale_b" in names and "scale_a" not in names


def quantised_infos(infos: Mapping[str, ArrayInfo], options: CallOptions) -> dict[str, ArrayInfo]:
    """The operands of a call that quantises its A, with A and its scales as they are multiplied.

    Raises:
        ArrayError: if A cannot be quantised, or the call has other operands than B, C, a bias and
            the scales of B.
        UsageError: for a batch-invariant product.
        ProblemError: for an unknown compute or scale.
    """
    for name in infos:
        if name not in ("a", "b", "c", "bias", "scale_b"):
            word = BY_NAME[name].argument
            raise ArrayError(f"an A that is quantised on the way in takes no {word}; give scale_a")
    if options.policy.batch_invariant:
        raise UsageError("a batch-invariant product does not quantise its A; give scale_a")
    source, b, scale_b = infos["a"], infos["b"], infos["scale_b"]
    a = quantised_operand(source, b, options.compute)
    if a.empty or b.empty:
        return {**infos, "a": a, "scale_a": scale_b}  # scales that are not looked at
    problem = problem_of({"a": a, "b": b}, CallOptions(compute=options.compute))
    word = granularity(problem, {"scale_b": scale_b}, options.scale)
    if len(a.shape) == 2 and problem.batch > 1 and word != "tensor":
        raise ArrayError(
            f"A is a matrix {a.shape}, B a batch {b.shape}; with scales a {word}, an A that is "
            "quantised takes the batch of B"
        )
    shape = result_shapes(source, word)[1]
    scale_a = ArrayInfo("scale_a", shape, dense(shape), "float32", a.ordinal)
    return {**infos, "a": a, "scale_a": scale_a}


def quantised_operand(a: ArrayInfo, b: ArrayInfo, compute: str | None) -> ArrayInfo:
    """A as it will lie in memory of the stream, checked: its rows start at whole vectors.

    Raises:
        ArrayError: for an A that cannot be quantised.
        ProblemError: for an unknown compute.
    """
    target = target_beside(a, b, compute)
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


def target_beside(a: ArrayInfo, b: ArrayInfo, compute: str | None) -> ElementType:
    """The type that A is quantised to.

    Raises:
        ArrayError: if it is not to be quantised.
        ProblemError: for an unknown compute.
    """
    if a.dtype not in SOURCES:
        raise ArrayError("scale_a and scale_b belong together; give both or none")
    row = None if compute is None else PRECISIONS[canonical("compute", compute, COMPUTES)]
    if row is None or not row.eight_bit:
        raise ArrayError(
            f"A is {a.dtype} and compute is {compute}; give f8, f8e5 or i8 to quantise A, or its "
            "scale_a"
        )
    legal = [element.dtype for element in (row.operand, row.second) if element is not None]
    if b.dtype not in legal:
        raise ArrayError(
            f"B is {b.dtype}; {row.name} quantises A alone: give B in {listed(legal, 'or')}"
        )
    return row.second if row.second and b.dtype == row.operand.dtype else row.operand


def bind_quantised(
    runtime: Runtime,
    checked: CheckedOperands,
    source: ArrayInfo,
    addresses: Addresses,
    options: CallOptions,
) -> BoundGemm:
    """A call that quantises its A, with checked operands: launches that quantise A into memory of a
    stream, and those of the product.

    The lock keeps the launches of two calls that share this memory from mixing.

    Args:
        runtime: loads the kernels.
        checked: the operands as they are multiplied.
        source: A as it comes.
        addresses: addresses of the operands as they come.
        options: the other arguments of the call.
    """
    ordinal, problem, place_of_a = checked.ordinal, checked.problem, addresses["a"]
    gpu, pitch = runtime.gpu(ordinal), checked.pitches["a"]
    memory, target = check_source(source)[1], problem.operand_elements[0]
    from_a = place_of_a, memory.leading
    quantizing = quantizing_of(source, target, problem.scale, from_a, (0, pitch))
    first = round_up(memory.rows * pitch, LINE)
    size = first + SCALE_BYTES * prod(quantizing.scales)
    dependent = Dependence.OF_A if has_dependent_launch(gpu.device) else Dependence.NONE
    bound: dict[int, tuple[BoundGemm, BoundGemm]] = {}

    def bind(place: int) -> tuple[BoundGemm, BoundGemm]:
        scales, early = place + first, options.policy.dependent
        at = {**addresses, "a": place, "scale_a": scales}
        return (
            bind_quantizing(runtime, ordinal, quantizing, from_a, (place, pitch), scales, early),
            runtime.bind(checked, at, options, dependent),
        )

    def start(stream: int) -> None:
        with gpu.quantizing:
            place = gpu.quantized(stream, size)
            if place not in bound:
                bound[place] = bind(place)
            for gemm in bound[place]:
                gemm.enqueue(stream)

    return BoundGemm(ordinal, gpu.in_context(start), None)
