"""The operands of one problem in device memory, each between two guard regions."""

from __future__ import annotations

from dataclasses import replace

from autotune.cuda.launches import Values
from autotune.errors import RunnerError
from autotune.gpu.guarded import GUARD, GuardedMatrix, OperandScales, vector
from autotune.gpu.session import Session
from autotune.problem import Problem
from autotune.problem.call import BY_NAME, Call
from autotune.problem.integers import ceil_div

GUARDS = 64 * GUARD
"""Bytes that the guards of all buffers take at most."""


class Scratch:
    """A growing vector of 4-byte words, always of the length last requested, so that a write past
    its end hits the guard."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._capacity = 0
        self.matrix = vector(0).allocated(session)

    def resize(self, words: int) -> None:
        """Makes the vector `words` long; its memory moves only if it has to grow.

        Raises:
            Exception: `session.MemoryError`, if too little memory is free.
        """
        if words > self._capacity:
            self._capacity = 0
            self.matrix = vector(0).allocated(self._session)  # frees the old one first
            size, free = vector(words).bytes + 2 * GUARD, self._session.free_bytes()
            if size > free:
                raise self._session.MemoryError(
                    f"workspace: needs {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                )
            self.matrix = vector(words).allocated(self._session)
            self._capacity = words
        self.matrix = replace(vector(words), allocation=self.matrix.allocation)

    def clear(self) -> None:
        """Zeroes the memory, including where shorter vectors had their guard."""
        if self._capacity:
            self._session.fill(self.matrix.address, 0, self._capacity)


class Operands:
    """The operands, workspace and counters, and the float64 reference A B (no gaps).

    Attributes:
        problem: the problem.
        leading_dimensions: elements from one row to the next of A, B and C as they are stored.
        strides: elements from one matrix of a batch to the next, of A, B and C.
        a, b, c, bias: the operands; a matrix that a batch shares exists once.
        residual: a matrix like C whose rows have twice as large gaps; empty where the problem has
            none.
        scale_a, scale_b: the scales of A and B; none where the problem has none.
        result: the scale of an fp8 C and `amax`, which its largest size raises; else empty.
        scale_of_c: the value of that scale.
        reference: the float64 product of A and B, m x n for each matrix of the batch.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: tuple[int, int, int] | None = None,
    ) -> None:
        """Allocates everything; leading dimensions and strides default to those without gaps.

        Raises:
            RunnerError: if the device has too little free memory, or matrices overlap.
        """
        self.problem = problem
        self.leading_dimensions = leading_dimensions or problem.leading_dimensions
        columns_abc, ld_abc = problem.leading_dimensions, self.leading_dimensions
        layouts = tuple(zip(problem.stored_rows, columns_abc, ld_abc, strict=True))
        stride_a, stride_b, stride_c = strides or (rows * ld for rows, _, ld in layouts)
        self.strides = stride_a, stride_b, stride_c
        if problem.batch > 1 and not stride_c:
            raise RunnerError(f"{problem}: all matrices of C in one place; give C a stride")
        types = (*problem.operand_types, problem.output_type)
        matrices = [
            GuardedMatrix(rows, columns, ld, problem.batch if stride else 1, stride, kind)
            for (rows, columns, ld), stride, kind in zip(layouts, self.strides, types, strict=True)
        ]
        matrices.append(vector(problem.n, problem.bias_element.name))
        residual = _residual(problem, self.leading_dimensions[2])
        scales = [OperandScales.of(problem, side) for side in (0, 1)]
        reference = _reference_bytes(problem)
        scale_bytes = sum(scale.vector.bytes for scale in scales)
        needed = sum(matrix.bytes for matrix in matrices) + scale_bytes + reference
        needed += residual.bytes
        _check_memory(session, problem, needed)
        self.a, self.b, self.c, self.bias = (matrix.allocated(session) for matrix in matrices)
        self.residual = residual.allocated(session)
        self.result = vector(2 if problem.has_fp8_output else 0).allocated(session)
        self.scale_of_c = 1.0
        self.scale_a, self.scale_b = (scale.allocated(session) for scale in scales)
        self.reference = session.allocate(reference)
        self._workspace, self._counters = Scratch(session), Scratch(session)

    @property
    def workspace(self) -> GuardedMatrix:
        """Memory that kernels may use freely."""
        return self._workspace.matrix

    @property
    def counters(self) -> GuardedMatrix:
        """Counters, which are zero when a kernel starts and have to be zero when it ends."""
        return self._counters.matrix

    @property
    def scale_addresses(self) -> tuple[int, int]:
        """Addresses of the scales of A and B; 0 without scales."""
        if self.problem.scale == "none":
            return 0, 0
        return self.scale_a.vector.address, self.scale_b.vector.address

    @property
    def result_addresses(self) -> tuple[int, int]:
        """Addresses of the scale of an fp8 C and of `amax`; 0 for others."""
        if not self.problem.has_fp8_output:
            return 0, 0
        return self.result.address, self.result.address + 4

    @property
    def residual_arguments(self) -> tuple[int, int, int]:
        """Address of the residual, its leading dimension and the stride of its matrices; 0 without
        one."""
        if not self.problem.has_residual:
            return 0, 0, 0
        return self.residual.address, self.residual.leading_dimension, self.residual.stride

    def reserve(self, workspace: int, counters: int) -> None:
        """Sets the workspace to exactly `workspace` bytes and the counters to `counters` words.

        Raises:
            Exception: `session.MemoryError`, if too little memory is free.
        """
        self._workspace.resize(ceil_div(workspace, 4))
        self._counters.resize(counters)

    def clear_counters(self) -> None:
        """Zeroes the counters for kernels that were verified in turn, each with its own length."""
        self._counters.clear()

    def values(self, alpha: float, beta: float) -> Values:
        """Values of the symbolic arguments of a launch."""
        matrices = {"a": self.a, "b": self.b, "c": self.c, "residual": self.residual}
        present = {
            name: matrix for name, matrix in matrices.items() if BY_NAME[name].present(self.problem)
        }
        addresses = {name: matrix.address for name, matrix in present.items()}
        addresses |= dict(zip(("scale_a", "scale_b"), self.scale_addresses, strict=True))
        addresses |= dict(zip(("scale_c", "amax"), self.result_addresses, strict=True))
        addresses["bias"] = self.bias.address if self.problem.has_bias else 0
        pitches = dict(zip("abc", self.leading_dimensions, strict=True))
        strides = dict(zip("abc", self.strides, strict=True))
        if "residual" in present:
            pitches["residual"] = self.residual.leading_dimension
            strides["residual"] = self.residual.stride
        scratch = {"workspace": self.workspace.address, "counters": self.counters.address}
        return {**Call(addresses, pitches, strides, alpha, beta).words(), **scratch}


