"""The operands of a call, checked: the problem that they pose, their scales and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from math import gcd, prod
from operator import or_
from typing import Any, NamedTuple

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import (
    COMPUTES,
    ELEMENT_TYPES,
    GATE_SPAN,
    OUTPUTS,
    PRECISIONS,
    SCALE_BLOCK,
    SCALES,
    SWIGLU,
    Problem,
    epilogue_of,
)
from autotune.problem.call import BY_NAME, FURTHER, MATRICES, OPERANDS, Operand
from autotune.problem.integers import ceil_div
from autotune.problem.words import canonical
from autotune.runtime.arrays import (
    OUTPUT_TYPES,
    TYPES,
    ArrayInfo,
    Launches,
    MatrixMemory,
    batch_shape,
    check,
    check_beside,
    check_dense,
    check_disjoint,
    check_out,
    check_residual,
    check_vector,
    launches_of,
    listed,
    memory_of,
    overlap,
    width_of,
)
from autotune.settings import DEFAULT_POLICY, Policy

Addresses = Mapping[str, int]
"""The addresses of the operands that are present, by name."""

NAMES: Mapping[str, str] = {operand.argument.lower(): operand.name for operand in OPERANDS}
"""The names of the operands by their keywords in Python."""

NOTHING = Config("nothing")
"""The configuration of calls that launch nothing."""

Shape = tuple[int, ...]

SCALE_BYTES = 4


class CallOptions(NamedTuple):
    """The arguments of a call that are not arrays.

    Attributes:
        alpha: factor of the product.
        beta: factor of C.
        activation: the activation or None.
        compute: the precision or None.
        accumulate: how sums of fp8 are added up, or None.
        scale: the granularity of the scales or None.
        policy: policy of the call.
    """

    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    compute: str | None = None
    accumulate: str | None = None
    scale: str | None = None
    policy: Policy = DEFAULT_POLICY

    @property
    def signature(self) -> tuple[object, ...]:
        """The options that the operands' checks and the look-up depend on."""
        chosen = self.policy.cold, self.policy.library
        return self.activation, self.compute, self.accumulate, self.scale, *chosen


DEFAULTS = CallOptions()


class CheckedOperands(NamedTuple):
    """The problem that operands of one signature pose, and how they lie.

    Attributes:
        problem: the problem.
        ordinal: the device that holds the operands.
        memory: where each operand lies, relative to its address.
        pitches: leading dimensions of the matrices.
        strides: distances from one matrix to the next of a batch.
        alignment: the vectors that the operands allow.
        offsets: bytes from the operands of the first launch to those of each, by name; there are
            several launches for some batches of several axes, and none for an empty result.
        config: the configuration that runs them.
        vendor: whether the vendor's library was measured to be faster, or has to run what no record
            serves.
    """

    problem: Problem
    ordinal: int
    memory: Mapping[str, MatrixMemory]
    pitches: Mapping[str, int]
    strides: Mapping[str, int]
    alignment: Alignment
    offsets: tuple[Mapping[str, int], ...]
    config: Config = NOTHING
    vendor: bool = False

    @property
    def dense(self) -> bool:
        """Whether the operands have no gaps and start where vectors may."""
        pitches = tuple(self.pitches[name] for name in "abc")
        aligned = self.alignment == Alignment.dense(self.problem)
        return aligned and pitches == self.problem.leading_dimensions


