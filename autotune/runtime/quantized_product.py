"""matmul() of an A that is quantised on the way in: launches that quantise it into memory of the
stream, then those of the product of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, TypeVar

from autotune.cuda.launches import Dependence, has_dependent_launch
from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.problem.integers import round_up
from autotune.runners.objective import time_objective
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.binding import bind_call, verify_call
from autotune.runtime.checked_operands import (
    Addresses,
    CallOptions,
    CheckedOperands,
    check_factors,
    checked_operands,
    named_operands,
    refuse_overlap,
)
from autotune.runtime.executable import BoundGemm, Enqueue
from autotune.runtime.quantized_operand import Posed, posed, quantised_operand, target_beside
from autotune.runtime.quantizing import (
    bind_quantizing,
    check_source,
    quantizing_of,
)
from autotune.runtime.scales import SCALE_BYTES
from autotune.runtime.state import Reads, Runtime, Tuner, addresses_of

Array = TypeVar("Array")

LINE = 128
"""The scales of A start at a multiple of so many bytes."""

KEPT_CALLS = 1024
"""Bound gemms that are kept. When there are more, all are dropped."""


class QuantizedMatmul:
    """`C = act(alpha scale_a q(A) scale_b op(B) + beta C + bias)`, where q(A) is A quantised with
    scales of the granularity of B's.

    Calls with the arrays of an earlier call are not checked again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._results: dict[Any, tuple[tuple[int, ...], str]] = {}
        self._bound: dict[Any, BoundGemm] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Array | None,
        options: CallOptions,
        out_dtype: Any = None,
        **further: Any,
    ) -> Array:
        """Enqueues the launches on the caller's current stream; see `autotune.matmul`.

        `further` are the bias and the scales of B.
        """
        if out is None or out_dtype is not None:
            out = self._out(a, b, out, options, out_dtype)
        operands = named_operands({"a": a, "b": b, "out": out, **further})
        reads = self.runtime.reads(operands)
        key = *reads.items(), options, self.runtime.generation
        gemm = self._bound.get(key)
        if gemm is None or options.policy.verify:
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            gemm = self._bound[key] = self._bind(operands, reads, options)
        gemm.enqueue(self.runtime.framework(a, "A").stream((a, b, out), gemm.ordinal))
        return out

    def tune(
        self,
        a: Any,
        b: Any,
        tuner: Tuner,
        options: CallOptions,
        *,
        out: Any = None,
        out_dtype: Any = None,
        **further: Any,
    ) -> None:
        """Tunes the problem that arrays pose, unless it is tuned to the end already."""
        output = None if out_dtype is None else problems.output_of(out_dtype)
        infos = self.runtime.infos(named_operands({"a": a, "b": b, "out": out, **further}))
        posed = self._posed(infos, options, output)
        ordinal = arrays.check(posed.source)
        if posed.source.empty or posed.b.empty:
            return
        if not self.runtime.resolve(posed.problem, ordinal).final:
            tuner(posed.problem, self.runtime.gpu(ordinal).device)
            self.runtime.forget(posed.problem)

    def _out(self, a: Any, b: Any, out: Any, options: CallOptions, out_dtype: Any) -> Any:
        """The output of a call: `out`, which has to be of the `out_dtype`, or a new array."""
        describe = self.runtime.describe
        if out is not None:
            problems.check_dtype(describe(out, "out"), out_dtype)
            return out
        if options.beta:
            raise ArrayError(f"beta is {options.beta} but there is no out to scale; give out=")
        library_a, library_b = self.runtime.framework(a, "A"), self.runtime.framework(b, "B")
        epilogue = epilogue_of(False, options.activation)
        key = library_a.read(a)[1], library_b.read(b)[1], options.compute, out_dtype, epilogue
        if key not in self._results:
            output = None if out_dtype is None else problems.output_of(out_dtype)
            source, second = describe(a, "A"), describe(b, "B")
            quantised = quantised_operand(source, target_beside(source, second, options.compute))
            problem = problems.problem_of(
                *(quantised, second), compute=options.compute, epilogue=epilogue, output=output
            )
            shape = problems.result_shape(source, second, epilogue)
            self._results[key] = shape, problem.output_element.dtype
        return library_a.empty(a, *self._results[key])

    def _bind(self, operands: Mapping[str, Any], reads: Reads, options: CallOptions) -> BoundGemm:
        """The bound gemm of a new call, checked."""
        policy = options.policy
        policy.check()
        infos = self.runtime.infos(operands)
        posed = self._posed(infos, options)
        # A and its scales have no address before the stream has memory for them.
        addresses = addresses_of(reads) | {"a": 0}
        infos |= {"a": posed.a, **dict(zip(("scale_a", "scale_b"), posed.scales, strict=True))}

        def choose(
            problem: Problem, ordinal: int, _alignment: Alignment, sums: bool
        ) -> tuple[Config, bool]:
            find = self.runtime.answer if sums else self.runtime.resolve
            return find(problem, ordinal, time_objective(policy.cold)).config, False

        checked = checked_operands(posed.problem, infos, addresses, choose)
        check_factors(checked.problem, options.alpha, options.beta)
        refuse_overlap(checked, addresses)
        if not checked.offsets:
            return BoundGemm(checked.ordinal, _nothing, None)
        if not checked.sums:
            dependent = Dependence(policy.dependent)
            return bind_call(self.runtime, checked, addresses, options, dependent)
        if policy.verify:
            verify_call(self.runtime, checked, operands)
        source = reads["a"][0]
        enqueue = self._enqueue(posed, checked, source, addresses, options)
        return BoundGemm(checked.ordinal, enqueue, None)

    def _enqueue(
        self,
        posed: Posed,
        checked: CheckedOperands,
        source: int,
        addresses: Addresses,
        options: CallOptions,
    ) -> Enqueue:
        """The function that quantises A into memory of a stream, and multiplies it there.

        The lock keeps the launches of two calls that share this memory from mixing.
        """
        runtime, ordinal = self.runtime, checked.ordinal
        gpu, pitch = runtime.gpu(ordinal), checked.pitches["a"]
        memory, target = check_source(posed.source)[1], posed.problem.operand_elements[0]
        quantizing = quantizing_of(
            posed.source, target, posed.problem.scale, (source, memory.leading), (0, pitch)
        )
        first = round_up(memory.rows * pitch, LINE)
        size = first + SCALE_BYTES * prod(quantizing.scales)
        dependent = Dependence.OF_A if has_dependent_launch(gpu.device) else Dependence.NONE
        bound: dict[int, tuple[Enqueue, Enqueue]] = {}

        def bind(place: int) -> tuple[Enqueue, Enqueue]:
            scales, places = place + first, ((source, memory.leading), (place, pitch))
            quantize = bind_quantizing(
                runtime, ordinal, quantizing, *places, scales, options.policy.dependent
            )
            at = {**addresses, "a": place, "scale_a": scales}
            return quantize, bind_call(runtime, checked, at, options, dependent).enqueue

        def start(stream: int) -> None:
            with gpu.quantizing:
                context = gpu.driver.context_on(ordinal) or 0
                place = gpu.quantized(context, stream, size)
                if place not in bound:
                    bound[place] = bind(place)
                for enqueue in bound[place]:
                    enqueue(stream)

        return gpu.in_context(start)

    def _posed(
        self, infos: Mapping[str, ArrayInfo], options: CallOptions, output: str | None = None
    ) -> Posed:
        """The problem that operands pose.

        Raises:
            ArrayError: if they do not fit each other, or A cannot be quantised.
        """
        return posed(
            *(infos["a"], infos["b"], infos.get("c"), infos["scale_b"]),
            compute=options.compute,
            epilogue=epilogue_of("bias" in infos, options.activation),
            output=output,
            scale=options.scale,
            accumulate=options.accumulate or "exact",
        )


def _nothing(stream: int) -> None:
    """Enqueues nothing."""
    del stream
