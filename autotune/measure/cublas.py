"""cuBLAS called directly: importing PyTorch would take longer than a quick race.

Constants and signatures are those of `cublas_api.h` of cuBLAS 12 and 13.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_longlong, c_void_p
from functools import partial
from typing import Any

from autotune.cuda.cublaslt import (
    DATA_TYPES,
    SUCCESS,
    WORKSPACE,
    CublasLt,
    Found,
    LibraryProblem,
    library_path,
)
from autotune.errors import MissingError, RunnerError
from autotune.families.plan import LibraryCall
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session

DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t

_MATRIX = c_void_p, c_int, c_int, c_longlong  # address, type, leading dimension, stride
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasGemmStridedBatchedEx": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int),
        *(POINTER(c_float), *_MATRIX, *_MATRIX, POINTER(c_float), *_MATRIX),
        *(c_int, c_int, c_int),
    ),
}


class Cublas:
    """libcublas with a handle, which lives as long as the process."""

    def __init__(self, library: Any) -> None:
        """Makes a handle in the current context.

        Raises:
            RunnerError: if the library refuses.
        """
        self._library = library
        for name, signature in SIGNATURES.items():
            getattr(library, name).argtypes = signature
        self._handle = c_void_p()
        self.call("cublasCreate_v2", byref(self._handle))

    @classmethod
    def load(cls) -> Cublas:
        """The installed library.

        Raises:
            MissingError: if there is none.
        """
        return cls(ctypes.CDLL(library_path("cublas")))

    def gemm(self, operands: Operands, stream: int) -> Run:
        """A run of C = op(A) op(B) on a stream.

        cuBLAS has columns where the problem has rows, so that it computes C^T = op(B)^T op(A)^T.
        """
        problem, told = operands.problem, LibraryProblem.of(operands.problem)
        matrices = operands.a, operands.b, operands.c
        a, b, c = (
            (matrix.address, DATA_TYPES[matrix.type], leading_dimension, stride)
            for matrix, leading_dimension, stride in zip(
                matrices, operands.leading_dimensions, operands.strides, strict=True
            )
        )
        self.call("cublasSetStream_v2", self._handle, stream)
        return partial(
            self.call,
            "cublasGemmStridedBatchedEx",
            *(self._handle, *told.operations),
            *(problem.n, problem.m, problem.k),
            *(byref(c_float(1.0)), *b, *a, byref(c_float(0.0)), *c),
            *(problem.batch, told.compute, DEFAULT_ALGORITHM),
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            RunnerError: for a status other than success.
        """
        status = getattr(self._library, name)(*arguments)
        if status != SUCCESS:
            raise RunnerError(f"{name} failed with status {status}")


def open_cublas(session: Session, operands: Operands) -> Run | None:
    """A run of the problem at alpha = 1 and beta = 0 in its precision on the session's stream; None
    for operands of 8 bits and for epilogues, and where cuBLAS is not installed."""
    problem = operands.problem
    if problem.precision.eight_bit or not problem.epilogue.plain:
        return None
    try:
        return Cublas.load().gemm(operands, session.stream)
    except (MissingError, RunnerError):
        return None


ALGORITHMS = "autotune.measure.cublas:open_algorithms"
"""The factory of cuBLASLt's algorithms as further baselines, as `GpuRunner.compare` takes it."""


def open_algorithms(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """Runs of C = op(A) op(B) in the problem's precision by cuBLASLt, one for each result of its
    heuristic.

    Returns:
        At most 16 runs with their names, the library's first choice first; none for a batch, an
        epilogue or operands of 8 bits. All of them share one workspace.

    Raises:
        MissingError: if the library is missing.
        RunnerError: if the library refuses.
    """
    problem = operands.problem
    if problem.batch > 1 or problem.epilogue != "none" or problem.precision.eight_bit:
        return []
    library, workspace = CublasLt.load(), session.allocate(WORKSPACE)
    values = {**operands.values(1.0, 0.0), "workspace": int(workspace)}

    def runner(listed: Found) -> Run:
        bound = library.bind(LibraryCall(problem, listed.algorithm), values)

        def run(_kept: object = workspace) -> None:
            bound.enqueue(values, session.stream, WORKSPACE)

        return run

    usable = filter(_launches, map(runner, library.heuristic(problem, values)))
    return [(f"cuBLASLt {rank}", run) for rank, run in enumerate(usable, 1)]


def _launches(run: Run) -> bool:
    """Whether the library accepts its own result, which it checks only at launch."""
    try:
        run()
    except RunnerError:
        return False
    return True
