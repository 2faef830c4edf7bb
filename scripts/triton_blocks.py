"""A Triton kernel for fp8 operands with scales of blocks, as a baseline of `suite.py`.

The bench of `autotune.gpu` calls `triton_blocks:open_baselines` in its worker process. Triton's own
autotuner chooses among the tiles of `triton_kernel.py` when the first run is verified.
"""

from __future__ import annotations

from importlib import import_module

from results import TRITON

from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.vendor_baseline import FlatView
from autotune.problem import ELEMENT_TYPES


def open_baselines(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """A run of C = op(A) op(B), named `TRITON`; none for other scales, layouts, epilogues, a batch,
    or without Triton."""
    problem = operands.problem
    served = problem.scale == "block" and problem.layout == "nt"
    if not served or problem.batch > 1 or problem.epilogue != "none":
        return []
    try:
        torch, kernel = import_module("torch"), import_module("triton_kernel").block_scaled
    except ImportError:
        return []
    device = torch.device("cuda", session.index)
    stream = torch.cuda.ExternalStream(session.stream, device=device)
    matrices = operands.a, operands.b, operands.c, operands.scale_a.vector, operands.scale_b.vector
    tensors = [
        torch.as_tensor(FlatView(matrix), device=device).view(
            getattr(torch, ELEMENT_TYPES[matrix.type].dtype)
        )
        for matrix in matrices
    ]

    def grid(tile: dict[str, int]) -> tuple[int]:
        return (-(-problem.m // tile["BM"]) * -(-problem.n // tile["BN"]),)

    def run() -> None:
        with torch.cuda.stream(stream):
            kernel[grid](*tensors, problem.m, problem.n, problem.k)

    return [(TRITON, run)]
