"""The vendor baseline: cuBLAS on the same operands, through PyTorch or else called directly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.cuda.cublaslt import WORKSPACE, Found
from autotune.errors import MissingError, RunnerError
from autotune.families.plan import LibraryCall
from autotune.measure.operands import GuardedMatrix, Operands
from autotune.measure.session import Run, Session
from autotune.problem import ELEMENT_TYPES, GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div
from autotune.problem.vendor import fused, in_place, library_sizes

OpenBaseline = Callable[[Session, Operands], Run | None]
"""Opens the run of the baseline; None if it cannot compute the problem."""


@dataclass(frozen=True)
class FlatView:
    """The bytes between the guards of a buffer, as a one-dimensional CUDA array."""

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
    """Imports PyTorch, which takes seconds; none is fine.

    Device work, such as loading cuBLAS, is left to the first run, because another process may be
    measuring now.
    """
    with suppress(ImportError):
        import torch  # noqa: F401


def open_baseline(session: Session, operands: Operands) -> Run | None:
    """A run of the problem at alpha = 1 and beta = 0 in its precision on the session's stream.

    PyTorch runs the fastest function that fits, with a preallocated output: `mm`, with a bias
    `addmm`, for a batch `bmm` and `baddbmm`; an activation or the addition of a residual follows in
    place, unless cuBLASLt fuses the activation (`_addmm_activation`). For SwiGLU one product makes
    the gates and their values, in two halves of a copy of B; SiLU in place and a
    multiplication follow. TF32 is allowed for `tf32` alone: `tf32x3` is compared with fp32. An fp32
    output of 16-bit operands needs PyTorch 2.8. Operands of 8 bits go to `_scaled_mm` or `_int_mm`.
    Without PyTorch cuBLAS itself computes plain products. None if neither fits.
    """
    return _torch(session, operands) or open_cublas(session, operands)


def open_quick_baseline(session: Session, operands: Operands) -> Run | None:
    """The run of cuBLAS itself, else that of PyTorch, whose import takes seconds."""
    return open_cublas(session, operands) or _torch(session, operands)


def open_cublas(session: Session, operands: Operands) -> Run | None:
    """A run of the problem at alpha = 1 and beta = 0 in its precision on the session's stream; None
    for operands of 8 bits and for epilogues, and where cuBLAS is not installed."""
    problem = operands.problem
    if problem.precision.eight_bit or not problem.epilogue.plain:
        return None
    try:
        return session.cublas.gemm(problem, operands.values(1.0, 0.0), session.stream)
    except (MissingError, RunnerError):
        return None


ALGORITHMS = "autotune.measure.baseline:open_algorithms"
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
    library, workspace = session.cublaslt, session.allocate(WORKSPACE)
    values = {**operands.values(1.0, 0.0), "workspace": int(workspace)}

    def runner(listed: Found) -> Run:
        bound = library.bind(LibraryCall(problem, listed.algorithm), values)

        def run(_kept: object = workspace) -> None:
            bound.enqueue(values, session.stream, WORKSPACE)

        return run

    usable = filter(_launches, map(runner, library.heuristic(problem, values)))
    return [(f"cuBLASLt {rank}", run) for rank, run in enumerate(usable, 1)]


def _launches(run: Run) -> bool:
    """Whether an algorithm can be launched: some of its conditions are checked only then."""
    try:
        run()
    except RunnerError:
        return False
    return True


def _torch(session: Session, operands: Operands) -> Run | None:
    """A run of the problem by PyTorch; None without PyTorch, or where it has no function for it."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    tensors = _Tensors(torch, session, operands)
    with tensors.stream():
        scaled = operands.problem.precision.eight_bit
        run = _scaled_run(tensors) if scaled else _plain_run(tensors)
    return run and tensors.on_stream(run)


class _Tensors:
    """The operands as tensors of PyTorch, and the session's stream in PyTorch."""

    def __init__(self, torch: Any, session: Session, operands: Operands) -> None:
        self.torch, self.operands, self.problem = torch, operands, operands.problem
        self.device = torch.device("cuda", session.index)
        self._stream = torch.cuda.ExternalStream(session.stream, device=self.device)

    def elements(self, matrix: GuardedMatrix) -> Any:
        """All elements between the guards of a buffer, gaps included."""
        elements = self.torch.as_tensor(FlatView(matrix), device=self.device)
        return elements.view(getattr(self.torch, ELEMENT_TYPES[matrix.type].dtype))

    def matrix(self, matrix: GuardedMatrix, *, transposed: bool = False) -> Any:
        """A matrix, or the matrices of a batch along the first dimension."""
        shape: tuple[int, ...] = matrix.rows, matrix.columns
        strides: tuple[int, ...] = matrix.leading_dimension, 1
        if transposed:
            shape, strides = shape[::-1], strides[::-1]
        if self.problem.batch > 1:
            shape, strides = (self.problem.batch, *shape), (matrix.stride, *strides)
        return self.torch.as_strided(self.elements(matrix), shape, strides)

    def residual(self) -> Any:
        """The residual; None without one."""
        return self.matrix(self.operands.residual) if self.problem.has_residual else None

    def stream(self) -> Any:
        """A context in which PyTorch enqueues on the session's stream."""
        return self.torch.cuda.stream(self._stream)

    def on_stream(self, run: Run) -> Run:
        """The run on the session's stream."""
        if isinstance(run, PaddedRun):
            return PaddedRun(*map(self.on_stream, (run.run, run.before, run.after)))

        def on_stream() -> None:
            with self.stream():
                run()

        return on_stream


