"""matmul() of arrays of any shape: checks and look-ups that run once, and the short warm call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autotune import settings
from autotune.cuda.launches import Dependence
from autotune.device import Device
from autotune.errors import ArrayError, AutotuneError, FrozenError, UsageError
from autotune.families.config import Config
from autotune.lookup.answer import Answer
from autotune.measure.objective import Objective, time_objective
from autotune.problem import Problem
from autotune.problem.call import BY_NAME
from autotune.runtime import quantized
from autotune.runtime.arrays import ArrayInfo, check
from autotune.runtime.launcher import BoundGemm
from autotune.runtime.native import NativeCalls
from autotune.runtime.operands import (
    DEFAULTS,
    NOTHING,
    CallOptions,
    CheckedOperands,
    check_dtype,
    check_factors,
    checked_operands,
    named_operands,
    output_of,
    problem_of,
    refuse_overlap,
    result_shape,
)
from autotune.runtime.quantized import quantises
from autotune.runtime.state import Reads, Runtime, Tuner, addresses_of
from autotune.settings import Policy
from autotune.settings import policy as current_policy

Array = TypeVar("Array")

Result = tuple[tuple[int, ...], str | None]

Operands = Mapping[str, Any]
"""The arrays of a call by the names of `OPERANDS`; what is absent is left out."""

Racer = Callable[[Problem, Device, Objective], object]
"""Races the most promising configurations of a problem that has no record, and records it."""

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
        self._native = NativeCalls(runtime.driver)

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
        for array in further.values():
            if array is None:
                further = {name: array for name, array in further.items() if array is not None}
                break
        if out is None or out_dtype is not None:
            out = self._out(a, b, out, CallOptions(*options), out_dtype, quantises(further))
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
        infos = self._infos(named_operands({"a": a, "b": b, "out": out, **further}), options)
        problem = self._problem(infos, options, output_of(out_dtype))
        ordinal = check(infos["a"])
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

    def _stated(self, options: CallOptions) -> CallOptions:
        """The options of a call, completed."""
        return options

    def _problem(
        self, infos: Mapping[str, ArrayInfo], options: CallOptions, output: str | None = None
    ) -> Problem:
        """The problem that operands pose; C may not be allocated yet."""
        return problem_of(infos, self._stated(options), layout=self._layout, output=output)

    def _infos(self, operands: Operands, options: CallOptions) -> dict[str, ArrayInfo]:
        """The operands of a call as they are multiplied."""
        infos = self.runtime.infos(operands)
        return quantized.quantised_infos(infos, options) if quantises(operands) else infos

    def _choice(
        self, checked: CheckedOperands, options: CallOptions, operands: Operands
    ) -> tuple[Config, bool]:
        """The configuration to run, and whether the vendor's library is to run the problem: it was
        measured to be faster, or the mode is frozen and there is no record or no compiled kernel.

        Raises:
            NotFoundError: if no kernel can run the problem.
            FrozenError: if there is no record or kernel, and the mode asks for the error, or the
                installed library may be wrong.
        """
        runtime, problem, ordinal = self.runtime, checked.problem, checked.ordinal
        objective = time_objective(options.policy.cold)
        if self.racer is not None and not runtime.has_answer(problem, ordinal, objective):
            self._race(self.racer, checked, objective, operands)
        answer: Answer | None = None
        try:
            library = options.policy.library and not quantises(operands)
            answer = runtime.answer(problem, ordinal, objective, library)
            if runtime.mode.frozen:
                runtime.executable(answer.config, problem, ordinal, checked.alignment)
        except FrozenError as error:
            if runtime.mode.missing == "raise":
                raise
            sound = answer is not None and answer.vendor
            if not sound and (fault := runtime.vendor_fault(problem, ordinal)):
                raise FrozenError(f"{error}; {fault}") from error
            return NOTHING, True
        return answer.config, answer.vendor

    def _race(
        self, racer: Racer, checked: CheckedOperands, objective: Objective, operands: Operands
    ) -> None:
        """Races a problem before its first look-up; a warning says why, if it cannot.

        A stream that is captured runs nothing meanwhile: its products take what a look-up finds.
        """
        if self._captured(operands, checked.ordinal):
            return
        try:
            racer(checked.problem, self.runtime.gpu(checked.ordinal).device, objective)
        except AutotuneError as error:
            settings.warn_once(f"{checked.problem} is not tuned: {error}")

    def _captured(self, operands: Operands, ordinal: int) -> bool:
        """Whether a graph captures the caller's current stream."""
        matrices = [operands[name] for name in "abc"]
        stream = self.runtime.framework(operands["a"], "A").stream(matrices, ordinal)
        return self.runtime.driver.capture(stream) != 0

    def _out(
        self, a: Any, b: Any, out: Any, options: CallOptions, out_dtype: Any, quantising: bool
    ) -> Any:
        """The output of a call: `out`, which has to be of the `out_dtype`, or a new array."""
        if out is not None:
            check_dtype(self.runtime.describe(out, "out"), out_dtype)
            return out
        if options.beta:
            raise ArrayError(f"beta is {options.beta} but there is no out to scale; give out=")
        library_a, library_b = self.runtime.framework(a, "A"), self.runtime.framework(b, "B")
        signatures = library_a.read(a)[1], library_b.read(b)[1]
        key = *signatures, out_dtype, options.activation, options.compute, quantising
        result = self._results.get(key)
        if result is None:
            infos = {"a": library_a.describe(a, "A"), "b": library_b.describe(b, "B")}
            own = infos["a"].dtype
            if quantising:
                infos["a"] = quantized.quantised_operand(infos["a"], infos["b"], options.compute)
            shaping = self._stated(options)._replace(scale=None)
            problem = problem_of(infos, shaping, output=output_of(out_dtype) or self._output)
            dtype = problem.output_element.dtype
            shape = result_shape(infos["a"], infos["b"], problem.epilogue)
            result = self._results[key] = shape, None if dtype == own else dtype
        return library_a.empty(a, *result)

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
            for_vendor = options.policy.vendor and checked.vendor
            if for_vendor and self._run_vendor(checked, operands, options):
                return None
            gemm = self._bind_call(reads, operands, options, checked)
            if for_vendor:
                # Not kept: the settings of the framework decide at each call.
                return gemm
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            self._bound[key] = gemm
        # Also for a known call, as machine code may have forgotten it.
        self._keep_natively(operands, options, gemm)
        return gemm

    def _verify(self, operands: Operands, options: CallOptions) -> None:
        """Checks the kernel of a call once, unless the vendor's library multiplies.

        Raises:
            UsageError: while the stream is captured.
            VerificationError: if its result is wrong.
        """
        checked = self._check_call(self.runtime.reads(operands), operands, options)
        if (options.policy.vendor and checked.vendor) or not checked.offsets:
            return
        if self._captured(operands, checked.ordinal):
            raise UsageError("verify=True waits for the GPU; call it before the graph is captured")
        shape = checked.problem, checked.ordinal, checked.alignment
        self.runtime.verify(checked.config, *shape)

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
        addresses, quantising = addresses_of(reads), quantises(operands)
        if quantising:
            addresses["a"] = 0  # it has no address before the stream has memory for it
        signatures = ((name, read) for name, (_, read) in reads.items())
        offsets = (address % VECTOR for address in addresses.values())
        signature = *signatures, *options.signature, *offsets
        checked = self._checked.get(signature)
        if checked is None:
            infos = self._infos(operands, options)
            checked = checked_operands(self._problem(infos, options), infos, addresses)
            if checked.offsets:
                config, vendor = self._choice(checked, options, operands)
                checked = checked._replace(config=config, vendor=vendor and not quantising)
            self._checked[signature] = checked
        check_factors(checked.problem, options.alpha, options.beta)
        refuse_overlap(checked, addresses)
        return checked

    def _bind_call(
        self, reads: Reads, operands: Operands, options: CallOptions, checked: CheckedOperands
    ) -> BoundGemm:
        """The bound gemm of a call with checked operands."""
        runtime, addresses = self.runtime, addresses_of(reads)
        if quantises(operands):
            source = runtime.describe(operands["a"], "A")
            return quantized.bind_quantised(runtime, checked, source, addresses, options)
        return runtime.bind(checked, addresses, options, Dependence(options.policy.dependent))

    def _run_vendor(
        self, checked: CheckedOperands, operands: Operands, options: CallOptions
    ) -> bool:
        """Enqueues the gemm by the vendor's library, if all operands are of one framework that
        offers it, and none is optional, which it does not take; whether it did.

        With a known fault of its version it serves only what was verified: operands without gaps,
        and factors of 1 and 0, as others may make it choose another algorithm.
        """
        problem = checked.problem
        if any(BY_NAME[name].optional for name in operands):
            return False
        verified = checked.dense and (options.alpha, options.beta) == (1, 0)
        if not verified and self.runtime.vendor_fault(problem, checked.ordinal):
            return False
        framework = self.runtime.framework(operands["a"], "A")
        owners = (self.runtime.framework(array, "B") for array in operands.values())
        if any(type(owner) is not type(framework) for owner in owners):
            return False
        return framework.vendor_gemm(problem, operands, options.alpha, options.beta)
