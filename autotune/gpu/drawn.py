"""The buffers that a kernel only reads, and the random content that verification gives them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from autotune.gpu.guarded import GuardedMatrix
from autotune.gpu.judgement import READ, RESIDUAL, RESULT
from autotune.gpu.operands import Operands
from autotune.gpu.verify_kernels import NORMAL, POISONED, SCALES, VerifyKernels
from autotune.problem import Problem
from autotune.verification import quantised
from autotune.verification.exact import Draw


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
    """A, B, the bias, the scales, the residual and the scale of C, with seeds that nobody can
    foresee, in the order of `read_places`."""
    problem = operands.problem
    drawn = [
        DrawnBuffer(matrix, NORMAL, secrets.randbits(62), quantised.factor(problem, side))
        for side, matrix in enumerate((operands.a, operands.b))
    ]
    drawn.append(DrawnBuffer(operands.bias, NORMAL, secrets.randbits(62)))
    if problem.scale != "none":
        drawn += [
            DrawnBuffer(
                scales.vector, SCALES, secrets.randbits(62), quantised.scale_size(problem, side)
            )
            for side, scales in enumerate((operands.scale_a, operands.scale_b))
        ]
    if problem.has_residual:
        drawn.append(DrawnBuffer(operands.residual, NORMAL, secrets.randbits(62)))
    if problem.has_fp8_output:
        drawn.append(DrawnBuffer(operands.result, POISONED))
    return drawn


def read_places(problem: Problem) -> tuple[str, ...]:
    """The places of the buffers of `drawn_buffers`, for a reason of failure."""
    places = READ if problem.scale != "none" else READ[:-2]
    if problem.has_fp8_output:
        return *places, RESULT
    return (*places, RESIDUAL) if problem.has_residual else places


def fill_added(kernels: VerifyKernels, operands: Operands, content: int, draw: Draw) -> None:
    """Fills the bias and the residual, as far as the problem has them, with other numbers."""
    if operands.problem.has_bias:
        kernels.fill(operands.bias, content, draw.bias, guards=False)
    if operands.problem.has_residual:
        kernels.fill(operands.residual, content, draw.residual, guards=False)