def _plain_run(tensors: _Tensors) -> Run | None:
    """A run on operands of 16 or 32 bits."""
    torch, problem, operands = tensors.torch, tensors.problem, tensors.operands
    torch.set_float32_matmul_precision("high" if problem.precision.vendor == "tf32" else "highest")
    fused_product = fused(torch, problem)
    multiply = fused_product or _torch_function(torch, problem)
    if multiply is None:
        return None
    a = tensors.matrix(operands.a, transposed=problem.layout[0] == "t")
    b = tensors.matrix(operands.b, transposed=problem.layout[1] == "t")
    c = tensors.matrix(operands.c)
    if problem.gated:
        return gated_run(torch, problem, multiply, a, b, c)
    bias = [tensors.elements(operands.bias)] if problem.has_bias else []
    activation = None if fused_product else problem.activation
    activate = None if activation is None else in_place(torch, activation)
    added = tensors.residual()

    def run() -> None:
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


def _scaled_run(tensors: _Tensors) -> Run | None:
    """A run on operands of 8 bits; None where PyTorch has no function for the problem.

    It reads and writes the operands themselves where the library takes them, else padded copies.
    Integer products give their int32 sums; scales and the rounding to C's type are not timed.
    """
    torch, problem = tensors.torch, tensors.problem
    integer = problem.operand_elements[0].integer
    if problem.batch > 1 or problem.has_fp8_output or (integer and not problem.epilogue.plain):
        return None
    copies = _Copies(tensors)
    if integer:
        return copies.padded(lambda: torch._int_mm(copies.left, copies.right, out=copies.out))
    bias = copies.bias()
    activate = None if problem.activation is None else in_place(torch, problem.activation)
    fast, added = problem.accumulate == "fast", tensors.residual()

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


@dataclass(frozen=True)
class PaddedRun:
    """A run of a library that refuses the operands as they are, on copies of them.

    Calling it computes the product from the copies; that is timed.

    Attributes:
        run: computes the product.
        before: copies the operands.
        after: puts the result into C.
    """

    run: Run
    before: Run
    after: Run

    def __call__(self) -> None:
        self.run()

    def whole(self) -> None:
        """Copies the operands, computes the product and puts it into C; that is verified."""
        self.before()
        self.run()
        self.after()


