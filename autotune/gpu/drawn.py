"""The buffers that a kernel only reads, and the random content that verification gives them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from autotune.gpu.guarded import GuardedMatrix
from autotune.gpu.operands import Operands
from autotune.gpu.verify_kernels import NORMAL, SCALES
from autotune.verification import quantised


@dataclass(frozen=True)
class DrawnBuffer:
    """A buffer and its content, which `fill` writes and `check` looks for.

    Attributes:
        matrix: the buffer.
        content: what `verify.cu` puts there, such as NORMAL.
        seed: the seed of its numbers.
        size: their size.
    """

    matrix: GuardedMatrix
    content: int
    seed: int = 0
    size: float = 1.0


def drawn_buffers(operands: Operands) -> list[DrawnBuffer]:
    """A, B, the bias and the scales with seeds that nobody can foresee, in the order of `READ`."""
    problem = operands.problem
    drawn = [
        DrawnBuffer(matrix, NORMAL, secrets.randbits(62), quantised.factor(problem, side))
        for side, matrix in enumerate((operands.a, operands.b))
    ]
    drawn.append(DrawnBuffer(operands.bias, NORMAL, secrets.randbits(62)))
    if problem.scale == "none":
        return drawn
    return drawn + [
        DrawnBuffer(
            scales.vector, SCALES, secrets.randbits(62), quantised.scale_size(problem, side)
        )
        for side, scales in enumerate((operands.scale_a, operands.scale_b))
    ]
