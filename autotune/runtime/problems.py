"""The problem that the operands of a call pose."""

from __future__ import annotations

from autotune.errors import ArrayError
from autotune.problem import (
    COMPUTES,
    ELEMENT_TYPES,
    GATE_SPAN,
    OUTPUTS,
    PRECISIONS,
    SWIGLU,
    Problem,
)
from autotune.problem.words import canonical
from autotune.runtime.arrays import (
    OUTPUT_TYPES,
    TYPES,
    ArrayInfo,
    check,
    listed,
    memory_of,
    same_device,
)
from autotune.runtime.batches import batch_shape, launches_of, width_of
from autotune.runtime.scales import Scales, scaled


def problem_of(
    a: ArrayInfo,
    b: ArrayInfo,
    out: ArrayInfo | None = None,
    scales: Scales | None = None,
    *,
    compute: str | None = None,
    layout: str | None = None,
    epilogue: str = "none",
    output: str | None = None,
    scale: str | None = None,
    accumulate: str = "exact",
) -> Problem:
    """The problem that operands pose. With a `layout` they have to be stored that way.

    Of a batch of several axes it is the problem of one launch (see `batches`). A size of 0 counts
    as 1, and the scales of such a product are not looked at.

    A single matrix is multiplied with each of a batch. Without a `compute` the types of A and B
    decide it: e4m3 with e4m3 is `f8`, with an e5m2 on either side `f8e5`. Without `out` the result
    is of type `output`, by default the precision's first.

    Raises:
        ArrayError: if A and B do not fit each other, differ in device, or if their types, that of
            `out` or the scales are not supported.
        ProblemError: for an unknown compute, epilogue, output or scale, or too large a batch.
    """
    _check_pair(a, b)
    axes, sizes = batch_shape(a, b), (a.shape[-2], b.shape[-1], a.shape[-1])
    a, b, *_ = launches_of(a, b, out, gated=epilogue == SWIGLU)
    m, n, k = (max(1, size) for size in sizes)
    if epilogue == SWIGLU and not sizes[1]:
        n = 2 * GATE_SPAN
    batch = max(1, *batch_shape(a, b), 1)
    letters = layout or (None, None)
    stored = "".join(
        memory_of(matrix, letter)[0] for matrix, letter in zip((a, b), letters, strict=True)
    )
    compute, e5m2 = _precision(a, b, compute)
    problem = Problem(
        *(m, n, k, compute, stored, batch, epilogue),
        output=_output(compute, a, out) if out is not None else output or "same",
        accumulate=accumulate,
        e5m2=e5m2,
    )
    if 0 in (*axes, *sizes):
        return problem
    problem = scaled(problem, scales, scale)
    if len(axes) > 1 and problem.scale not in ("none", "tensor"):
        raise ArrayError(
            f"scale is {problem.scale}, and A and B have {len(axes)} batch axes; such scales take "
            "one: reshape A and B"
        )
    return problem


def sizes(problem: Problem) -> tuple[int, int, int]:
    """Bytes of an element of A, B and C."""
    return problem.element_bytes, problem.element_bytes, problem.output_bytes


def result_shape(a: ArrayInfo, b: ArrayInfo, epilogue: str) -> tuple[int, ...]:
    """The shape of the result of two operands: with the batch axes that one of them has."""
    return *batch_shape(a, b), a.shape[-2], width_of(b, gated=epilogue == SWIGLU)


def output_of(dtype: object) -> str:
    """The `output` of a problem that an `out_dtype` means: a word such as `f16` or `float16`, or a
    dtype of PyTorch, NumPy or CuPy.

    Raises:
        ProblemError: for any other dtype.
    """
    return canonical("output", dtype, OUTPUTS)


def check_dtype(out: ArrayInfo, dtype: object) -> None:
    """Refuses an `out_dtype` that contradicts `out`."""
    output = output_of(dtype)
    if output != "same" and ELEMENT_TYPES[output].dtype != out.dtype:
        raise ArrayError(f"out is {out.dtype}, out_dtype {output}; leave one of them out")


def _precision(a: ArrayInfo, b: ArrayInfo, compute: str | None) -> tuple[str, str]:
    """The compute of two operands, and which of them is e5m2 if that is a choice.

    Raises:
        ArrayError: for types that no precision multiplies with each other, or not this one.
        ProblemError: for an unknown compute.
    """
    types = TYPES[a.dtype], TYPES[b.dtype]
    e5m2 = "".join(name for name, type in zip("ab", types, strict=True) if type == "e5m2")
    wide = ELEMENT_TYPES["e5m2" if e5m2 else types[0]]
    if types[0] != types[1] and set(types) != {"e4m3", "e5m2"}:
        raise ArrayError(f"A is {a.dtype}, B {b.dtype}; convert one of them")
    own = wide.compute
    assert own is not None  # as for all TYPES
    if compute is None:
        return own, e5m2 or "a"
    compute = canonical("compute", compute, COMPUTES)
    row = PRECISIONS[compute]
    if row.operand is not wide:
        pair = f"A and B are {a.dtype}" if a.dtype == b.dtype else f"A is {a.dtype}, B {b.dtype}"
        raise ArrayError(
            f"{pair}; {compute} multiplies {row.operand.dtype}: convert them or give "
            f"compute={own!r}"
        )
    return compute, e5m2 or "a"


def _check_pair(a: ArrayInfo, b: ArrayInfo) -> None:
    """Refuses two operands that do not fit each other, but for their batches."""
    devices = check(a), check(b)
    if not same_device(*devices):
        raise ArrayError(f"A is on CUDA device {devices[0]}, B on {devices[1]}; move one of them")
    k, inner = a.shape[-1], b.shape[-2]
    if k != inner:
        raise ArrayError(f"A {a.shape} times B {b.shape}: the inner sizes {k} and {inner} differ")


def _output(compute: str, a: ArrayInfo, out: ArrayInfo) -> str:
    """The `output` of a problem whose result goes to `out`."""
    check(out, types=OUTPUT_TYPES)
    outputs = PRECISIONS[compute].outputs
    for element in outputs:
        if element.dtype == out.dtype:
            return element.name
    legal = listed((element.dtype for element in outputs), "or")
    raise ArrayError(f"out is {out.dtype}; a product of {a.dtype} is {legal}")
