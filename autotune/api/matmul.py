"""Matrix multiplication of arrays by the best recorded kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from autotune import runtime, settings
from autotune.device import Device
from autotune.errors import UsageError
from autotune.problem import Problem, compute_of
from autotune.runtime.quantized_operand import refuse_additions
from autotune.targets import local

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.problem.call import FurtherArrays
    from autotune.runners.base import Objective
    from autotune.runtime.matmul import Array, Matmul


def matmul(
    a: Any,
    b: Any,
    out: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    tune: bool | Literal["quick"] = False,
    activation: str | None = None,
    compute: str | None = None,
    accuracy: str = "exact",
    vendor: bool = True,
    verify: bool = False,
    dependent: bool = False,
    cold: bool = False,
    scale: str | None = None,
    accumulate: str | None = None,
    out_dtype: Any = None,
    batch_invariant: bool = False,
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
        tune: first tunes a shape that is not tuned, for at most 60 s; `quick` races the most
            promising configurations and cuBLAS instead, of a shape without a record. Not in the
            frozen mode.
        activation: `relu`, `gelu` (the exact one, with erf), `gelu_tanh`, `silu` or None; `swiglu`,
            for operands of 16 and 8 bits, takes a `b` of `autotune.interleave` and gives
            `silu(a gate) (a up)`, (m, n / 2), with alpha 1, beta 0 and no bias.
        compute: the precision (see `Problem`); by default that of the operands' type. fp32 operands
            can also be computed as `tf32` or `tf32x3`.
        accuracy: `exact`, or `near` for `tf32x3`.
        vendor: whether cuBLAS may multiply. It never does in fp32 if PyTorch's setting of TF32
            differs from the compute.
        verify: first checks a kernel that this process has not checked yet: it has to compute a
            product of small integers bit for bit. That takes memory for a second set of operands,
            and seconds for large ones. cuBLAS is not checked.
        dependent: whether the kernel may start before its predecessor on the stream has ended
            (programmatic dependent launch): it then sets itself up and waits on the GPU, which
            hides the time between two kernels. Needs compute capability 9.0; cuBLAS ignores it.
        cold: whether to run what is fastest with operands that are not in L2, such as weights that
            are read once between two calls; `tune` then minimises that time.
        scale: `tensor`, `row` or `block`, if their shapes fit more than one; by default the
            coarsest.
        accumulate: how fp8 products are summed: `exact` (the default) adds sums of 128 in fp32,
            `fast` keeps the 14 bits of the tensor cores all along K.
        out_dtype: type of the allocated result: a dtype of the library, or a name such as `f16`; by
            default that of `a` and `b`, and bfloat16 for fp8 and int8.
        batch_invariant: whether to run a kernel of a batch-invariant range (see
            `autotune.tune`), so that the bits of a row do not depend on the rows beside it.
            cuBLAS is not used, and nothing is tuned.
        further: the arrays that some products have besides: `bias`, (n,), added to every row, of
            the type of `out`; `scale_a` and `scale_b`, the scales of fp8 and int8 operands, where
            `scale_b` alone quantises `a`; `residual`, a matrix like `out` that is added, for
            operands of 16 and 8 bits without an activation, of the type of `out`, row-major,
            without overlap with it; `scale_result`, one fp32 number that a result in fp8 is
            multiplied by, 1 by default; `amax`, one fp32 number that is raised to the largest size
            of a result in fp8 before its scale, where NaN does not count: zero it before the call
            for that of the call alone.

    Raises:
        UsageError: for `dependent` on a device below compute capability 9.0.
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
    options = alpha, beta, activation, compute, accumulate, scale, dependent, cold, vendor
    if further.get("scale_b") is not None and further.get("scale_a") is None:
        _check_quantizing(batch_invariant, further)
        return cast("Array", _quantized(a, b, out, options, out_dtype, tune, verify, further))
    multiply = _invariant(tune) if batch_invariant else multiplier()
    if tune and not settings.mode().frozen:
        quick = is_quick(tune)
        tuner = partial(_tune, objective="cold" if cold else "hot", quick=quick)
        named = runtime.CallOptions(*options)
        multiply.tune(a, b, tuner, named, out=out, out_dtype=out_dtype, quick=quick, **further)
    return multiply.run(a, b, out, options, further, out_dtype, verify)


def _check_quantizing(batch_invariant: bool, further: FurtherArrays) -> None:
    """Checks that a product which quantises its A has none of the options that it cannot have."""
    refuse_additions(
        [
            name
            for name, array in further.items()
            if array is not None and name not in ("bias", "scale_b")
        ]
    )
    if batch_invariant:
        raise UsageError("a batch-invariant product does not quantise its A; give scale_a")


def _invariant(tune: bool | str) -> Matmul:
    """The process's own matmul of batch-invariant kernels."""
    if tune:
        raise UsageError(
            "a batch-invariant product is not tuned alone; tune its range: "
            "autotune.tune(..., batch_invariant=True)"
        )
    return runtime.batch_invariant()


def _quantized(
    a: Any,
    b: Any,
    out: Any,
    options: tuple[Any, ...],
    out_dtype: Any,
    tune: bool | str,
    verify: bool,
    further: FurtherArrays,
) -> Any:
    """`matmul` of an A that is quantised on the way in."""
    multiply, named = runtime.quantized_matmul(), runtime.CallOptions(*options)
    if tune and not settings.mode().frozen:
        objective: Objective = "cold" if named.cold else "hot"
        tuner = partial(_tune, objective=objective, quick=is_quick(tune))
        multiply.tune(a, b, tuner, named, out=out, out_dtype=out_dtype, **further)
    return multiply(a, b, out, named, out_dtype, verify, **further)


def multiplier() -> Matmul:
    """The process's own matmul, which in the quick mode races a product without a record."""
    multiply = runtime.current()
    if multiply.racer is None and multiply.runtime.mode.quick:
        multiply.racer = race_unrecorded
    return multiply


def race_unrecorded(problem: Problem, device: Device, objective: Objective) -> None:
    """Races the most promising configurations of a problem, unless a record or range serves it."""
    if not is_served(problem, device, objective):
        _tune(problem, device, objective, quick=True)


def is_served(problem: Problem, device: Device, objective: Objective) -> bool:
    """Whether a record or range serves a problem."""
    from autotune.lookup.lookup import RECORDED, lookup
    from autotune.records import Store

    return lookup(problem, device, Store(settings.cache_dir()), objective, RECORDED) is not None


def is_quick(tune: bool | str) -> bool:
    """Whether the argument `tune` asks for a race.

    Raises:
        UsageError: for another text.
    """
    if isinstance(tune, str) and tune != "quick":
        raise UsageError(f"tune is {tune!r}; give True, False or 'quick'")
    return tune == "quick"


def _tune(problem: Problem, device: Device, objective: Objective, quick: bool) -> object:
    from autotune.api import tuning
    from autotune.tuning.options import Search

    search = Search(effort="quick" if quick else "default", objective=objective)
    return tuning.search(problem, search.limited(), device=local.index_of(device))
