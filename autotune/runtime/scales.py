"""The scales of operands of 8 bits: the granularity that their shapes tell, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.errors import ArrayError
from autotune.problem import SCALE_BLOCK, SCALES, Problem
from autotune.problem.integers import ceil_div
from autotune.problem.words import canonical
from autotune.runtime.arrays import ArrayInfo, MatrixMemory
from autotune.runtime.frameworks.base import dense

Scales = tuple[ArrayInfo, ArrayInfo]
"""The scales of A and of B."""

Shape = tuple[int, ...]

SCALE_BYTES = 4


def scales_of(infos: Mapping[str, ArrayInfo]) -> Scales | None:
    """The scales among the operands of a call; None without any.

    Raises:
        ArrayError: for one of them alone.
    """
    a, b = infos.get("scale_a"), infos.get("scale_b")
    if a is None and b is None:
        return None
    if a is None or b is None:
        raise ArrayError("scale_a and scale_b belong together; give both or none")
    return a, b


def scaled(problem: Problem, scales: Scales | None, scale: str | None = None) -> Problem:
    """The problem with the granularity of its scales.

    Scales for a whole tensor are a single number. The others have a batch axis as
    `Problem.scale_shapes`, which a single matrix may leave out:

        row      (m,) or (m, 1) for A, (n,) or (1, n) for B
        block    (ceil(k / 128), m) for A, (ceil(n / 128), ceil(k / 128)) for B

    Args:
        problem: the problem without scales.
        scales: the scales, if there are any.
        scale: the granularity, if the caller named it.

    Raises:
        ArrayError: for scales of other shapes, or if there are none although `scale` names them.
        ProblemError: for an unknown granularity, or one that the precision does not have.
    """
    named = None if scale is None else canonical("scale", scale, SCALES)
    if scales is None:
        if named not in (None, "none"):
            raise ArrayError(f"scale is {named}, but no scales came; give scale_a and scale_b")
        return problem
    if named == "none":
        raise ArrayError("scale is none, but scales came; leave scale_a and scale_b out")
    shapes = scales[0].shape, scales[1].shape
    candidates = [word for word in SCALES if word != "none"] if named is None else [named]
    for word in candidates:
        if all(shape in legal for shape, legal in zip(shapes, _legal(problem, word), strict=True)):
            return replace(problem, scale=word)
    wanted = ", or ".join(
        "{} and {} a {}".format(*(legal[0] for legal in _legal(problem, word)), word)
        for word in candidates
    )
    raise ArrayError(f"scale_a is {shapes[0]}, scale_b {shapes[1]}; {problem} takes {wanted}")


def granularity_of(problem: Problem, scale_b: ArrayInfo, scale: str | None = None) -> str:
    """The granularity of the scales of a product whose A is quantised on the way in, from those of
    B.

    Args:
        problem: the problem without scales.
        scale_b: the scales of B.
        scale: the granularity, if the caller named it.

    Raises:
        ArrayError: for scales of other shapes.
        ProblemError: for an unknown granularity.
    """
    named = None if scale is None else canonical("scale", scale, SCALES)
    legal = [word for word in problem.precision.scales if word != "none" and named in (None, word)]
    for word in legal:
        if scale_b.shape in _legal(problem, word)[1]:
            return word
    wanted = ", or ".join(f"{_legal(problem, word)[1][0]} a {word}" for word in legal)
    raise ArrayError(
        f"scale_b is {scale_b.shape}, scale {named}; {problem} takes {wanted or 'no such scales'}"
    )


def number_memory(operand: ArrayInfo, ordinal: int) -> MatrixMemory:
    """Where a single number lies on a device, checked.

    Raises:
        ArrayError: if it is not one fp32 number on that device.
    """
    if any(size != 1 for size in operand.shape):
        raise ArrayError(f"{operand.name} is {operand.shape}; give one number")
    return scale_memory(operand, ordinal)


def scale_memory(operand: ArrayInfo, ordinal: int) -> MatrixMemory:
    """Where scales lie on a device, checked but for their shapes.

    Raises:
        ArrayError: if they are not fp32 without gaps on that device.
    """
    name, shape = operand.name, operand.shape
    if operand.ordinal is None:
        raise ArrayError(f"{name} is on the CPU; move it to a CUDA device")
    if operand.ordinal != ordinal:
        raise ArrayError(
            f"A is on CUDA device {ordinal}, {name} on {operand.ordinal}; move one of them"
        )
    if operand.dtype != "float32":
        raise ArrayError(f"{name} is {operand.dtype}; scales are float32: convert it")
    if operand.recorded:
        raise ArrayError(f"{name} requires a gradient, which is not recorded; give .detach()")
    steps = zip(shape, operand.strides, dense(shape), strict=True)
    if any(size > 1 and stride != step for size, stride, step in steps):
        raise ArrayError(
            f"{name} of shape {shape} has strides {operand.strides}; copy it with .contiguous()"
        )
    count = 1
    for size in shape:
        count *= size
    return MatrixMemory(1, count, count, element_bytes=SCALE_BYTES)


def _legal(problem: Problem, scale: str) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """The shapes that the scales of A and of B may have, the shortest first."""
    batch, m, n = problem.batch, problem.m, problem.n
    if scale == "tensor":
        numbers: tuple[Shape, ...] = ((1,), (), (1, 1), (1, 1, 1))
        return numbers, numbers
    if scale == "row":
        return (
            _with_batch(batch, (m,), (m, 1)),
            _with_batch(batch, (n,), (1, n)),
        )
    blocks = ceil_div(problem.k, SCALE_BLOCK)
    columns = ceil_div(n, SCALE_BLOCK)
    return _with_batch(batch, (blocks, m)), _with_batch(batch, (columns, blocks))


def _with_batch(batch: int, *shapes: Shape) -> tuple[Shape, ...]:
    """The shapes with a batch axis; those without it too if the batch is a single matrix."""
    batched = tuple((batch, *shape) for shape in shapes)
    return (*shapes, *batched) if batch == 1 else batched
