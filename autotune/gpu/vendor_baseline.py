"""The vendor baseline: cuBLAS on the same operands, through PyTorch or else CuPy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.gpu.gates import gated_run
from autotune.gpu.guarded import GuardedMatrix
from autotune.gpu.operands import Operands
from autotune.gpu.padded_run import PaddedRun
from autotune.gpu.scaled_baseline import View, Viewed, scaled_run
from autotune.gpu.session import Run, Session
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.vendor import fused, in_place

OpenBaseline = Callable[[Session, Operands], Run | None]
"""Opens the run of the baseline; None if it cannot compute the problem."""


@dataclass(frozen=True)
class FlatView:
    """Everything between the guards of a buffer, as a one-dimensional CUDA array."""

    matrix: GuardedMatrix

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": (self.matrix.length,),
            "typestr": ELEMENT_TYPES[self.matrix.type].interface,
            "data": (self.matrix.address, False),
            "version": 3,
            "stream": None,
        }


def import_library() -> None:
    """Imports the library of the baseline, which takes seconds; none is fine.

    Device work, such as loading cuBLAS, is left to the first run, because another process may be
    measuring now.
    """
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        with suppress(ImportError):
            import cupy  # noqa: F401


def open_baseline(session: Session, operands: Operands) -> Run | None:
    """A run of the problem at alpha = 1 and beta = 0 in its precision on the session's stream.

    PyTorch runs the fastest function that fits, with a preallocated output: `mm`, with a bias
    `addmm`, for a batch `bmm` and `baddbmm`; an activation or the addition of a residual follows in
    place, unless cuBLASLt fuses the activation (`_addmm_activation`). For SwiGLU one product makes
    the gates and what they are for, in two halves of a copy of B; SiLU in place and a
    multiplication follow. TF32 is allowed for `tf32`
    alone: `tf32x3` is compared with fp32. An fp32 output of 16-bit operands needs PyTorch 2.8.
    CuPy, which has no epilogues, stands in for plain products in `f32`, `tf32x3` and `f16`.
    Operands of 8 bits go to `_scaled_mm` or `_int_mm` (see `scaled_baseline`). None if neither
    fits.
    """
    return _torch(session, operands) or _cupy(session, operands)


def _torch(session: Session, operands: Operands) -> Run | None:
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda", session.index)

    def viewed(matrix: GuardedMatrix, view: View) -> Any:
        elements = torch.as_tensor(FlatView(matrix), device=device)
        dtype = getattr(torch, ELEMENT_TYPES[matrix.type].dtype)
        return torch.as_strided(elements.view(dtype), *view)

    stream = torch.cuda.ExternalStream(session.stream, device=device)
    if operands.problem.precision.eight_bit:
        with torch.cuda.stream(stream):
            scaled = scaled_run(torch, device, operands, viewed)
        return scaled and _on_stream(torch, stream, scaled)
    return _plain(torch, stream, operands, viewed)


def _on_stream(torch: Any, stream: Any, run: Run) -> Run:
    """The run on a stream."""
    if isinstance(run, PaddedRun):
        steps = (_on_stream(torch, stream, step) for step in (run.run, run.before, run.after))
        return PaddedRun(*steps)

    def on_stream() -> None:
        with torch.cuda.stream(stream):
            run()

    return on_stream


def _plain(torch: Any, stream: Any, operands: Operands, viewed: Viewed) -> Run | None:
    """A run on operands of 16 or 32 bits."""
    problem = operands.problem
    torch.set_float32_matmul_precision("high" if problem.precision.vendor == "tf32" else "highest")
    fused_product = fused(torch, problem)
    multiply = fused_product or _torch_function(torch, problem)
    if multiply is None:
        return None
    a, b, c = _operands(operands, viewed)
    if problem.gated:
        with torch.cuda.stream(stream):
            gated = gated_run(torch, problem, multiply, a, b, c)
        return _on_stream(torch, stream, gated)
    bias = [viewed(operands.bias, ((problem.n,), (1,)))] if problem.has_bias else []
    activation = None if fused_product else problem.activation
    activate = None if activation is None else in_place(torch, activation)
    added = _residual(operands, viewed)

    def run() -> None:
        with torch.cuda.stream(stream):
            multiply(*bias, a, b, out=c)
            if activate is not None:
                activate(c)
            if added is not None:
                torch.add(c, added, out=c)

    return run


def _torch_function(torch: Any, problem: Problem) -> Callable[..., object] | None:
    """PyTorch's function of (bias if any, A, B); None if this PyTorch has none."""
    if problem.precision.vendor is None:
        return None
    plain, added = ("bmm", "baddbmm") if problem.batch > 1 else ("mm", "addmm")
    name = added if problem.has_bias else plain
    if problem.output_type == problem.operand_types[0]:
        function: Callable[..., object] = getattr(torch, name)
        return function
    if not hasattr(getattr(torch.ops.aten, name), "dtype_out"):
        return None
    return partial(getattr(torch, name), out_dtype=torch.float32)


def _cupy(session: Session, operands: Operands) -> Run | None:
    problem = operands.problem
    if not problem.epilogue.plain or problem.output != "same" or not problem.precision.cupy:
        return None
    try:
        import cupy
    except ImportError:
        return None
    cupy.cuda.Device(session.index).use()

    def viewed(matrix: GuardedMatrix, view: View) -> Any:
        shape, strides = view
        elements, size = cupy.asarray(FlatView(matrix)), ELEMENT_TYPES[matrix.type].bytes
        steps = [size * stride for stride in strides]
        return cupy.lib.stride_tricks.as_strided(elements, shape, steps)

    a, b, c = _operands(operands, viewed)
    stream = cupy.cuda.ExternalStream(session.stream, session.index)

    def run() -> None:
        with stream:
            cupy.matmul(a, b, out=c)

    return run


def _operands(operands: Operands, viewed: Callable[[GuardedMatrix, View], Any]) -> list[Any]:
    """op(A), op(B) and C; a batch is the first dimension."""
    matrices = (operands.a, operands.b, operands.c)
    layouts = (*operands.problem.layout, "n")
    return [
        viewed(matrix, _view(matrix, layout == "t", operands.problem.batch))
        for matrix, layout in zip(matrices, layouts, strict=True)
    ]


def _residual(operands: Operands, viewed: Viewed) -> Any:
    """The residual; None without one."""
    problem = operands.problem
    if not problem.has_residual:
        return None
    return viewed(operands.residual, _view(operands.residual, False, problem.batch))


def _view(matrix: GuardedMatrix, transposed: bool, batch: int) -> View:
    shape, strides = (matrix.rows, matrix.columns), (matrix.leading_dimension, 1)
    if transposed:
        shape, strides = shape[::-1], strides[::-1]
    return (shape, strides) if batch == 1 else ((batch, *shape), (matrix.stride, *strides))
