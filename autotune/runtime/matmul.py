"""matmul() of arrays of any shape: checks and look-ups that run once, and the short warm call."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from autotune.driver.dependent_launch import Dependence
from autotune.errors import ArrayError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.binding import bind_call, choice
from autotune.runtime.checked_operands import (
    OPERANDS,
    Addresses,
    Arrays,
    CheckedOperands,
    Keywords,
    addresses_of,
    check_factors,
    checked_operands,
    refuse_overlap,
)
from autotune.runtime.executable import BoundGemm
from autotune.runtime.first_product import Racer, race_first
from autotune.runtime.frameworks import GemmCall
from autotune.runtime.native import native_calls
from autotune.runtime.scales import Scales, described
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")
Result = tuple[tuple[int, ...], str | None]
Operands = tuple[ArrayInfo, ArrayInfo, ArrayInfo | None, Scales | None]
"""A, B, C, which may not be allocated yet, and the scales of A and B, if there are any."""

VECTOR = 16  # bytes in the widest vector of a kernel: a plan depends on addresses modulo this only
KEPT_CALLS = 4096  # bound gemms, at about a kilobyte each; when there are more, all are dropped


class Matmul:
    """`C = act(alpha scale_a op(A) scale_b op(B) + beta C + bias)` for arrays of any shape.

    Operands with the signature of an earlier call are not checked again. If their addresses are
    those of that call too, its bound gemm is launched again.
    """

    racer: Racer | None = None  # races a product without a record, in the quick mode
    # The `output` of the results that it allocates; None is the default of the precision.
    _output: str | None = None

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._results: dict[Any, Result] = {}
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
        scale_a: Any = None,
        scale_b: Any = None,
        scale: str | None = None,
        accumulate: str | None = None,
        out_dtype: Any = None,
        residual: Any = None,
        scale_result: Any = None,
        amax: Any = None,
    ) -> Array:
        """Enqueues the gemm on the caller's current stream; see `autotune.matmul`."""
        if out is None or out_dtype is not None:
            out = self._out(a, b, out, beta, out_dtype, self._epilogue(False, activation, False))
        absent = bias is None, scale_a is None and scale_b is None, residual is None
        rest = alpha, beta, activation, compute, accumulate, scale, dependent, cold, vendor, *absent
        operands = a, b, out, bias, scale_a, scale_b, residual
        if verify:
            self._verify((*operands, scale_result, amax), rest)
        plain = scale_result is None and amax is None
        native = self._native.by_type.get(type(a)) if plain else None
        repeated = native is not None and native.repeat(operands, rest)
        if repeated is True:
            return out
        gemm = repeated or self._find((*operands, scale_result, amax), rest)
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
        scale_a: Any = None,
        scale_b: Any = None,
        scale: str | None = None,
        accumulate: str | None = None,
        out_dtype: Any = None,
        residual: Any = None,
        quick: bool = False,
    ) -> None:
        """Tunes the problem that two arrays pose, unless it is tuned, or recorded and `quick`."""
        describe, output = self.runtime.describe, self.runtime.describe_if(out, "out")
        scales = described(self.runtime.describe, scale_a, scale_b)
        operands = describe(a, "A"), describe(b, "B"), output, scales
        epilogue = self._epilogue(bias is not None, activation, residual is not None)
        result = None if out_dtype is None else problems.output_of(out_dtype)
        problem = self._problem(operands, epilogue, compute, scale, accumulate, result)
        ordinal = arrays.check(operands[0])
        if operands[0].empty or operands[1].empty:
            return
        if not self.runtime.resolve(problem, ordinal).enough(quick):
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next call, because it has been tuned since."""
        self.runtime.forget(problem)
        self._checked.clear()
        self._bound.clear()
        self._native.forget()

    def _epilogue(self, has_bias: bool, activation: str | None, has_residual: bool) -> str:
        return epilogue_of(has_bias, activation, has_residual)

    def _problem(
        self,
        operands: Operands,
        epilogue: str,
        compute: str | None,
        scale: str | None,
        accumulate: str | None,
        output: str | None = None,
    ) -> Problem:
        return problems.problem_of(
            *operands,
            compute=compute,
            epilogue=epilogue,
            output=output,
            scale=scale,
            accumulate=accumulate or "exact",
        )

    def _choice(
        self, problem: Problem, ordinal: int, alignment: Alignment, sums: bool, cold: bool, on: Any
    ) -> tuple[Config, bool]:
        """The configuration for arrays `on`, and whether the vendor's library is to run them."""
        if self.racer and sums:
            race_first(self.runtime, self.racer, problem, ordinal, cold, on)
        return choice(self.runtime, problem, ordinal, alignment, sums, "cold" if cold else "hot")

    def _out(self, a: Any, b: Any, out: Any, beta: float, out_dtype: Any, epilogue: str) -> Any:
        """The output of a call: `out`, which has to be of the `out_dtype`, or a new array."""
        if out is not None:
            problems.check_dtype(self.runtime.describe(out, "out"), out_dtype)
            return out
        if beta:
            raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
        shape, dtype = self._result(a, b, out_dtype, epilogue)
        return self.runtime.framework(a, "A").empty(a, shape, dtype)

    def _result(self, a: Any, b: Any, out_dtype: Any, epilogue: str) -> Result:
        """The shape of the result of two arrays, and its dtype if that is not the one of A."""
        library_a, library_b = self.runtime.framework(a, "A"), self.runtime.framework(b, "B")
        key = library_a.read(a)[1], library_b.read(b)[1], out_dtype, epilogue
        result = self._results.get(key)
        if result is None:
            described = library_a.describe(a, "A"), library_b.describe(b, "B")
            output = self._output if out_dtype is None else problems.output_of(out_dtype)
            problem = problems.problem_of(*described, output=output, epilogue=epilogue)
            own, dtype = described[0].dtype, problem.output_element.dtype
            shape = problems.result_shape(*described, epilogue)
            result = self._results[key] = shape, None if dtype == own else dtype
        return result

    def _find(self, operands: Arrays, rest: tuple[Any, ...]) -> BoundGemm | None:
        """The bound gemm of a call; None if there is nothing to launch: the vendor's library has
        run it already, or the result is empty."""
        key = self._key(operands, rest)
        gemm = self._bound.get(key)
        if gemm is None:
            options = Keywords(*rest)
            checked = self._check_call(key, operands, options)
            if not checked.offsets:
                return None
            if options.vendor and checked.vendor:
                # Not kept: the settings of the framework decide at each call.
                done = self._run_vendor(checked.problem, operands, options)
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
        return tuple(reads), rest

    def _verify(self, operands: Arrays, rest: tuple[Any, ...]) -> None:
        """Checks the kernel of a call once, unless the vendor's library multiplies."""
        options = Keywords(*rest)
        checked = self._check_call(self._key(operands, rest), operands, options)
        if (options.vendor and checked.vendor) or not (checked.offsets and checked.sums):
            return
        stream = self.runtime.framework(operands[0], "A").stream(operands[:3], checked.ordinal)
        if self.runtime.driver.capture(stream):
            raise UsageError("verify=True waits for the GPU; call it before the graph is captured")
        self.runtime.verify(checked.config, checked.problem, checked.ordinal, checked.alignment)

    def _keep_natively(self, operands: Arrays, rest: tuple[Any, ...], gemm: BoundGemm) -> None:
        """Makes machine code recognise a call, if it can read all of its arrays."""
        if operands[7:] != (None, None):
            return
        by_type = self._native.by_type
        for array in operands:
            if array is not None and type(array) not in by_type:
                self._native.serve(self.runtime.framework(array, "A"), type(array))
        native = by_type[type(operands[0])]
        if native is not None:
            native.keep(operands[:7], rest, gemm)

    def _check_call(
        self, key: tuple[Any, ...], operands: Arrays, options: Keywords
    ) -> CheckedOperands:
        """The operands of a new call, checked."""
        reads = key[0]
        addresses = addresses_of(reads)
        signatures = tuple(read and read[1] for read in reads)
        offsets = tuple(address % VECTOR for address in addresses)
        signature = *signatures, *options[2:6], options.cold, *offsets  # without factors
        checked = self._checked.get(signature)
        if checked is None:
            checked = self._check(operands, options, addresses)
            self._checked[signature] = checked
        check_factors(checked.problem, options.alpha, options.beta)
        refuse_overlap(checked, addresses)
        return checked

    def _bind_call(self, key: tuple[Any, ...], checked: CheckedOperands) -> BoundGemm:
        """The bound gemm of a call with checked operands."""
        reads, options = key[0], Keywords(*key[1])
        factors = options.alpha, options.beta, Dependence(options.dependent)
        return bind_call(self.runtime, checked, addresses_of(reads), *factors)

    def _run_vendor(self, problem: Problem, operands: Arrays, options: Keywords) -> bool:
        """Enqueues the gemm by the vendor's library, if all operands are of one framework that
        offers it; whether it did."""
        a, b, out, *added = operands
        framework = self.runtime.framework(a, "A")
        rest = (self.runtime.framework(array, "B") for array in operands[1:] if array is not None)
        if any(type(owner) is not type(framework) for owner in rest):
            return False
        factors = options.alpha, options.beta
        return framework.vendor_gemm(GemmCall(problem, a, b, out, *factors, *added[:4]))

    def _check(self, operands: Arrays, options: Keywords, addresses: Addresses) -> CheckedOperands:
        """The operands of a new signature, checked.

        Raises:
            ArrayError: if no kernel can take them.
        """
        *matrices, bias, scale_a, scale_b, residual, scale_result, amax = operands
        a, b, out = map(self.runtime.describe, matrices, ("A", "B", "out"))
        scales = described(self.runtime.describe, scale_a, scale_b)
        epilogue = self._epilogue(bias is not None, options.activation, residual is not None)
        words = options.compute, options.scale, options.accumulate
        problem = self._problem((a, b, out, scales), epilogue, *words)
        describe = self.runtime.describe_if
        of_result = describe(scale_result, "scale_result"), describe(amax, "amax")
        added = describe(bias, "bias"), scales, describe(residual, "residual"), of_result
        choose = partial(self._choice, cold=options.cold, on=matrices)
        return checked_operands(problem, (a, b, out), *added, addresses, choose)
