"""A problem in the numbers of `cublasLt.h` and `library_types.h` of CUDA 12 and 13.

The library has columns where the problem has rows, so that it computes C^T = op(B)^T op(A)^T: its
first operand is B, its second A.
"""

from __future__ import annotations

from typing import NamedTuple

from autotune.problem import Problem

DATA_TYPES = {"f32": 0, "f16": 2, "i8": 3, "i32": 10, "bf16": 14, "e4m3": 28, "e5m2": 29}
"""cudaDataType_t of the storage of an element."""
COMPUTE_32F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 68, 72, 77
"""cublasComputeType_t: fp32 sums; int32 sums; fp32 operands rounded to tf32."""
RELU, BIAS, GELU = 2, 4, 32
"""cublasLtEpilogue_t: the bits of an activation and of the bias; 1 without any."""
SCALE_MODES = {"none": (0, 0), "tensor": (0, 0), "row": (3, 3), "block": (4, 5)}
"""cublasLtMatmulMatrixScale_t of A and of B: one number; one for each row or column; one for
each 128 elements, or block of 128 x 128."""
ALIGNMENT = 16
"""Alignment in bytes that the heuristic assumes of the addresses of all operands."""


class LibraryProblem(NamedTuple):
    """A problem in the library's numbers, without its sizes.

    Attributes:
        compute: the cublasComputeType_t.
        factor: the cudaDataType_t of alpha and beta.
        operations: the cublasOperation_t of its first operand, B, and of its second, A.
        types: the cudaDataType_t of B, A and C.
        epilogue: the cublasLtEpilogue_t.
        bias: the cudaDataType_t of the bias.
        scales: the cublasLtMatmulMatrixScale_t of B and A; None without scales.
        fast: whether sums of fp8 products stay in tensor cores.
    """

    compute: int
    factor: int
    operations: tuple[int, int]
    types: tuple[int, int, int]
    epilogue: int
    bias: int
    scales: tuple[int, int] | None
    fast: bool

    @classmethod
    def of(cls, problem: Problem) -> LibraryProblem:
        """The numbers of a problem without a `fault`."""
        integer = problem.compute == "i8"
        tf32 = problem.precision.vendor == "tf32"
        activation = {"relu": RELU, "gelu_tanh": GELU}.get(problem.activation or "", 0)
        scale_a, scale_b = SCALE_MODES[problem.scale]
        a, b = (DATA_TYPES[name] for name in problem.operand_types)
        operation_a, operation_b = (int(letter == "t") for letter in problem.layout)
        return cls(
            COMPUTE_32I if integer else COMPUTE_32F_FAST_TF32 if tf32 else COMPUTE_32F,
            DATA_TYPES["i32" if integer else "f32"],
            (operation_b, operation_a),
            (b, a, DATA_TYPES[problem.output_type]),
            (activation | (BIAS if problem.has_bias else 0)) or 1,
            DATA_TYPES[problem.bias_element.name],
            None if problem.scale == "none" else (scale_b, scale_a),
            problem.accumulate == "fast",
        )


def fault(problem: Problem) -> str | None:
    """The part of a problem that the library cannot fuse or store; None if its heuristic may be
    asked."""
    if problem.activation not in (None, "relu", "gelu_tanh") or not problem.epilogue.elementwise:
        return f"cuBLASLt fuses no {problem.epilogue}"
    if problem.activation == "gelu_tanh" and problem.output_type == "f32":
        return "cuBLASLt's GELU is not as accurate as fp32"
    if problem.compute == "i8" and problem.output != "i32":
        return "cuBLASLt gives products of int8 as int32 alone"
    if problem.has_fp8_output:
        return "an fp8 C is not asked of cuBLASLt"
    return None
