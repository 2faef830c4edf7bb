"""Run recorded kernels on arrays: `matmul` and its operands, `kernel`, `warmup` and `policy`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast, overload

from autotune import runtime, settings
from autotune.device import Device
from autotune.errors import ArrayError, UsageError
from autotune.measure import devices
from autotune.measure.objective import Objective, time_objective
from autotune.problem import (
    GATE_SPAN,
    Problem,
    ProblemArguments,
    ProblemDefaults,
    ProblemLike,
    compute_of,
    problem_of,
    problems_of,
)
from autotune.records import KernelRecord
from autotune.records.kernel_record import KernelEntry
from autotune.runtime import entered
from autotune.runtime.quantized import quantizer
from autotune.settings import Policy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.lookup.answer import Answer
    from autotune.measure.devices import DeviceLike
    from autotune.problem.call import FurtherArrays
    from autotune.problem.fields import AccuracyText
    from autotune.problem.words import DtypeLike
    from autotune.runtime import Kernel
    from autotune.runtime.kernels import TunedKernel
    from autotune.runtime.matmul import Array, Matmul
    from autotune.settings import PolicyChanges
    from autotune.user_kernels.arguments import ContentOf


def matmul(
    a: Any,
    b: Any,
    out: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    activation: str | None = None,
    compute: DtypeLike | None = None,
    accuracy: AccuracyText = "exact",
    scale: str | None = None,
    accumulate: str | None = None,
    out_dtype: Any = None,
    policy: Policy | None = None,
    **further: Unpack[FurtherArrays],
) -> Array:
    """`out = act(alpha a b + beta out + bias) + residual`, summed in fp32, on the caller's current
    stream of the operands' GPU.

    The operands are matrices or batches of matrices in fp32, fp16, bfloat16, fp8 or int8: arrays of
    PyTorch, CuPy or PyCUDA, or others with DLPack or `__cuda_array_interface__` (which, like
    PyCUDA, has no bfloat16 and no fp8). They are row-major or transposed views; rows and matrices
    may have gaps between them. A single matrix is multiplied by each matrix of a batch. Sizes may
    be 0, except k: an empty result launches nothing.

    fp8 is `float8_e4m3fn` or `float8_e5m2`, on either side; int8 products are summed in int32.
    Scales are fp32 arrays without gaps that multiply the operands. Their shapes say whether there
    is one for a tensor, for each row of `a` and column of `b`, or for each block of 1 x 128 of `a`
    and 128 x 128 of `b`:

        scale     scale_a                           scale_b
        tensor    (1,) or ()                        (1,) or ()
        row       (m,) or (m, 1)                    (n,) or (1, n)
        block     (ceil(k / 128), m)                (ceil(n / 128), ceil(k / 128))

    With a batch, `row` and `block` have its axis in front.

    An `a` in fp32, fp16 or bfloat16 with a `b` of 8 bits, its `scale_b`, a compute of 8 bits and no
    `scale_a` is quantised first, as by `autotune.quantize` with scales of the granularity of
    `scale_b`. `f8` and `i8` make it of the type of `b`, `f8e5` of the other type of fp8. The
    launches that do so are part of the call, as captured by a CUDA graph. Their result lies in
    memory that stays with the stream or the graph; cuBLAS is not used.

    A product of fp8 may be fp8 itself, by `out` or `out_dtype`: `act(a b + bias) scale_result`,
    where too large numbers become the largest. Then the bias is bfloat16, and the next product
    takes `1 / scale_result` as its `scale_a`. `amax` is raised to the largest size before the
    scale, from which that of the next call can follow (delayed scaling).

    The stream is the current one of PyTorch or CuPy (by the library of `a`), the default stream for
    PyCUDA and DLPack, else the one that the interface names or the default stream. Where an
    algorithm of cuBLASLt is the record's best, the library runs it. Where cuBLAS by its own choice
    was measured to be faster still, or is expected to be on a shape that is not tuned, it
    multiplies PyTorch's and CuPy's arrays, through their library. PyCUDA has none. A shape that is
    not tuned runs the kernel of a neighbour or the cost model's choice, and an `UntunedWarning`
    reports it once.

    Args:
        a: (m, k) or (batch, m, k), or with several batch axes.
        b: (k, n) or (batch, k, n) likewise; the batch axes fit each other as in `torch.matmul`.
        out: (m, n), or (batch, m, n) if a or b has a batch; row-major, without overlap with a and
            b; of the type of a and b, or fp32; for fp8 and int8 bfloat16, fp16 or fp32, for int8
            without scales and epilogue also int32. If None, the library of `a` allocates it.
        alpha: factor of the product; 0 leaves it out, whatever `a` and `b` hold.
        beta: factor of the contents of `out`, which are not read if it is 0.
        activation: `relu`, `gelu` (the exact one, with erf), `gelu_tanh`, `silu` or None; `swiglu`,
            for operands of 16 and 8 bits, takes a `b` of `autotune.interleave` and gives
            `silu(a gate) (a up)`, (m, n / 2), with alpha 1, beta 0 and no bias.
        compute: the precision (see `Problem`); by default that of the operands' type. fp32 operands
            can also be computed as `tf32` or `tf32x3`.
        accuracy: `exact`, or `near` for `tf32x3`.
        scale: `tensor`, `row` or `block`, if their shapes fit more than one; by default the
            coarsest.
        accumulate: how fp8 products are summed: `exact` (the default) adds sums of 128 in fp32,
            `fast` keeps the 14 bits of the tensor cores all along K.
        out_dtype: type of the allocated result: a dtype of the library, or a name such as `f16`; by
            default that of `a` and `b`, and bfloat16 for fp8 and int8.
        policy: whether the call may tune first, call cuBLAS or start early, and which kernel it
            takes (see `autotune.Policy`); None is the current policy.
        further: the other arrays of some products, such as `bias`, `scale_a` and `residual` (see
            `autotune.problem.call.FurtherArrays`).

    Raises:
        UsageError: for a policy with a value that a field does not have, with `dependent` on a
            device below compute capability 9.0, or with both `tune` and `batch_invariant`.
        ArrayError: for operands that do not fit each other, that no kernel takes, or whose elements
            are not in their memory, such as PyTorch's lazily negated tensors; for an alpha
            other than 1 or a beta other than 0 of a result in int32 or of `swiglu`.
        ProblemError: for an unknown activation, compute, accuracy, scale or dtype, one that the
            precision does not have, a residual with an activation, a bias or an n that is no
            multiple of 16 with `swiglu`, or too large a batch.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem, such as fp8 below compute capability 8.9;
            with `batch_invariant`, if no batch-invariant range serves it.
        VerificationError: with `verify`, if the kernel's result is wrong.
    """
    compute = compute if accuracy == "exact" else compute_of(compute or "f32", accuracy)
    if policy is None:
        policy = settings.policy()
    options = alpha, beta, activation, compute, accumulate, scale, policy
    if policy.frozen and not settings.froze(policy):
        with runtime.entered(policy):
            return _run(a, b, out, options, further, out_dtype)
    if policy.tune or policy.batch_invariant:
        return _run(a, b, out, options, further, out_dtype)
    return multiplier().run(a, b, out, options, further, out_dtype)


def _run(
    a: Any,
    b: Any,
    out: Array | None,
    options: tuple[Any, ...],
    further: FurtherArrays,
    out_dtype: Any,
) -> Array:
    """`matmul` on the slow path: its policy asks for more than the fastest kernel of
    `multiplier`."""
    named = runtime.CallOptions(*options)
    policy = named.policy
    policy.check()
    tunes = policy.tune and not settings.mode().frozen
    quick = policy.tune == "quick"
    multiply = runtime.batch_invariant() if policy.batch_invariant else multiplier()
    if tunes:
        tuner = partial(_tune, objective=time_objective(policy.cold), quick=quick)
        multiply.tune(a, b, tuner, named, out=out, out_dtype=out_dtype, quick=quick, **further)
    return multiply.run(a, b, out, options, further, out_dtype)


def multiplier() -> Matmul:
    """The process's own matmul, which in the quick mode races a product without a record."""
    multiply = runtime.current()
    if multiply.racer is None and multiply.runtime.mode.quick:
        multiply.racer = race_unrecorded
    return multiply


