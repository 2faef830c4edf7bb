"""matmul() of an A that is quantised on the way in: launches that quantise it into memory of the
stream, then those of the product of 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

from autotune.driver.dependent_launch import Dependence, has_dependent_launch
from autotune.errors import ArrayError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.problem.integers import round_up
from autotune.runners.objective import time_objective
from autotune.runtime import arrays, problems
from autotune.runtime.binding import bind_call
from autotune.runtime.checked_operands import (
    Addresses,
    CheckedOperands,
    QuantizedKeywords,
    check_factors,
    checked_operands,
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
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")

LINE = 128
"""The scales of A start at a multiple of so many bytes."""

KEPT_CALLS = 1024
"""Bound gemms that are kept. When there are more, all are dropped."""

NAMES = "A", "B", "out", "bias", "scale_b"


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
        bias: Any,
        scale_b: Any,
        options: QuantizedKeywords,
        out_dtype: Any = None,
        verify: bool = False,
    ) -> Array:
        """Enqueues the launches on the caller's current stream; see `autotune.matmul`."""
        if out is None or out_dtype is not None:
            out = self._out(a, b, out, options, out_dtype)
        operands = a, b, out, bias, scale_b
        reads = tuple(
            None if array is None else self.runtime.framework(array, name).read(array)
            for array, name in zip(operands, NAMES, strict=True)
        )
        key = reads, options, self.runtime.generation
        gemm = self._bound.get(key)
        if gemm is None or verify:
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            gemm = self._bound[key] = self._bind(operands, reads, options, verify)
        gemm.enqueue(self.runtime.framework(a, "A").stream((a, b, out), gemm.ordinal))
        return out

    def tune(
        self,
        a: Any,
        b: Any,
        tuner: Tuner,
        out: Any,
        bias: Any,
        scale_b: Any,
        options: QuantizedKeywords,
        out_dtype: Any = None,
    ) -> None:
        """Tunes the problem that arrays pose, unless it is tuned to the end already."""
        output = None if out_dtype is None else problems.output_of(out_dtype)
        posed = self._posed((a, b, out, bias, scale_b), options, output)
        ordinal = arrays.check(posed.source)
        if posed.source.empty or posed.b.empty:
            return
        if not self.runtime.resolve(posed.problem, ordinal).final:
            tuner(posed.problem, self.runtime.gpu(ordinal).device)
            self.runtime.forget(posed.problem)

    def _out(self, a: Any, b: Any, out: Any, options: QuantizedKeywords, out_dtype: Any) -> Any:
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

    def _bind(
        self, operands: Sequence[Any], reads: Any, options: QuantizedKeywords, verify: bool
    ) -> BoundGemm:
        """The bound gemm of a new call, checked."""
        posed = self._posed(operands, options)
        assert posed.out is not None
        from_a, *rest = (0 if read is None else read[0] for read in reads)
        to_b, to_c, to_bias, of_scales = rest
        addresses = 0, to_b, to_c, to_bias, 0, of_scales, 0, 0, 0
        bias = None if operands[3] is None else self.runtime.describe(operands[3], "bias")
        matrices = posed.a, posed.b, posed.out

        def choose(
            problem: Problem, ordinal: int, _alignment: Alignment, sums: bool
        ) -> tuple[Config, bool]:
            find = self.runtime.answer if sums else self.runtime.resolve
            return find(problem, ordinal, time_objective(options.cold)).config, False

        added = bias, posed.scales, None, (None, None)
        checked = checked_operands(posed.problem, matrices, *added, addresses, choose)
        check_factors(checked.problem, options.alpha, options.beta)
        refuse_overlap(checked, addresses)
        if not checked.offsets:
            return BoundGemm(checked.ordinal, _nothing, None)
        if not checked.sums:
            factors = options.alpha, options.beta, Dependence(options.dependent)
            return bind_call(self.runtime, checked, addresses, *factors)
        if verify:
            self._verify(checked, operands)
        return BoundGemm(
            checked.ordinal, self._enqueue(posed, checked, from_a, addresses, options), None
        )

    def _enqueue(
        self,
        posed: Posed,
        checked: CheckedOperands,
        source: int,
        addresses: Addresses,
        options: QuantizedKeywords,
    ) -> Enqueue:
        """The function that quantises A into memory of a stream, and multiplies it there.

        The lock keeps the launches of two calls that share this memory from mixing.
        """
        runtime, ordinal = self.runtime, checked.ordinal
        gpu, pitch = runtime.gpu(ordinal), checked.leading[0]
        memory, target = check_source(posed.source)[1], posed.problem.operand_elements[0]
        quantizing = quantizing_of(
            posed.source, target, posed.problem.scale, (source, memory.leading), (0, pitch)
        )
        first = round_up(memory.rows * pitch, LINE)
        size = first + SCALE_BYTES * prod(quantizing.scales)
        _, b, c, bias, _, scale_b, *_ = addresses
        dependent = Dependence.OF_A if has_dependent_launch(gpu.device) else Dependence.NONE
        bound: dict[int, tuple[Enqueue, Enqueue]] = {}

        def bind(place: int) -> tuple[Enqueue, Enqueue]:
            scales, places = place + first, ((source, memory.leading), (place, pitch))
            quantize = bind_quantizing(
                runtime, ordinal, quantizing, *places, scales, options.dependent
            )
            operands = place, b, c, bias, scales, scale_b, 0, 0, 0
            factors = options.alpha, options.beta, dependent
            return quantize, bind_call(runtime, checked, operands, *factors).enqueue

        def start(stream: int) -> None:
            with gpu.quantizing:
                context = gpu.driver.context_on(ordinal) or 0
                place = gpu.quantized(context, stream, size)
                if place not in bound:
                    bound[place] = bind(place)
                for enqueue in bound[place]:
                    enqueue(stream)

        return gpu.in_context(start)

    def _verify(self, checked: CheckedOperands, operands: Sequence[Any]) -> None:
        """Checks the kernel of the product once."""
        stream = self.runtime.framework(operands[0], "A").stream(operands[:3], checked.ordinal)
        if self.runtime.driver.capture(stream):
            raise UsageError("verify=True waits for the GPU; call it before the graph is captured")
        self.runtime.verify(checked.config, checked.problem, checked.ordinal, checked.alignment)

    def _posed(
        self, operands: Sequence[Any], options: QuantizedKeywords, output: str | None = None
    ) -> Posed:
        """The problem that operands pose.

        Raises:
            ArrayError: if they do not fit each other, or A cannot be quantised.
        """
        describe = self.runtime.describe
        a, b, out, bias, scale_b = operands
        return posed(
            describe(a, "A"),
            describe(b, "B"),
            None if out is None else describe(out, "out"),
            describe(scale_b, "scale_b"),
            compute=options.compute,
            epilogue=epilogue_of(bias is not None, options.activation),
            output=output,
            scale=options.scale,
            accumulate=options.accumulate or "exact",
        )


def _nothing(stream: int) -> None:
    """Enqueues nothing."""
    del stream
