"""cuBLASLt as a further baseline: each result of its heuristic as a run.

The GPU's bench calls `cublaslt:open_baselines` in its worker process (see `suite.py`).

It calls the library that comes with PyTorch, through ctypes: nvmath-python has bindings too, but
would be another dependency and loads only with a driver. Constants and structure are those of
`cublasLt.h` of cuBLAS 13.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from autotune.errors import RunnerError
from autotune.measure.cublas import library_path
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session

REQUESTED = 16
WORKSPACE = 64 * 2**20

SUCCESS = 0
CUDA_R_32F = 0
DATA_TYPES = {"f32": CUDA_R_32F, "f16": 2, "bf16": 14}  # cudaDataType_t
COMPUTE_32F = 68  # fp32 sums; IEEE multiplication of fp32 operands
COMPUTE_32F_FAST_TF32 = 77  # may convert fp32 operands to TF32
OP_N, OP_T = 0, 1
DESC_TRANSA, DESC_TRANSB = 3, 4
PREF_MAX_WORKSPACE_BYTES = 1


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`; the first member is the `cublasLtMatmulAlgo_t`."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "Create": (POINTER(c_void_p),),
    "MatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "MatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "MatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "MatmulPreferenceCreate": (POINTER(c_void_p),),
    "MatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "MatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, POINTER(HeuristicResult), POINTER(c_int)),
    "Matmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}


class CublasLt:
    """libcublasLt; handles and descriptors live as long as the process."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._functions = {name: library[f"cublasLt{name}"] for name in _SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes = _SIGNATURES[name]

    def call(self, name: str, *arguments: Any) -> None:
        """Calls `cublasLt<name>`.

        Raises:
            RunnerError: if it returns anything but success.
        """
        status = self._functions[name](*arguments)
        if status != SUCCESS:
            raise RunnerError(f"cublasLt{name} returned status {status}")

    def create(self, kind: str, *arguments: Any) -> c_void_p:
        """A new handle, descriptor, layout or preference."""
        handle = c_void_p()
        self.call(f"{kind}Create", byref(handle), *arguments)
        return handle

    def layout(self, kind: str, rows: int, columns: int, leading_dimension: int) -> c_void_p:
        """A row-major matrix of a type, as cuBLASLt sees it: its transpose, column-major."""
        return self.create("MatrixLayout", DATA_TYPES[kind], columns, rows, leading_dimension)

    def description(self, compute: str, layout: str) -> c_void_p:
        """The description of op(B)^T op(A)^T, whose column-major result is C, row-major.

        The library has no tf32x3: the baseline of `tf32x3` is its IEEE fp32.
        """
        precision = COMPUTE_32F_FAST_TF32 if compute == "tf32" else COMPUTE_32F
        description = self.create("MatmulDesc", precision, CUDA_R_32F)
        for attribute, letter in zip((DESC_TRANSA, DESC_TRANSB), reversed(layout), strict=True):
            value = c_int(OP_T if letter == "t" else OP_N)
            self.call("MatmulDescSetAttribute", description, attribute, byref(value), 4)
        return description

    def heuristic(
        self, handle: c_void_p, description: c_void_p, *layouts: c_void_p
    ) -> list[HeuristicResult]:
        """The results of its heuristic, best first, for operands aligned to 256 bytes."""
        preference = self.create("MatmulPreference")
        limit = c_size_t(WORKSPACE)
        attribute = PREF_MAX_WORKSPACE_BYTES
        self.call("MatmulPreferenceSetAttribute", preference, attribute, byref(limit), 8)
        results, count = (HeuristicResult * REQUESTED)(), c_int()
        proposed = (REQUESTED, results, byref(count))
        self.call("MatmulAlgoGetHeuristic", handle, description, *layouts, preference, *proposed)
        return [result for result in results[: count.value] if result.state == SUCCESS]


def open_baselines(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """Runs of C = op(A) op(B) in the problem's precision, one for each result of the heuristic.

    Alpha and beta are fp32.

    Returns:
        At most `REQUESTED` runs with their names, the library's first choice first; none for a
        batch, an epilogue or operands of 8 bits. All of them share one workspace.

    Raises:
        MissingError: if the library is missing.
        RunnerError: if the library refuses.
    """
    problem = operands.problem
    if problem.batch > 1 or problem.epilogue != "none" or problem.precision.eight_bit:
        return []
    library = CublasLt(library_path("cublasLt"))
    handle, description = library.create(""), library.description(problem.compute, problem.layout)
    layout_a, layout_b, layout_c = (
        library.layout(kind, rows, columns, leading_dimension)
        for kind, rows, columns, leading_dimension in zip(
            (*problem.operand_types, problem.output_type),
            *(problem.stored_rows, problem.leading_dimensions, operands.leading_dimensions),
            strict=True,
        )
    )
    results = library.heuristic(handle, description, layout_b, layout_a, layout_c, layout_c)
    workspace, unit, zero = session.allocate(WORKSPACE), c_float(1.0), c_float(0.0)

    def runner(result: HeuristicResult) -> Run:
        def run() -> None:
            library.call(
                "Matmul",
                *(handle, description, byref(unit)),
                *(operands.b.address, layout_b, operands.a.address, layout_a, byref(zero)),
                *(operands.c.address, layout_c, operands.c.address, layout_c),
                *(byref(result), int(workspace), WORKSPACE, session.stream),
            )

        return run

    usable = filter(_launches, map(runner, results))
    return [(f"cuBLASLt {rank}", run) for rank, run in enumerate(usable, 1)]


def _launches(run: Run) -> bool:
    """Whether the library accepts its own result, which it checks only at launch."""
    try:
        run()
    except RunnerError:
        return False
    return True