def race_unrecorded(problem: Problem, device: Device, objective: Objective) -> None:
    """Races the most promising configurations of a problem, unless a record or range serves it."""
    if recorded(problem, device, objective) is None:
        _tune(problem, device, objective, quick=True)


def recorded(problem: Problem, device: Device, objective: Objective) -> Answer | None:
    """The answer of a record or range that serves a problem; None if there is none."""
    from autotune.lookup import lookup
    from autotune.records import Records, Store

    return lookup.recorded(problem, device, Records(Store(settings.cache_dir())), objective)


def _tune(problem: Problem, device: Device, objective: Objective, quick: bool) -> object:
    from autotune.api import tuning
    from autotune.tuning.options import Search

    search = Search(effort="quick" if quick else "default", objective=objective)
    return tuning.search(problem, search.limited(), device=devices.index_of(device))


def quantize(x: Any, dtype: Any = "e4m3", scale: Any = "row", out: Any = None) -> tuple[Any, Any]:
    """A matrix or a batch of them in 8 bits, and the fp32 scales that multiply it back, on the
    caller's current stream of the array's GPU.

    The scales make the largest finite number of each group the largest one of the type, 448 of
    e4m3, 57344 of e5m2 and 127 of int8. `autotune.matmul` takes the scales as `scale_a`, and with
    `q.T` as `scale_b`, except that blocks of `scale_b` are 128 x 128.

        scale     scales                            a scale for
        tensor    (1,)                              all numbers
        row       (m,)                              each row
        block     (ceil(k / 128), m)                128 neighbours of a row

    The scales `row` and `block` of a batch begin with the axes of the batch.

    A group of zeros has scale 1. Infinities and NaN do not count towards a scale: an infinity
    becomes the largest number, NaN stays NaN in fp8 and becomes 0 in int8. No number overflows.
    No scale is below 2^-126, so that smaller numbers lose bits.

    A call allocates at most its results, and a first one compiles a kernel; a CUDA graph can
    capture it. Any GPU quantises to fp8, also one that cannot multiply it.

    Args:
        x: (m, k) or with batch axes in front, in fp32, fp16 or bfloat16; row-major, rows equally
            far apart. Arrays as in `autotune.matmul`.
        dtype: `e4m3`, `e5m2` or `int8`, or such a dtype of PyTorch or ml_dtypes.
        scale: `tensor`, `row`, `block`, or an fp32 array of one number, which divides `x` as it is.
        out: an array for the result, of the shape of `x` and of that dtype, or a pair of it and an
            fp32 array for the scales. If None, the library of `x` allocates them (PyCUDA has no
            fp8).

    Returns:
        The quantised array and its scales.

    Raises:
        UsageError: for an unknown dtype or scale.
        ArrayError: for an array that is empty, on the CPU, of another type or shape, not
            row-major, or whose elements are not in its memory; for results that overlap it.
        MissingError: without a driver or a GPU.
    """
    return quantizer(runtime.current().runtime)(x, dtype, scale, out)