def _residual(problem: Problem, leading_dimension: int) -> GuardedMatrix:
    """A residual whose rows lie further apart than those of C, if these have gaps; without device
    memory."""
    if not problem.has_residual:
        return vector(0, problem.output_type)
    leading = 2 * leading_dimension - problem.width
    sizes = problem.m, problem.width, leading, problem.batch
    return GuardedMatrix(*sizes, problem.m * leading, problem.output_type)


def operand_bytes(problem: Problem) -> int:
    """Bytes of device memory that operands without gaps take, guards included."""
    bias = problem.bias_element.bytes * problem.n
    return problem.bytes + bias + _reference_bytes(problem) + GUARDS


def _reference_bytes(problem: Problem) -> int:
    return 8 * problem.batch * problem.m * problem.n


def _check_memory(session: Session, problem: Problem, needed: int) -> None:
    """Raises a `RunnerError` unless `needed` bytes and the guards fit into free memory."""
    needed += GUARDS
    if needed > (free := session.free_bytes()):
        smaller = "shape or batch" if problem.batch > 1 else "shape"
        raise RunnerError(
            f"{problem}: verification needs {needed / 2**30:.1f} GiB of device memory, "
            f"{session.device.name} has {free / 2**30:.1f} GiB free; choose a smaller {smaller}"
        )
