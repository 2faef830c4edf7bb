"""Checked operands bound to kernels: one launch plan or several, and sums without a summand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.cuda.launches import Dependence
from autotune.errors import FrozenError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.problem.call import BY_NAME, Call
from autotune.problem.integers import ceil_div
from autotune.runners.objective import Objective
from autotune.runtime.checked_operands import NOTHING, Addresses, CallOptions, CheckedOperands
from autotune.runtime.executable import BoundGemm, Executable
from autotune.runtime.state import Runtime

Bind = Callable[[Addresses], BoundGemm]

WORD = 4
"""Bytes of a counter."""


def choice(
    runtime: Runtime,
    problem: Problem,
    ordinal: int,
    alignment: Alignment,
    sums: bool,
    objective: Objective,
) -> tuple[Config, bool]:
    """The configuration to run, and whether the vendor's library is to run the problem: it was
    measured to be faster, or the mode is frozen and there is no record or no compiled kernel.

    Nobody tunes for operands without elements, so their problem is looked up without a warning.

    Raises:
        NotFoundError: if no kernel can run the problem; a `FrozenError` if the mode asks for it.
    """
    try:
        answer = (runtime.answer if sums else runtime.resolve)(problem, ordinal, objective)
        if runtime.mode.frozen:
            runtime.executable(answer.config, problem, ordinal, alignment)
    except FrozenError:
        if runtime.mode.missing == "raise":
            raise
        return NOTHING, True
    return answer.config, answer.vendor and sums


def verify_call(runtime: Runtime, checked: CheckedOperands, operands: Mapping[str, Any]) -> None:
    """Checks the kernel of a call once.

    Raises:
        UsageError: while the stream is captured.
        VerificationError: if its result is wrong.
    """
    matrices = [operands[name] for name in "abc"]
    stream = runtime.framework(operands["a"], "A").stream(matrices, checked.ordinal)
    if runtime.driver.capture(stream):
        raise UsageError("verify=True waits for the GPU; call it before the graph is captured")
    runtime.verify(checked.config, checked.problem, checked.ordinal, checked.alignment)


def bind_call(
    runtime: Runtime,
    checked: CheckedOperands,
    addresses: Addresses,
    options: CallOptions,
    dependent: Dependence,
) -> BoundGemm:
    """The bound gemm of a call, which enqueues the launches of all its offsets.

    Raises:
        FrozenError: if the mode forbids what the call needs.
        AutotuneError: if a kernel does not compile.
    """
    if checked.config == NOTHING:
        raise FrozenError(
            f"{checked.problem} has no record and compiled kernel, the mode is frozen, and cuBLAS "
            "does not serve this call: tune the problem where that is allowed"
        )
    shape = checked.config, checked.problem, checked.ordinal, checked.alignment
    executable = runtime.executable(*shape)
    integer = checked.problem.output_element.integer
    factor = options.alpha if checked.sums or integer else 0.0  # 0 times infinity is no 0

    def bind(at: Addresses) -> BoundGemm:
        call = Call(at, checked.pitches, checked.strides, factor, options.beta)
        return executable.bind(call, dependent)

    launches = [
        {name: address and address + offsets.get(name, 0) for name, address in addresses.items()}
        for offsets in checked.offsets
    ]
    gemms = [
        bind(at) if checked.sums else _without_summands(runtime, executable, checked, at, bind)
        for at in launches
    ]
    return gemms[0] if len(gemms) == 1 else _one_after_another(gemms)


def _one_after_another(gemms: Sequence[BoundGemm]) -> BoundGemm:
    enqueues = [gemm.enqueue for gemm in gemms]

    def enqueue(stream: int) -> None:
        for start in enqueues:
            start(stream)

    return BoundGemm(gemms[0].ordinal, enqueue, None)


def _without_summands(
    runtime: Runtime,
    executable: Executable,
    checked: CheckedOperands,
    addresses: Addresses,
    bind: Bind,
) -> BoundGemm:
    """A gemm whose K is 0, as one of operands of zeros whose K is 1.

    The zeros are counters of the stream behind those of the plan: every gemm leaves counters zero.
    """
    gpu, problem = runtime.gpu(checked.ordinal), checked.problem
    own = ceil_div(executable.plan.counters, WORD) * WORD  # keeps vectors of 16 bytes aligned
    zeros = ceil_div(max(problem.m, problem.n) * problem.element_bytes, WORD)
    further = {name: at for name, at in addresses.items() if BY_NAME[name].kind != "scales"}
    bound: dict[int, BoundGemm] = {}

    def start(stream: int) -> None:
        with gpu.lock:
            context = gpu.driver.context_on(gpu.ordinal) or 0
            _, counters = gpu.scratch(context, stream, 0, own + zeros)
        if counters not in bound:
            first = counters + WORD * own
            bound[counters] = bind({**further, "a": first, "b": first})
        bound[counters].enqueue(stream)

    def enqueue(stream: int) -> None:
        if gpu.driver.context_on(gpu.ordinal) is not None:
            start(stream)
            return
        with gpu.driver.entered(gpu.ordinal):
            start(stream)

    return BoundGemm(gpu.ordinal, enqueue, None)
