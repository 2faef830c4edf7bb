"""matmul() of arrays of any shape: checks and look-ups that run once, and the short warm call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from autotune.cuda.launches import Dependence
from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.problem.call import BY_NAME
from autotune.runners.objective import Objective, time_objective
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.binding import bind_call, choice, verify_call
from autotune.runtime.checked_operands import (
    DEFAULTS,
    CallOptions,
    CheckedOperands,
    check_factors,
    checked_operands,
    named_operands,
    refuse_overlap,
)
from autotune.runtime.executable import BoundGemm
from autotune.runtime.first_product import Racer, race_first
from autotune.runtime.frameworks import GemmCall
from autotune.runtime.native import native_calls
from autotune.runtime.scales import scales_of
from autotune.runtime.state import Reads, Runtime, Tuner, addresses_of
from autotune.settings import Policy
from autotune.settings import policy as current_policy

Array = TypeVar("Array")
Result = tuple[tuple[int, ...], str | None]
Operands = Mapping[str, Any]
"""The arrays of a call by the names of `OPERANDS`; what is absent is left out."""

VECTOR = 16  # bytes in the widest vector of a kernel: a plan depends on addresses modulo this only
POLICY = CallOptions._fields.index("policy")
KEPT_CALLS = 4096  # bound gemms, at about a kilobyte each; when there are more, all are dropped


class Matmul:
    """`C = act(alpha scale_a op(A) scale_b op(B) + beta C + bias)` for arrays of any shape.

    Operands with the signature of an earlier call are not checked again. If their addresses are the
    same too, the bound gemm of that call is launched again.
    """

    racer: Racer | None = None  # races a product without a record, in the quick mode
    # The `output` of the results that it allocates; None is the default of the precision.
    _output: str | None = None
    # How A and B have to be stored; None is as they are.
    _layout: str | None = None

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
        scale: str | None = None,
        accumulate: str | None = None,
        out_dtype: Any = None,
        policy: Policy | None = None,
        **further: Any,
    ) -> Array:
        """Enqueues the gemm on the caller's current stream; see `autotune.matmul`.

        `further` are the `FurtherArrays` beside the bias. Nothing is tuned.
        """
        if bias is not None:
            further["bias"] = bias
        if policy is None:
            policy = current_policy()
        options = alpha, beta, activation, compute, accumulate, scale, policy
        return self.run(a, b, out, options, further, out_dtype)

    def run(
        self,
        a: Any,
        b: Any,
        out: Array | None,
        options: tuple[Any, ...],
        further: Mapping[str, Any],
        out_dtype: Any = None,
    ) -> Array:
        """Enqueues the gemm, as a call does.

        Args:
            a: A.
            b: B.
            out: C, or None.
            options: the fields of `CallOptions`; a plain tuple, which takes less time to make.
            further: the operands besides by their keywords; None is an absent one.
            out_dtype: the type of the result.
        """
        if out is None or out_dtype is not None:
            out = self._out(a, b, out, CallOptions(*options), out_dtype)
        for array in further.values():
            if array is None:
                further = {name: array for name, array in further.items() if array is not None}
                break
        if options[POLICY].verify:
            operands = named_operands({"a": a, "b": b, "out": out, **further})
            self._verify(operands, CallOptions(*options))
        native = self._native.by_type.get(type(a))
        repeated: BoundGemm | bool = False
        if native is not None and further:
            repeated = native.repeat((a, b, out, *further.values()), (options, *further))
        elif native is not None:
            repeated = native.repeat((a, b, out), options)
        if repeated is True:
            return out
        gemm = repeated or self._find(
            named_operands({"a": a, "b": b, "out": out, **further}), CallOptions(*options)
        )
        if gemm is not None:
            stream = self.runtime.framework(a, "A").stream((a, b, out), gemm.ordinal)
            gemm.enqueue(stream)
        return out

    def tune(
        self,
        a: Any,
        b: Any,
        tuner: Tuner,
        options: CallOptions = DEFAULTS,
        *,
        out: Any = None,
        out_dtype: Any = None,
        quick: bool = False,
        **further: Any,
    ) -> None:
        """Tunes the problem that arrays pose, unless it is tuned, or recorded and `quick`."""
        infos = self.runtime.infos(named_operands({"a": a, "b": b, "out": out, **further}))
        result = None if out_dtype is None else problems.output_of(out_dtype)
        problem = self._problem(infos, options, result)
        ordinal = arrays.check(infos["a"])
        if infos["a"].empty or infos["b"].empty:
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
        self, infos: Mapping[str, ArrayInfo], options: CallOptions, output: str | None = None
    ) -> Problem:
        """The problem that operands pose; C may not be allocated yet."""
        return problems.problem_of(
            *(infos["a"], infos["b"], infos.get("c"), scales_of(infos)),
            compute=options.compute,
            layout=self._layout,
            epilogue=self._epilogue("bias" in infos, options.activation, "residual" in infos),
            output=output,
            scale=options.scale,
            accumulate=options.accumulate or "exact",
        )

    def _choice(
        self,
        problem: Problem,
        ordinal: int,
        alignment: Alignment,
        sums: bool,
        objective: Objective,
        on: Any,
    ) -> tuple[Config, bool]:
        """The configuration for arrays `on`, and whether the vendor's library is to run them."""
        if self.racer and sums:
            race_first(self.runtime, self.racer, problem, ordinal, objective, on)
        return choice(self.runtime, problem, ordinal, alignment, sums, objective)

    def _out(self, a: Any, b: Any, out: Any, options: CallOptions, out_dtype: Any) -> Any:
        """The output of a call: `out`, which has to be of the `out_dtype`, or a new array."""
        if out is not None:
            problems.check_dtype(self.runtime.describe(out, "out"), out_dtype)
            return out
        if options.beta:
            raise ArrayError(f"beta is {options.beta} but there is no out to scale; give out=")
        epilogue = self._epilogue(False, options.activation, False)
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

    def _find(self, operands: Operands, options: CallOptions) -> BoundGemm | None:
        """The bound gemm of a call; None if there is nothing to launch: the vendor's library has
        run it already, or the result is empty."""
        reads = self.runtime.reads(operands)
        key = *reads.items(), options
        gemm = self._bound.get(key)
        if gemm is None:
            options.policy.check()
            checked = self._check_call(reads, operands, options)
            if not checked.offsets:
                return None
            if options.policy.vendor and checked.vendor:
                # Not kept: the settings of the framework decide at each call.
                done = self._run_vendor(checked.problem, operands, options)
                return None if done else self._bind_call(reads, options, checked)
            gemm = self._bind_call(reads, options, checked)
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            self._bound[key] = gemm
        # Also for a known call, as machine code may have forgotten it.
        self._keep_natively(operands, options, gemm)
        return gemm

    def _verify(self, operands: Operands, options: CallOptions) -> None:
        """Checks the kernel of a call once, unless the vendor's library multiplies."""
        checked = self._check_call(self.runtime.reads(operands), operands, options)
        if (options.policy.vendor and checked.vendor) or not (checked.offsets and checked.sums):
            return
        verify_call(self.runtime, checked, operands)

    def _keep_natively(self, operands: Operands, options: CallOptions, gemm: BoundGemm) -> None:
        """Makes machine code recognise a call, if it can read all of its arrays."""
        by_type = self._native.by_type
        for array in operands.values():
            if type(array) not in by_type:
                self._native.serve(self.runtime.framework(array, "A"), type(array))
        native = by_type[type(operands["a"])]
        if native is not None:
            further = [BY_NAME[name].argument for name in operands if name not in "abc"]
            key = (options, *further) if further else options
            native.keep((*operands.values(),), key, gemm)

    def _check_call(
        self, reads: Reads, operands: Operands, options: CallOptions
    ) -> CheckedOperands:
        """The operands of a new call, checked."""
        addresses = addresses_of(reads)
        signatures = ((name, read) for name, (_, read) in reads.items())
        offsets = (address % VECTOR for address in addresses.values())
        signature = *signatures, *options.signature, *offsets
        checked = self._checked.get(signature)
        if checked is None:
            infos = self.runtime.infos(operands)
            problem = self._problem(infos, options)
            matrices = [operands[name] for name in "abc"]
            objective = time_objective(options.policy.cold)
            choose = partial(self._choice, objective=objective, on=matrices)
            checked = checked_operands(problem, infos, addresses, choose)
            self._checked[signature] = checked
        check_factors(checked.problem, options.alpha, options.beta)
        refuse_overlap(checked, addresses)
        return checked

    def _bind_call(self, reads: Reads, options: CallOptions, checked: CheckedOperands) -> BoundGemm:
        """The bound gemm of a call with checked operands."""
        dependent = Dependence(options.policy.dependent)
        return bind_call(self.runtime, checked, addresses_of(reads), options, dependent)

    def _run_vendor(self, problem: Problem, operands: Operands, options: CallOptions) -> bool:
        """Enqueues the gemm by the vendor's library, if all operands are of one framework that
        offers it, and none is optional, which it does not take; whether it did."""
        if any(BY_NAME[name].optional for name in operands):
            return False
        framework = self.runtime.framework(operands["a"], "A")
        owners = (self.runtime.framework(array, "B") for array in operands.values())
        if any(type(owner) is not type(framework) for owner in owners):
            return False
        return framework.vendor_gemm(GemmCall(problem, operands, options.alpha, options.beta))