def interleave(gate: Any, up: Any, axis: int = 0) -> Any:
    """The weights of a gate and of its values, interleaved as `activation="swiglu"` takes them: 8
    outputs of the gate, 8 of the values, and so on.

        weight = autotune.interleave(mlp.gate_proj.weight, mlp.up_proj.weight)
        hidden = autotune.matmul(x, weight.T, activation="swiglu")  # silu(x gate.T) * (x up.T)

    Scales of the weights' rows are interleaved in the same way. Scales of blocks belong to the
    interleaved weight: quantise that weight.

    Args:
        gate: the weight of the gate, (n / 2, k) as `torch.nn.Linear` has it, of NumPy, PyTorch or
            CuPy.
        up: the weight of the values, of the same shape and type.
        axis: the axis of the outputs; 1 for (k, n / 2).

    Raises:
        ArrayError: for weights that differ in shape or type, or whose outputs are not multiples of
            8.
    """
    shape = tuple(gate.shape)
    if shape != tuple(up.shape) or gate.dtype != up.dtype:
        weights = (f"{tuple(weight.shape)} of {weight.dtype}" for weight in (gate, up))
        raise ArrayError("the gate is {}, the other weight {}; give two alike".format(*weights))
    if not -len(shape) <= axis < len(shape):
        raise ArrayError(f"axis is {axis}; the weights have {len(shape)} axes")
    axis %= len(shape)
    if shape[axis] % GATE_SPAN:
        raise ArrayError(
            f"the weights are {shape}; give {shape[axis]} outputs, axis {axis}, as a multiple of "
            f"{GATE_SPAN}"
        )
    spans = *shape[:axis], shape[axis] // GATE_SPAN, GATE_SPAN, *shape[axis + 1 :]
    whole = *shape[:axis], 2 * shape[axis], *shape[axis + 1 :]
    library = sys.modules[type(gate).__module__.partition(".")[0]]
    pair = [weight.reshape(spans) for weight in (gate, up)]
    return library.stack(pair, axis + 1).reshape(whole)