def named_operands(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The operands of a call by their names in `OPERANDS`, from arrays by their keywords; what is
    None is left out.

    Raises:
        TypeError: for a keyword that no operand has.
    """
    try:
        return {NAMES[word]: array for word, array in arrays.items() if array is not None}
    except KeyError as error:
        word = error.args[0]
        instead = f"; give policy=autotune.Policy({word}=...)" if word in Policy._fields else ""
        raise TypeError(f"a matmul has no argument {word!r}{instead}") from None


def problem_of(
    infos: Mapping[str, ArrayInfo],
    options: CallOptions = DEFAULTS,
    *,
    layout: str | None = None,
    output: str | None = None,
) -> Problem:
    """The problem that the operands of a call pose.

    Of a batch of several axes it is the problem of one launch (see `Launches`). A size of 0 counts
    as 1, and the scales of such a product are not looked at.

    A single matrix is multiplied with each of a batch. Without a compute the types of A and B
    decide it: e4m3 with e4m3 is `f8`, with an e5m2 on either side `f8e5`.

    Args:
        infos: the operands by their names; C may not be allocated yet.
        options: the other arguments of the call.
        layout: how A and B have to be stored; None is as they are.
        output: the type of a result that is not allocated yet, by default the precision's first.

    Raises:
        ArrayError: if A and B do not fit each other, differ in device, or if their types, that of
            C or the scales are not supported.
        ProblemError: for an unknown compute, activation, output or scale, or too large a batch.
    """
    a, b, out = infos["a"], infos["b"], infos.get("c")
    epilogue = epilogue_of("bias" in infos, options.activation, "residual" in infos)
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
    compute, e5m2 = _precision(a, b, options.compute)
    problem = Problem(
        *(m, n, k, compute, stored, batch, epilogue),
        output=_output(compute, a, out) if out is not None else output or "same",
        accumulate=options.accumulate or "exact",
        e5m2=e5m2,
    )
    if 0 in (*axes, *sizes):
        return problem
    problem = replace(problem, scale=_scale(problem, infos, options.scale))
    if len(axes) > 1 and problem.scale not in ("none", "tensor"):
        raise ArrayError(
            f"scale is {problem.scale}, and A and B have {len(axes)} batch axes; such scales take "
            "one: reshape A and B"
        )
    return problem


def result_shape(a: ArrayInfo, b: ArrayInfo, epilogue: str) -> tuple[int, ...]:
    """The shape of the result of two operands: with the batch axes that one of them has."""
    return *batch_shape(a, b), a.shape[-2], width_of(b, gated=epilogue == SWIGLU)


def output_of(dtype: object) -> str | None:
    """The `output` of a problem that an `out_dtype` means: a word such as `f16` or `float16`, or a
    dtype of PyTorch, NumPy or CuPy; None for None.

    Raises:
        ProblemError: for any other dtype.
    """
    return None if dtype is None else canonical("output", dtype, OUTPUTS)


def check_dtype(out: ArrayInfo, dtype: object) -> None:
    """Refuses an `out_dtype` that contradicts `out`."""
    output = output_of(dtype)
    if output not in (None, "same") and ELEMENT_TYPES[output].dtype != out.dtype:
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
    ordinal, _ = check(a), check(b)
    check_beside(b, ordinal)
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


def _scale(problem: Problem, infos: Mapping[str, ArrayInfo], scale: str | None) -> str:
    """The granularity of the scales among the operands of a call, which may be given as `scale`;
    `none` without any."""
    scales = {name: infos[name] for name in ("scale_a", "scale_b") if name in infos}
    if len(scales) == 1:
        raise ArrayError("scale_a and scale_b belong together; give both or none")
    if not scales:
        if scale is not None and (word := canonical("scale", scale, SCALES)) != "none":
            raise ArrayError(f"scale is {word}, but no scales came; give scale_a and scale_b")
        return "none"
    return granularity(problem, scales, scale)


def granularity(problem: Problem, scales: Mapping[str, ArrayInfo], scale: str | None = None) -> str:
    """The granularity that the shapes of scales tell.

    Scales for a whole tensor are a single number. The others have a batch axis as
    `Problem.scale_shapes`, which a single matrix may leave out:

        row      (m,) or (m, 1) for A, (n,) or (1, n) for B
        block    (ceil(k / 128), m) for A, (ceil(n / 128), ceil(k / 128)) for B

    Args:
        problem: the problem without scales.
        scales: `scale_a`, `scale_b` or both.
        scale: the granularity, if the caller named it.

    Raises:
        ArrayError: for scales of other shapes.
        ProblemError: for an unknown granularity.
    """
    words = [word for word in SCALES if word != "none"]
    if scale is not None:
        words = [canonical("scale", scale, SCALES)]
    if words == ["none"]:
        raise ArrayError("scale is none, but scales came; leave scale_a and scale_b out")
    legal = {word: _legal(problem, word) for word in words}
    for word, shapes in legal.items():
        if all(info.shape in shapes[name] for name, info in scales.items()):
            return word
    first, *rest = (f"{name} {info.shape}" for name, info in scales.items())
    stated = ", ".join((first.replace(" ", " is ", 1), *rest))
    wanted = ", or ".join(
        f"{' and '.join(str(shapes[name][0]) for name in scales)} a {word}"
        for word, shapes in legal.items()
    )
    raise ArrayError(f"{stated}; {problem} takes {wanted}")


def _legal(problem: Problem, scale: str) -> dict[str, tuple[Shape, ...]]:
    """The shapes that the scales of A and of B may have, the shortest first."""
    batch, m, n = problem.batch, problem.m, problem.n
    if scale == "tensor":
        return dict.fromkeys(("scale_a", "scale_b"), ((1,), (), (1, 1), (1, 1, 1)))
    if scale == "row":
        of_a, of_b = _with_batch(batch, (m,), (m, 1)), _with_batch(batch, (n,), (1, n))
    else:
        blocks = ceil_div(problem.k, SCALE_BLOCK)
        of_a = _with_batch(batch, (blocks, m))
        of_b = _with_batch(batch, (ceil_div(n, SCALE_BLOCK), blocks))
    return {"scale_a": of_a, "scale_b": of_b}


def _with_batch(batch: int, *shapes: Shape) -> tuple[Shape, ...]:
    """The shapes with a batch axis; those without it too if the batch is a single matrix."""
    batched = tuple((batch, *shape) for shape in shapes)
    return (*shapes, *batched) if batch == 1 else batched


def checked_operands(
    problem: Problem, infos: Mapping[str, ArrayInfo], addresses: Addresses
) -> CheckedOperands:
    """The operands of a call, checked; no configuration is chosen for them yet.

    Args:
        problem: the problem that they pose.
        infos: the operands that are present, by name; A, B and C always are.
        addresses: their addresses.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out = (infos[name] for name in "abc")
    ordinal = check(a)
    launches = launches_of(a, b, out, gated=problem.gated)
    memory = _matrix_memory(problem, launches, ordinal)
    for operand in FURTHER:
        # The scales of operands without elements are not looked at.
        if operand.name in infos and not (out.empty and operand.kind == "scales"):
            memory[operand.name] = _further_memory(operand, problem, infos, memory, ordinal)
    check_addresses(addresses, memory)
    pitches = {row.name: memory[row.name].leading for row in MATRICES if row.name in memory}
    strides = {name: memory[name].stride for name in pitches}
    if out.empty:
        alignment = Alignment(1, 1, 1)
        return CheckedOperands(problem, ordinal, memory, pitches, strides, alignment, ())
    if a.empty:
        raise ArrayError(
            f"A is {a.shape}, B {b.shape}: with an inner size of 0 there is nothing to sum; fill "
            "out with zeros instead"
        )
    alignment = aligned(problem, pitches, launches.steps(strides), addresses)
    offsets = tuple(launches.offsets({row.name: row.element(problem).bytes for row in MATRICES}))
    return CheckedOperands(problem, ordinal, memory, pitches, strides, alignment, offsets)


def _matrix_memory(problem: Problem, launches: Launches, ordinal: int) -> dict[str, MatrixMemory]:
    """The checked memory of A, B and C."""
    a, b, out, _ = launches
    assert out is not None
    memory_a, memory_b = (
        memory_of(matrix, letter)[1] for matrix, letter in zip((a, b), problem.layout, strict=True)
    )
    shape = result_shape(a, b, problem.epilogue)
    memory_c = check_out(out, shape, ordinal)
    memory = launches.memory({"a": memory_a, "b": memory_b, "c": memory_c})
    check_disjoint(out, memory["c"], shape)
    return memory


def _further_memory(
    operand: Operand,
    problem: Problem,
    infos: Mapping[str, ArrayInfo],
    memory: Mapping[str, MatrixMemory],
    ordinal: int,
) -> MatrixMemory:
    """The checked memory of an operand beside A, B and C."""
    info = infos[operand.name]
    if operand.kind == "matrix":
        return check_residual(info, infos["c"], memory["c"], ordinal)
    if operand.kind == "scales":
        return scale_memory(info, ordinal)
    if operand.kind == "vector":
        dtype = operand.element(problem).dtype
        return check_vector(info, operand.count(problem), ordinal, dtype)
    if any(size != 1 for size in info.shape):
        raise ArrayError(f"{info.name} is {info.shape}; give one number")
    lies = scale_memory(info, ordinal)
    if not operand.present(problem):
        raise ArrayError(
            f"scale_result and amax are for a result in fp8; this one is "
            f"{problem.output_element.dtype}"
        )
    return lies


def scale_memory(operand: ArrayInfo, ordinal: int, first: str = "A") -> MatrixMemory:
    """The memory of scales on the device of the `first` operand, checked except for their shapes.

    Raises:
        ArrayError: if they are not fp32 without gaps on that device.
    """
    check_beside(operand, ordinal, first)
    if operand.dtype != "float32":
        raise ArrayError(f"{operand.name} is {operand.dtype}; scales are float32: convert it")
    if operand.recorded:
        raise ArrayError(
            f"{operand.name} requires a gradient, which is not recorded; give .detach()"
        )
    check_dense(operand)
    count = prod(operand.shape)
    return MatrixMemory(1, count, count, element_bytes=SCALE_BYTES)


def aligned(
    problem: Problem,
    pitches: Mapping[str, int],
    strides: Mapping[str, int],
    addresses: Addresses,
) -> Alignment:
    """The vectors that operands allow; matrices in the place of C share one width.

    Args:
        problem: the problem.
        pitches: leading dimensions of the matrices.
        strides: distances from one of each to the next of a batch.
        addresses: addresses of the operands.
    """

    def each(combine: Callable[[int, int], int], values: Mapping[str, int]) -> tuple[int, int, int]:
        a, b, c = (
            reduce(combine, [values.get(row.name, 0) for row in MATRICES if row.place == place])
            for place in range(3)
        )
        return a, b, c

    sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
    # What divides both addresses divides the bits that are set in either.
    lie = each(gcd, pitches), each(or_, addresses), sizes, each(gcd, strides)
    return Alignment.of(*lie)


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


def check_addresses(addresses: Addresses, memory: Mapping[str, MatrixMemory]) -> None:
    """Refuses operands that do not start at a multiple of their element size."""
    for name, lies in memory.items():
        if (address := addresses.get(name, 0)) % lies.element_bytes:
            raise ArrayError(
                f"{BY_NAME[name].argument} is at {address:#x}, no multiple of its "
                f"{lies.element_bytes}-byte elements: copy it"
            )


def refuse_overlap(checked: CheckedOperands, addresses: Addresses) -> None:
    """Refuses an output that shares elements with another operand."""
    out, of_out = addresses["c"], checked.memory["c"]
    if not of_out.extent:
        return
    for name, lies in checked.memory.items():
        if name == "c" or not lies.extent or not (address := addresses.get(name, 0)):
            continue
        if overlap(address, lies, out, of_out):
            argument = BY_NAME[name].argument
            raise ArrayError(f"out at {out:#x} overlaps {argument} at {address:#x}; give another")
