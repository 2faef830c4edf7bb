"""Triton kernels as baselines of `suite.py`: scales of blocks, and plain products of 16 bits.

The GPU's bench calls `triton_baselines:open_baselines` in its worker process. Triton's
own autotuner chooses among the tiles of `triton_kernels.py` when the first run is verified.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from results import TRITON

from autotune.families.shared.tiling import tile_count
from autotune.measure.baseline import FlatView
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session
from autotune.problem import ELEMENT_TYPES, Problem


def open_baselines(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """A run of C = op(A) op(B), named `TRITON`; none if no kernel computes the problem, or without
    Triton."""
    try:
        torch, kernels = import_module("torch"), import_module("triton_kernels")
    except ImportError:
        return []
    problem = operands.problem
    kernel = kernel_of(problem, kernels)
    if kernel is None:
        return []
    device = torch.device("cuda", session.index)
    stream = torch.cuda.ExternalStream(session.stream, device=device)
    matrices = [operands.a, operands.b, operands.c]
    if problem.scale == "block":
        matrices += [operands.scale_a.vector, operands.scale_b.vector]
    tensors = [
        torch.as_tensor(FlatView(matrix), device=device).view(
            getattr(torch, ELEMENT_TYPES[matrix.type].dtype)
        )
        for matrix in matrices
    ]

    def grid(tile: dict[str, int]) -> tuple[int]:
        return (tile_count(problem, tile["BM"], tile["BN"]),)

    def run() -> None:
        with torch.cuda.stream(stream):
            kernel[grid](*tensors, problem.m, problem.n, problem.k)

    return [(TRITON, run)]


def kernel_of(problem: Problem, kernels: ModuleType) -> Any:
    """The kernel of `triton_kernels.py` that computes the problem; None if none does."""
    if problem.batch > 1 or problem.epilogue != "none":
        return None
    if (problem.scale, problem.layout) == ("block", "nt"):
        return kernels.block_scaled
    plain = problem.compute in ("bf16", "f16") and problem.layout == "nn"
    return kernels.product if plain else None
