"""The vendor's product of the same operands: cuBLAS through PyTorch, or else through CuPy."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.gpu.operands import Operands, stored_shapes
from autotune.gpu.session import Run, Session


@dataclass(frozen=True)
class View:
    """op(A), op(B) or C as an array that lies at `address`; `strides` are in bytes."""

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int]

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": "<f4",
            "data": (self.address, False),
            "version": 3,
            "stream": None,
        }


def baseline(session: Session, operands: Operands) -> Run | None:
    """C = op(A) op(B) in IEEE fp32 on the session's stream; None without PyTorch and CuPy."""
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
    a, b, c = (torch.as_tensor(view, device=device) for view in _views(operands))
    stream = torch.cuda.ExternalStream(session.stream.handle, device=device)

    def run() -> None:
        with torch.cuda.stream(stream):
            torch.mm(a, b, out=c)

    return run


def _cupy(session: Session, operands: Operands) -> Run | None:
    try:
        import cupy
    except ImportError:
        return None
    cupy.cuda.Device(session.index).use()
    a, b, c = (cupy.asarray(view) for view in _views(operands))
    stream = cupy.cuda.ExternalStream(session.stream.handle, session.index)

    def run() -> None:
        with stream:
            cupy.dot(a, b, out=c)

    return run


def _views(operands: Operands) -> tuple[View, View, View]:
    matrices = (operands.a, operands.b, operands.c)
    layouts = (*operands.problem.layout, "n")
    shapes = stored_shapes(operands.problem)
    a, b, c = (
        View(matrix.address, shape, (4 * matrix.leading_dimension, 4))
        if layout == "n"
        else View(matrix.address, (shape[1], shape[0]), (4, 4 * matrix.leading_dimension))
        for matrix, shape, layout in zip(matrices, shapes, layouts, strict=True)
    )
    return a, b, c
