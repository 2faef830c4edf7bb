"""Matrix multiplication of arrays by the best recorded kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from autotune import runtime, settings
from autotune.device import Device
from autotune.errors import UsageError
from autotune.problem import Problem, compute_of
from autotune.runners.objective import Objective, time_objective
from autotune.runtime.quantized_operand import refuse_additions
from autotune.targets import local

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.lookup.answer import Answer
    from autotune.problem.call import FurtherArrays
    from autotune.problem.fields import AccuracyText
    from autotune.problem.words import DtypeLike
    from autotune.runtime.matmul import Array, Matmul
    from autotune.settings import Policy


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
    be 0; with k = 0 the sum is zero, to which beta, bias and activation apply.

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
    PyCUDA and DLPack, else the one that the interface names or the default stream. Where cuBLAS
    was measured to be faster than our kernels, or is expected to be on a shape that is not tuned,
    it multiplies PyTorch's and CuPy's arrays, through their library. PyCUDA has none. A shape that
    is not tuned runs the kernel of a neighbour or the cost model's choice, and an `UntunedWarning`
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
    quantizes = further.get("scale_b") is not None and further.get("scale_a") is None
    if policy.frozen and not settings.froze(policy):
        with runtime.entered(policy):
            return _run(a, b, out, options, further, out_dtype, quantizes)
    if quantizes or policy.tune or policy.batch_invariant:
        return _run(a, b, out, options, further, out_dtype, quantizes)
    return multiplier().run(a, b, out, options, further, out_dtype)


def _run(
    a: Any,
    b: Any,
    out: Array | None,
    options: tuple[Any, ...],
    further: FurtherArrays,
    out_dtype: Any,
    quantizes: bool,
) -> Array:
    """`matmul` on the slow path: its policy asks for more than the fastest kernel of `multiplier`,
    or the call `quantizes` A."""
    named = runtime.CallOptions(*options)
    policy = named.policy
    policy.check()
    tunes = policy.tune and not settings.mode().frozen
    quick = policy.tune == "quick"
    tuner = partial(_tune, objective=time_objective(policy.cold), quick=quick)
    if quantizes:
        _check_quantizing(policy, further)
        quantized = runtime.quantized_matmul()
        if tunes:
            quantized.tune(a, b, tuner, named, out=out, out_dtype=out_dtype, **further)
        return quantized(a, b, out, named, out_dtype, **further)
    multiply = _invariant(policy) if policy.batch_invariant else multiplier()
    if tunes:
        multiply.tune(a, b, tuner, named, out=out, out_dtype=out_dtype, quick=quick, **further)
    return multiply.run(a, b, out, options, further, out_dtype)


def _check_quantizing(policy: Policy, further: FurtherArrays) -> None:
    """Checks that a product which quantises its A has none of the options that it cannot have."""
    refuse_additions(
        [
            name
            for name, array in further.items()
            if array is not None and name not in ("bias", "scale_b")
        ]
    )
    if policy.batch_invariant:
        raise UsageError("a batch-invariant product does not quantise its A; give scale_a")


def _invariant(policy: Policy) -> Matmul:
    """The process's own matmul of batch-invariant kernels."""
    if policy.tune:
        raise UsageError(
            "a batch-invariant product is not tuned alone; tune its range: "
            "autotune.tune(..., batch_invariant=True)"
        )
    return runtime.batch_invariant()


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
    return tuning.search(problem, search.limited(), device=local.index_of(device))