@overload
def kernel(
    tuned: KernelRecord | KernelEntry,
    /,
    *,
    device: DeviceLike | None = None,
    constants: ContentOf | None = None,
) -> TunedKernel: ...


@overload
def kernel(
    *problem: ProblemLike | int,
    device: DeviceLike | None = None,
    policy: Policy | None = None,
    **arguments: Unpack[ProblemArguments],
) -> Kernel: ...


def kernel(
    *problem: ProblemLike | int | KernelRecord | KernelEntry,
    device: DeviceLike | None = None,
    policy: Policy | None = None,
    constants: ContentOf | None = None,
    **arguments: Unpack[ProblemArguments],
) -> Kernel | TunedKernel:
    """The kernel of a problem, looked up, compiled and loaded; or a tuned kernel of your own.

    Call the kernel of a problem as `kernel(a, b, out, alpha, beta, bias)`, with the arguments of
    `autotune.matmul`; of a policy, a call follows `dependent` and `verify`. A and B may have one
    matrix for the whole batch; an epilogue with a bias takes one at each call. Call a kernel of
    your own with its arguments: arrays of PyTorch, CuPy, PyCUDA or any other library with DLPack
    or `__cuda_array_interface__`, and numbers.

    Args:
        problem: text, a `Problem`, (m, n, k) or three sizes; or the record of a kernel of your own,
            for its best configuration, or one of the record's entries, for any other.
        device: a GPU of this machine, by number, name, `gpu:1` or as a `Device`; None is that of
            the current context, else the first.
        policy: which kernel to take, whether to tune the problem first, and whether to check the
            kernel, for operands without gaps (see `autotune.Policy`); None is the current policy.
            cuBLAS is called by a recorded algorithm of cuBLASLt alone, with `vendor=False` never.
        constants: the contents of the `__constant__` variables that a kernel of your own was tuned
            with, as for `tune_kernel`.
        arguments: `compute`, `layout`, `batch`, `epilogue`, `output`, `accuracy`; see `problem_of`.

    Raises:
        ProblemError: for an impossible problem.
        DeviceError: if this machine has no such GPU.
        MissingError: without a driver, a GPU or a compiler.
        UsageError: for a policy with both `tune` and `batch_invariant`.
        NotFoundError: if no kernel can run the problem, or with `batch_invariant` no range serves
            it; or if the record of a kernel of your own does not have its source.
        FrozenError: in the frozen mode, if the kernel is not in the cache.
        VerificationError: with `verify`, if the kernel's result is wrong.
        AutotuneError: if a kernel of your own does not compile for the GPU.
    """
    if isinstance(tuned := problem[0] if problem else None, (KernelRecord, KernelEntry)):
        if len(problem) > 1 or policy is not None or arguments:
            raise UsageError("a kernel of your own takes no argument but device and constants")
        return _tuned(tuned if isinstance(tuned, KernelEntry) else tuned.best, device, constants)
    if constants is not None:
        raise UsageError("constants are for a kernel of your own; the kernel of a problem has none")
    stated = problem_of(*cast("tuple[ProblemLike | int, ...]", problem), **arguments)
    ordinal = ordinal_of(device)
    with _prepared([stated], ordinal, policy) as followed:
        return runtime.load(stated, ordinal, followed)


def _tuned(
    entry: KernelEntry, device: DeviceLike | None, constants: ContentOf | None
) -> TunedKernel:
    from autotune.runtime.kernels import TunedKernel
    from autotune.user_kernels.arguments import call_of, constants_of
    from autotune.user_kernels.source import compiled

    launch, contents = entry.launchable(), constants_of(constants)
    texts = call_of(launch.call.name, (), contents).constants
    if texts != launch.call.constants:
        wanted = ", ".join(launch.call.constants) or "none"
        raise UsageError(
            f"the constants are {', '.join(texts) or 'none'}; {launch.call.name} was tuned with "
            f"{wanted}: give them as constants={{name: array}}"
        )
    own, ordinal = runtime.current().runtime, ordinal_of(device)
    if ordinal is None:
        ordinal = own.driver.current() or 0
    plan, programs = compiled(entry, own.gpu(ordinal).device.arch)
    return TunedKernel(own, ordinal, launch.call, plan, *programs, constants=contents)


