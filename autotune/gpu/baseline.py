"""The vendor's product of the same operands: cuBLAS through PyTorch, or else through CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.gpu.operands import Matrix, Operands
from autotune.gpu.session import Run, Session

Lens = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides, in elements, of an operand as the formula reads it."""


@dataclass(frozen=True)
class Words:
    """All that lies between the guards of a buffer, as an array of one dimension."""

    matrix: Matrix

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": (self.matrix.words,),
            "typestr": "<f4",
            "data": (self.matrix.address, False),
            "version": 3,
            "stream": None,
        }


def baseline(session: Session, operands: Operands) -> Run | None:
    """The problem at alpha = 1 and beta = 0 in IEEE fp32 on the session's stream.

    PyTorch's public functions are taken at their best, all with an output that is there already:
    `mm`, with a bias `addmm`, for a batch `bmm` and `baddbmm`; an activation follows in place.
    CuPy, which has nothing but products, only stands in for a problem without an epilogue. None
    where neither will do.
    """
    return _torch(session, operands) or _cupy(session, operands)


def _torch(session: Session, operands: Operands) -> Run | None:
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.set_float32_matmul_precision("highest")
    device = torch.device("cuda", session.index)

    def viewed(matrix: Matrix, lens: Lens) -> Any:
        return torch.as_strided(torch.as_tensor(Words(matrix), device=device), *lens)

    a, b, c = _operands(operands, viewed)
    bias = viewed(operands.bias, ((operands.problem.n,), (1,)))
    batched = operands.problem.batch > 1
    plain, added = (torch.bmm, torch.baddbmm) if batched else (torch.mm, torch.addmm)
    activate = {"relu": torch.relu_, "gelu": torch.ops.aten.gelu_}.get(
        operands.problem.epilogue.removeprefix("bias_")
    )
    stream = torch.cuda.ExternalStream(session.stream.handle, device=device)

    def run() -> None:
        with torch.cuda.stream(stream):
            if operands.problem.has_bias:
                added(bias, a, b, out=c)
            else:
                plain(a, b, out=c)
            if activate is not None:
                activate(c)

    return run


def _cupy(session: Session, operands: Operands) -> Run | None:
    if operands.problem.epilogue != "none":
        return None
    try:
        import cupy
    except ImportError:
        return None
    cupy.cuda.Device(session.index).use()

    def viewed(matrix: Matrix, lens: Lens) -> Any:
        shape, strides = lens
        words = cupy.asarray(Words(matrix))
        return cupy.lib.stride_tricks.as_strided(words, shape, [4 * stride for stride in strides])

    a, b, c = _operands(operands, viewed)
    stream = cupy.cuda.ExternalStream(session.stream.handle, session.index)

    def run() -> None:
        with stream:
            cupy.matmul(a, b, out=c)

    return run


def _operands(operands: Operands, viewed: Callable[[Matrix, Lens], Any]) -> list[Any]:
    """op(A), op(B) and C; with the batch as the first dimension if there is one."""
    matrices = (operands.a, operands.b, operands.c)
    layouts = (*operands.problem.layout, "n")
    return [
        viewed(matrix, _lens(matrix, layout == "t", operands.problem.batch))
        for matrix, layout in zip(matrices, layouts, strict=True)
    ]


def _lens(matrix: Matrix, transposed: bool, batch: int) -> Lens:
    shape, strides = (matrix.rows, matrix.columns), (matrix.leading_dimension, 1)
    if transposed:
        shape, strides = shape[::-1], strides[::-1]
    return (shape, strides) if batch == 1 else ((batch, *shape), (matrix.stride, *strides))
