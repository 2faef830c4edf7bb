"""matmul() of arrays of any shape: checks and look-ups that run once, and the short warm call."""

from __future__ import annotations

from typing import Any, TypeVar

from autotune.errors import ArrayError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.arrays import MatrixMemory, Operand
from autotune.runtime.checked_operands import (
    OPERANDS,
    Addresses,
    CheckedOperands,
    addresses_of,
    check_addresses,
    refuse_overlap,
)
from autotune.runtime.executable import BoundGemm
from autotune.runtime.frameworks import GemmCall
from autotune.runtime.native import native_calls
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")
Operands = tuple[Operand, Operand, Operand | None]
"""A, B and C, which may not be allocated yet."""

Arrays = tuple[Any, Any, Any, Any]
"""A, B, C and a bias or None."""

Options = tuple[str | None, str | None, bool]
"""The activation, the compute, and whether the operands are cold."""

VECTOR = 16
"""Bytes in the widest vector that a kernel loads. A plan depends on addresses modulo this only."""

KEPT_CALLS = 4096
"""Bound gemms that are kept, at about a kilobyte each. When there are more, all are dropped."""

_NO_BIAS = MatrixMemory(1, 0, 0)


class Matmul:
    """`C = act(alpha op(A) op(B) + beta C + bias)` for arrays of any shape and layout.

    Operands with the signature of an earlier call are not checked again. If their addresses are
    those of that call too, its bound gemm is launched again.
    """

    # Whether the outputs that it allocates are fp32 even for A and B of 16 bits.
    _wide = False

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._checked: dict[Any, CheckedOperands] = {}
        self._bound: dict[Any, BoundGemm] = {}
        self._native = native_calls(runtime.driver)

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Array | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: Any = None,
        activation: str | None = None,
        compute: str | None = None,
        vendor: bool = True,
        verify: bool = False,
        dependent: bool = False,
        cold: bool = False,
    ) -> Array:
        """Enqueues the gemm on the caller's current stream; see `autotune.matmul`."""
        if out is None:
            if beta:
                raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
            shape = self._shape(a, b)
            out = self.runtime.framework(a, "A").empty(a, shape, self._wide)
        rest = alpha, beta, activation, compute, dependent, cold, vendor, bias is None
        if verify:
            self._verify((a, b, out, bias), rest)
        native = self._native.by_type.get(type(a))
        gemm: BoundGemm | None = None
        if native is not None and not native.records_gradient(a, b, out, bias):
            repeated = native.repeat(a, b, out, bias, rest)
            if repeated is True:
                return out
            gemm = repeated or None
        if gemm is None:
            gemm = self._find((a, b, out, bias), rest)
        if gemm is not None:
            stream = self.runtime.framework(a, "A").stream((a, b, out), gemm.ordinal)
            gemm.enqueue(stream)
        return out

    def tune(
        self,
        a: Any,
        b: Any,
        tuner: Tuner,
        bias: Any = None,
        activation: str | None = None,
        compute: str | None = None,
        out: Any = None,
    ) -> None:
        """Tunes the problem that two arrays pose, unless it is tuned to the end already."""
        describe = self.runtime.describe
        output = None if out is None else describe(out, "out")
        operands = describe(a, "A"), describe(b, "B"), output
        problem = self._problem(operands, self._epilogue(bias is not None, activation), compute)
        ordinal = arrays.check(operands[0])
        if not self.runtime.resolve(problem, ordinal).final:
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next call, because it has been tuned since."""
        self.runtime.forget(problem)
        self._checked.clear()
        self._bound.clear()
        self._native.forget()

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation)

    def _problem(self, operands: Operands, epilogue: str, compute: str | None) -> Problem:
        return arrays.problem_of(*operands, compute=compute, epilogue=epilogue)

    def _choice(self, problem: Problem, ordinal: int, cold: bool) -> tuple[Config, bool]:
        """The configuration, and whether the vendor's library was measured to be faster."""
        answer = self.runtime.answer(problem, ordinal, "cold" if cold else "hot")
        return answer.config, answer.vendor

    def _shape(self, a: Any, b: Any) -> tuple[int, ...]:
        """The shape of the result of two arrays."""
        library_a, library_b = self.runtime.framework(a, "A"), self.runtime.framework(b, "B")
        signatures = library_a.read(a)[1], library_b.read(b)[1]
        shape = self._shapes.get(signatures)
        if shape is None:
            described = library_a.describe(a, "A"), library_b.describe(b, "B")
            problem = arrays.problem_of(*described)
            shape = self._shapes[signatures] = arrays.result_shape(*described, problem)
        return shape

    def _find(self, operands: Arrays, rest: tuple[Any, ...]) -> BoundGemm | None:
        """The bound gemm of a call; None if the vendor's library has already run it."""
        key = self._key(operands, rest)
        gemm = self._bound.get(key)
        if gemm is None:
            *_, vendor, _ = rest
            checked = self._check_call(key, operands)
            if vendor and checked.vendor:
                # Not kept: the settings of the framework decide at each call.
                done = self._run_vendor(checked.problem, operands, *rest[:2])
                return None if done else self._bind_call(key, checked)
            gemm = self._bind_call(key, checked)
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            self._bound[key] = gemm
        # Also for a known call, as machine code may have forgotten it.
        self._keep_natively(operands, rest, gemm)
        return gemm

    def _key(self, operands: Arrays, rest: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key of a call: calls with equal keys run the same bound gemm."""
        reads = [
            None if array is None else self.runtime.framework(array, name).read(array)
            for array, name in zip(operands, OPERANDS, strict=True)
        ]
        return *reads, *rest

    def _verify(self, operands: Arrays, rest: tuple[Any, ...]) -> None:
        """Checks the kernel of a call once, unless the vendor's library multiplies."""
        *_, vendor, _ = rest
        checked = self._check_call(self._key(operands, rest), operands)
        if vendor and checked.vendor:
            return
        stream = self.runtime.framework(operands[0], "A").stream(operands[:3], checked.ordinal)
        if self.runtime.driver.capture(stream):
            raise UsageError("verify=True waits for the GPU; call it before the graph is captured")
        self.runtime.verify(checked.config, checked.problem, checked.ordinal, checked.alignment)

    def _keep_natively(self, operands: Arrays, rest: tuple[Any, ...], gemm: BoundGemm) -> None:
        """Makes machine code recognise a call, if it can read all of its arrays."""
        by_type = self._native.by_type
        for array in operands:
            if array is not None and type(array) not in by_type:
                self._native.serve(self.runtime.framework(array, "A"), type(array))
        native = by_type[type(operands[0])]
        if native is not None:
            native.keep(*operands, rest, gemm)

    def _check_call(self, key: tuple[Any, ...], operands: Arrays) -> CheckedOperands:
        """The operands of a new call, checked."""
        *reads, _, _, activation, compute, _, cold, _, _ = key
        addresses = addresses_of(reads)
        signatures = tuple(read and read[1] for read in reads)
        offsets = tuple(address % VECTOR for address in addresses[:3])
        signature = *signatures, activation, compute, cold, *offsets
        checked = self._checked.get(signature)
        if checked is None:
            checked = self._check(operands, (activation, compute, cold), addresses)
            self._checked[signature] = checked
        refuse_overlap(checked, addresses)
        return checked

    def _bind_call(self, key: tuple[Any, ...], checked: CheckedOperands) -> BoundGemm:
        """The bound gemm of a call with checked operands."""
        *reads, alpha, beta, _, _, dependent, _, _, _ = key
        problem, ordinal = checked.problem, checked.ordinal
        executable = self.runtime.executable(checked.config, problem, ordinal, checked.alignment)
        steps = checked.leading, checked.strides
        return executable.bind(addresses_of(reads), *steps, alpha, beta, dependent)

    def _run_vendor(self, problem: Problem, operands: Arrays, alpha: float, beta: float) -> bool:
        """Enqueues the gemm by the vendor's library, if all operands are of one framework that
        offers it; whether it did."""
        a, b, out, bias = operands
        framework = self.runtime.framework(a, "A")
        rest = (self.runtime.framework(array, "B") for array in operands[1:] if array is not None)
        if any(type(owner) is not type(framework) for owner in rest):
            return False
        return framework.vendor_gemm(GemmCall(problem, a, b, out, alpha, beta, bias))

    def _check(self, operands: Arrays, options: Options, addresses: Addresses) -> CheckedOperands:
        """The operands of a new signature, checked.

        Raises:
            ArrayError: if no kernel can take them.
        """
        activation, compute, cold = options
        *matrices, bias = operands
        a, b, out = map(self.runtime.describe, matrices, ("A", "B", "out"))
        epilogue = self._epilogue(bias is not None, activation)
        problem = self._problem((a, b, out), epilogue, compute)
        ordinal = arrays.check(a)
        memory_a, memory_b = (
            arrays.memory_of(matrix, letter)[1]
            for matrix, letter in zip((a, b), problem.layout, strict=True)
        )
        memory_c = arrays.check_out(out, arrays.result_shape(a, b, problem), ordinal)
        memory_bias = _NO_BIAS
        if bias is not None:
            described = self.runtime.describe(bias, "bias")
            memory_bias = arrays.check_bias(described, problem.n, ordinal, out.dtype)
        leading = memory_a.leading, memory_b.leading, memory_c.leading
        strides = memory_a.stride, memory_b.stride, memory_c.stride
        memory = memory_a, memory_b, memory_c, memory_bias
        check_addresses(addresses, memory)
        alignment = Alignment.of(leading, addresses[:3], arrays.sizes(problem), strides)
        choice = self._choice(problem, ordinal, cold)
        return CheckedOperands(problem, ordinal, memory, leading, strides, alignment, *choice)