def warmup(
    shapes: Iterable[ProblemLike],
    *,
    device: DeviceLike | None = None,
    jobs: int | None = None,
    policy: Policy | None = None,
    **defaults: Unpack[ProblemDefaults],
) -> tuple[Answer, ...]:
    """Looks up, compiles in parallel and loads the kernels of these shapes, so that the first
    matmul of each is as fast as the later ones.

    It prepares for operands without gaps that start at multiples of 16 bytes. Other operands may
    need different kernels, which are compiled at their first call. The workspace of a stream, if a
    shape needs one, is allocated at the first call on that stream.

    Args:
        shapes: problems, texts such as `64x4096x4096:bf16:nt` or triples (m, n, k).
        device: as for `kernel`.
        jobs: compiler threads; None is one for each core.
        policy: as for `kernel`; a matmul with the same `cold` and `batch_invariant` finds the
            kernels. `tune` tunes each shape that is not tuned first, and `quick` races the most
            promising configurations and cuBLAS of each shape without a record.
        defaults: `compute`, `layout`, `batch`, `epilogue`, `output` and `accuracy` of shapes that
            do not state them.

    Returns:
        The answer for each shape, in the order of the shapes.

    Raises:
        ProblemError: for an impossible shape.
        DeviceError: if this machine has no such GPU.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a shape; with `batch_invariant`, if no range serves it.
        UsageError: for a policy with both `tune` and `batch_invariant`.
        AutotuneError: if a kernel does not compile, or fails its check.
    """
    problems, ordinal = problems_of(shapes, **defaults), ordinal_of(device)
    with _prepared(problems, ordinal, policy) as followed:
        return runtime.load_all(problems, ordinal, jobs, followed)


@contextmanager
def _prepared(
    problems: Iterable[Problem], ordinal: int | None, policy: Policy | None
) -> Iterator[Policy]:
    """Enters the policy to load kernels by, and tunes the problems first if it says so."""
    policy = settings.policy() if policy is None else policy
    with runtime.entered(policy):
        if policy.tune and not settings.mode().frozen:
            _tune_all(dict.fromkeys(problems), ordinal or 0, policy)
        yield policy


def _tune_all(problems: Iterable[Problem], ordinal: int, policy: Policy) -> None:
    from autotune.api import tuning
    from autotune.measure.targets import TargetOpener
    from autotune.tuning.options import Search

    device, quick = runtime.probe(ordinal), policy.tune == "quick"
    objective = time_objective(policy.cold)
    options = Search(effort="quick" if quick else "default", objective=objective).limited()
    with TargetOpener(ordinal, quick=quick) as opener:
        for problem in problems:
            answer = recorded(problem, device, objective)
            if answer is None or not answer.enough(quick):
                tuning.search_at(opener, problem, options)
            runtime.current().forget(problem)


def ordinal_of(device: DeviceLike | None) -> int | None:
    """The number of a GPU of this machine; None for None."""
    # A number needs none of the imports that a name does.
    if device is None or type(device) is int:
        return device
    from autotune.measure import targets

    return targets.ordinal_of(device)


@contextmanager
def policy(policy: Policy | None = None, /, **changes: Unpack[PolicyChanges]) -> Iterator[Policy]:
    """Changes the policy of the calls within a `with` block.

        with autotune.policy(cold=True, dependent=True):
            y = autotune.matmul(x, weight)

    `matmul`, `kernel`, `warmup`, calls of kernels and the functions of `autotune.torch` follow the
    policy of the innermost block unless they are given one. It holds for the thread or asyncio task
    that enters the block, but `frozen` holds for all threads of the process until the block ends,
    as `AUTOTUNE_MODE=frozen` or `frozen:raise` does for a whole process: `tune` and `tune_kernel`
    raise an error then, and so do `kernel` and `warmup` for problems without a record.

    Args:
        policy: the policy; None is the one around the block.
        changes: fields of `autotune.Policy` that differ in the block.

    Raises:
        UsageError: for a value that a field does not have.
        TypeError: for a name that is not a field.
    """
    base = settings.policy() if policy is None else policy
    if not isinstance(base, Policy):
        raise UsageError(f"the policy is {base!r}; give an autotune.Policy, or fields as keywords")
    if unknown := [*changes.keys() - set(Policy._fields)]:
        fields = ", ".join(Policy._fields)
        raise TypeError(f"a policy has no field {unknown[0]!r}; it has {fields}")
    changed = base._replace(**changes)
    with entered(changed):
        yield changed