class _Copies:
    """The operands as the library takes them, and what copies them there.

    Attributes:
        left, right: A, (m, k) by rows, and B, (k, n) by columns.
        scale_a, scale_b: the scales.
        out: the result, C itself if it fits.
    """

    def __init__(self, tensors: _Tensors) -> None:
        torch, operands, problem = tensors.torch, tensors.operands, tensors.problem
        self._tensors, self._torch, self._device = tensors, torch, tensors.device
        self._operands, self._problem = operands, problem
        self._steps: list[tuple[Any, Any]] = []
        m, n, k = self._sizes = library_sizes(problem)
        self._apart = problem.gated and problem.scale != "block"
        self.left = self._operand(operands.a, problem.layout[0] == "t", (m, k))
        right = problem.layout[1] == "n", (n, k)
        self.right = self._operand(operands.b, *right, apart=self._apart).t()
        self.scale_a, self.scale_b = (self._scales(side) for side in (0, 1))
        self._c = tensors.matrix(operands.c)
        self._integer = problem.operand_elements[0].integer
        fits = (m, n) == (problem.m, problem.width)
        if self._integer:
            fits = fits and problem.output == "i32"
        dtype = torch.int32 if self._integer else self._c.dtype
        self.out = self._c if fits else torch.zeros((m, n), dtype=dtype, device=self._device)

    def padded(self, run: Run) -> Run:
        """The run on the copies; itself if there are none."""
        if not self._steps and self.out is self._c:
            return run
        return PaddedRun(run, self._copy, self._finish)

    def bias(self) -> Any:
        """The bias; None without one."""
        if not self._problem.has_bias:
            return None
        return self._widened(self._tensors.elements(self._operands.bias), (self._sizes[1],), 0)

    def combine(self) -> None:
        """Makes C of the gates and their values, which stay interleaved where they share scales."""
        problem, out = self._problem, self._c
        product = self.out[: problem.m, : problem.n]
        if self._apart:
            gate, up = halves_of(product)
        else:
            gate, up, out = pairs_of(product, out)
        combine(self._torch, gate, up, out)

    def _copy(self) -> None:
        for to, source in self._steps:
            to.copy_(source)

    def _finish(self) -> None:
        problem = self._problem
        if self.out is self._c or problem.gated:
            return
        result = self.out[: problem.m, : problem.n]
        if self._integer and problem.scale != "none":
            result = result.to(self._torch.float32) * (self.scale_a * self.scale_b)
        self._c.copy_(result)

    def _operand(
        self, matrix: GuardedMatrix, turned: bool, shape: tuple[int, int], *, apart: bool = False
    ) -> Any:
        """An operand with K along its rows, of at least its own sizes."""
        own = self._tensors.matrix(matrix)
        across = own.t() if turned else own
        if not turned and not apart and tuple(across.shape) == shape:
            return own
        # Not all functions of PyTorch take fp8; copies are of the same bits.
        bits = self._torch.zeros(shape, dtype=self._torch.int8, device=self._device)
        rows, columns = across.shape
        step = bits[:rows, :columns], across.view(self._torch.int8)
        self._steps.append(separated(*step, 0) if apart else step)
        return bits.view(own.dtype)

    def _scales(self, side: int) -> Any:
        problem, (m, n, k) = self._problem, self._sizes
        if problem.scale_shapes is None:
            return self._torch.ones((1,), dtype=self._torch.float32, device=self._device)
        vector = (self._operands.scale_a, self._operands.scale_b)[side].vector
        own = self._tensors.elements(vector)
        if problem.scale == "tensor":
            return own
        count = (m, n)[side]
        if problem.scale == "row":
            # The scales of an integer product apply to C, which is not padded.
            count = (problem.m, problem.n)[side] if problem.operand_elements[0].integer else count
            if side and self._apart:
                parted = self._torch.zeros(own.shape, dtype=own.dtype, device=self._device)
                self._steps.append(separated(parted, own, 0))
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


Copy = tuple[Any, Any]
"""The destination and the source of a copy."""


def separated(to: Any, source: Any, axis: int) -> Copy:
    """The copy of interleaved gates and values to two halves along an axis."""
    shape = tuple(source.shape)
    pairs = shape[axis] // (2 * GATE_SPAN)
    halves = to.reshape(*shape[:axis], 2, pairs, GATE_SPAN, *shape[axis + 1 :])
    interleaved = source.reshape(*shape[:axis], pairs, 2, GATE_SPAN, *shape[axis + 1 :])
    return halves, interleaved.swapaxes(axis, axis + 1)


def halves_of(product: Any) -> tuple[Any, Any]:
    """The gates and the values of a product, its two halves."""
    half = product.shape[-1] // 2
    return product[..., :half], product[..., half:]


def pairs_of(product: Any, c: Any) -> tuple[Any, Any, Any]:
    """The interleaved gates and values of a product, and C in their shape."""
    *rows, columns = product.shape
    pairs = product.reshape(*rows, columns // (2 * GATE_SPAN), 2, GATE_SPAN)
    return pairs[..., 0, :], pairs[..., 1, :], c.reshape(*rows, -1, GATE_SPAN)


def combine(torch: Any, gate: Any, up: Any, out: Any) -> None:
    """`out = silu(gate) up`; `gate` becomes its SiLU."""
    torch.ops.aten.silu_(gate)
    torch.mul(gate, up, out=out)


def gated_run(torch: Any, problem: Problem, multiply: Any, a: Any, b: Any, c: Any) -> Run:
    """A run of PyTorch's function of A and B; B is copied beforehand, with its gates apart."""
    *batch, k, n = b.shape
    turned = problem.layout[1] == "t"
    sizes = (n, k) if turned else (k, n)
    weights = torch.empty((*batch, *sizes), dtype=b.dtype, device=b.device)
    parted = weights.swapaxes(-1, -2) if turned else weights
    to, source = separated(parted, b, len(batch) + 1)
    product = torch.empty((*c.shape[:-1], n), dtype=c.dtype, device=c.device)
    gate, up = halves_of(product)

    def run() -> None:
        multiply(a, parted, out=product)
        combine(torch, gate, up, c)

    return PaddedRun(run, lambda: to.copy_(source), lambda: None)  # C is where it belongs
