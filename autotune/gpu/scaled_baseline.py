"""The vendor baseline of 8-bit operands: `torch._scaled_mm` and `torch._int_mm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.gpu.gates import apart as gates_apart
from autotune.gpu.gates import combine, halves_of, pairs_of
from autotune.gpu.guarded import GuardedMatrix
from autotune.gpu.operands import Operands
from autotune.gpu.padded_run import PaddedRun
from autotune.gpu.session import Run
from autotune.problem import SCALE_BLOCK
from autotune.problem.integers import ceil_div
from autotune.problem.vendor import in_place, library_sizes

View = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides, in elements, of an operand as op() presents it."""
Viewed = Callable[[GuardedMatrix, View], Any]
"""Makes a tensor of an operand."""


def scaled_run(torch: Any, device: Any, operands: Operands, viewed: Viewed) -> Run | None:
    """A run of the problem; None where PyTorch has no function for it.

    It reads and writes the operands themselves where the library takes them, else padded copies.
    Integer products give their int32 sums; scales and the rounding to C's type are not timed.
    """
    problem = operands.problem
    integer = problem.operand_elements[0].integer
    if problem.batch > 1 or problem.has_fp8_output or (integer and not problem.epilogue.plain):
        return None
    copies = _Copies(torch, device, operands, viewed)
    if integer:
        return copies.padded(lambda: torch._int_mm(copies.left, copies.right, out=copies.out))
    bias = copies.bias()
    activate = None if problem.activation is None else in_place(torch, problem.activation)
    fast, added = problem.accumulate == "fast", copies.residual()

    def run() -> None:
        torch._scaled_mm(
            copies.left,
            copies.right,
            copies.scale_a,
            copies.scale_b,
            bias=bias,
            out_dtype=copies.out.dtype,
            use_fast_accum=fast,
            out=copies.out,
        )
        if activate is not None:
            activate(copies.out)
        if problem.gated:
            copies.combine()
        if added is not None:
            result = copies.out[: problem.m, : problem.n]
            torch.add(result, added, out=result)

    return copies.padded(run)


class _Copies:
    """The operands as the library takes them, and what copies them there.

    Attributes:
        left, right: A, (m, k) by rows, and B, (k, n) by columns.
        scale_a, scale_b: the scales.
        out: the result, C itself if it fits.
    """

    def __init__(self, torch: Any, device: Any, operands: Operands, viewed: Viewed) -> None:
        self._torch, self._device, self._operands = torch, device, operands
        self._viewed = viewed
        self._steps: list[tuple[Any, Any]] = []
        problem = operands.problem
        m, n, k = self._sizes = library_sizes(problem)
        self._apart = problem.gated and problem.scale != "block"
        self.left = self._operand(operands.a, problem.layout[0] == "t", (m, k))
        right = problem.layout[1] == "n", (n, k)
        self.right = self._operand(operands.b, *right, apart=self._apart).t()
        self.scale_a, self.scale_b = (self._scales(side) for side in (0, 1))
        self._c = self._stored(operands.c)
        self._integer = problem.operand_elements[0].integer
        fits = (m, n) == (problem.m, problem.width)
        if self._integer:
            fits = fits and problem.output == "i32"
        dtype = torch.int32 if self._integer else self._c.dtype
        self.out = self._c if fits else torch.zeros((m, n), dtype=dtype, device=device)

    def padded(self, run: Run) -> Run:
        """The run on the copies; itself if there are none."""
        if not self._steps and self.out is self._c:
            return run
        return PaddedRun(run, self._copy, self._finish)

    def bias(self) -> Any:
        """The bias; None without one."""
        problem, n = self._operands.problem, self._sizes[1]
        if not problem.has_bias:
            return None
        own = self._viewed(self._operands.bias, ((problem.n,), (1,)))
        return self._widened(own, (n,), 0)

    def combine(self) -> None:
        """Makes C of the gates and what they are for. Where these share the scales of blocks, they
        are interleaved."""
        problem, out = self._operands.problem, self._c
        product = self.out[: problem.m, : problem.n]
        if self._apart:
            gate, up = halves_of(product)
        else:
            gate, up, out = pairs_of(product, out)
        combine(self._torch, gate, up, out)

    def residual(self) -> Any:
        """The residual; None without one."""
        operands = self._operands
        return self._stored(operands.residual) if operands.problem.has_residual else None

    def _copy(self) -> None:
        for to, source in self._steps:
            to.copy_(source)

    def _finish(self) -> None:
        if self.out is self._c or self._operands.problem.gated:
            return
        problem = self._operands.problem
        result = self.out[: problem.m, : problem.n]
        if self._integer and problem.scale != "none":
            result = result.to(self._torch.float32) * (self.scale_a * self.scale_b)
        self._c.copy_(result)

    def _stored(self, matrix: GuardedMatrix) -> Any:
        shape = matrix.rows, matrix.columns
        return self._viewed(matrix, (shape, (matrix.leading_dimension, 1)))

    def _operand(
        self, matrix: GuardedMatrix, turned: bool, shape: tuple[int, int], *, apart: bool = False
    ) -> Any:
        """An operand with K along its rows, of at least its own sizes."""
        own = self._stored(matrix)
        across = own.t() if turned else own
        if not turned and not apart and tuple(across.shape) == shape:
            return own
        # Not all functions of PyTorch take fp8; copies are of the same bits.
        bits = self._torch.zeros(shape, dtype=self._torch.int8, device=self._device)
        rows, columns = across.shape
        step = bits[:rows, :columns], across.view(self._torch.int8)
        self._steps.append(gates_apart(*step, 0) if apart else step)
        return bits.view(own.dtype)

    def _scales(self, side: int) -> Any:
        problem, (m, n, k) = self._operands.problem, self._sizes
        if problem.scale_shapes is None:
            return self._torch.ones((1,), dtype=self._torch.float32, device=self._device)
        vector = (self._operands.scale_a, self._operands.scale_b)[side].vector
        own = self._viewed(vector, ((vector.length,), (1,)))
        if problem.scale == "tensor":
            return own
        count = (m, n)[side]
        if problem.scale == "row":
            # The scales of an integer product apply to C, which is not padded.
            count = (problem.m, problem.n)[side] if problem.operand_elements[0].integer else count
            if side and self._apart:
                parted = self._torch.zeros(own.shape, dtype=own.dtype, device=self._device)
                self._steps.append(gates_apart(parted, own, 0))
                own = parted
            column = self._widened(own, (count,), 1)
            return column.reshape((1, -1) if side else (-1, 1))
        blocks = ceil_div(k, SCALE_BLOCK)
        shape = (count // SCALE_BLOCK, blocks) if side else (blocks, count)
        return self._widened(own.reshape(problem.scale_shapes[side][1:]), shape, 1).t()

    def _widened(self, own: Any, shape: tuple[int, ...], value: int) -> Any:
        """The elements amid others of a value, if the shape is larger."""
        if tuple(own.shape) == shape:
            return own
        copy = self._torch.zeros(shape, dtype=own.dtype, device=self._device) + value
        self._steps.append((copy[tuple(slice(size) for size in own.shape)], own))
        return copy
