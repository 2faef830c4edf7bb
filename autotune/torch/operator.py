"""The operators `autotune::mm` and `autotune::mm_batch_invariant`: on each device, under autocast,
with gradients, and the shape of their results.

`torch.library.Library` defines them. An operator of `torch.library.custom_op` costs the host 20 us
more a call, several times what a small matmul takes on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import torch

from autotune import runtime, settings
from autotune.api.matmul import multiplier
from autotune.errors import ArrayError, FrozenError, ProblemError, UsageError
from autotune.problem import ELEMENT_TYPES, GATE_SPAN, SWIGLU, Problem, epilogue_of
from autotune.runtime.arrays import TYPES, ArrayInfo, batch_shape, memory_of
from autotune.runtime.frameworks import tf32_allowed
from autotune.settings import Policy

SCHEMA = (
    "mm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, str? compute=None, "
    "bool dependent=False, Tensor? residual=None) -> Tensor"
)
INVARIANT_SCHEMA = (
    "mm_batch_invariant(Tensor a, Tensor b, Tensor? bias=None, bool dependent=False) -> Tensor"
)

DTYPES = {
    getattr(torch, name): own
    for name, own in TYPES.items()
    if ELEMENT_TYPES[own].bytes > 1 and hasattr(torch, name)
}
"""The element types that the operator multiplies, by PyTorch's dtypes. Those of 8 bits, which need
scales, are for `scaled_mm`."""

Arguments = TypeVar("Arguments")
"""The arguments of an operator."""

_DTYPES_BY_TYPE = {type: dtype for dtype, type in DTYPES.items()}


class Product(NamedTuple):
    """The arguments of `autotune::mm`, in the order of its schema."""

    a: Any
    b: Any
    bias: Any = None
    activation: str | None = None
    compute: str | None = None
    dependent: bool = False
    residual: Any = None


def _swiglu(product: Any) -> Any:
    """silu(gate) up of the pairs of columns of a product."""
    pairs = product.unflatten(-1, (-1, 2, GATE_SPAN))
    return (torch.nn.functional.silu(pairs[..., 0, :]) * pairs[..., 1, :]).flatten(-2)


ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    SWIGLU: _swiglu,
}


def mm(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    policy: Policy | None = None,
    residual: Any = None,
) -> Any:
    """`act(a b + bias) + residual` by `torch.ops.autotune.mm`: a new, row-major tensor.

    On a GPU it runs the kernel tuned for the shape, type and layout of the operands; `a @ w.t()`
    has layout nt. Operands with strides that no kernel reads are copied. On the CPU it runs
    PyTorch's own matmul. It can be differentiated any number of times: the backward pass runs this
    operator too, in the layouts nt and tn if the forward pass was nn. Where a gradient is recorded,
    PyTorch's activation follows the kernel unless it is `relu`, as the derivatives of the others
    need their input. Under `torch.autocast` the operands are converted to the type of `compute`, or
    to autocast's type if `compute` is None.

    Args:
        a: (m, k) with any batch axes in front, in float32, float16 or bfloat16, on the CPU also
            float64. Sizes may be 0.
        b: (k, n) likewise, of the same type, on the same device; batch axes fit each other as in
            `torch.matmul`.
        bias: (n,), added to every row, of the same type.
        activation: `relu`, `gelu` (the exact one, with erf), `gelu_tanh`, `silu` or None; `swiglu`
            as in `autotune.matmul`, for float16 and bfloat16.
        compute: the precision (see `Problem`). By default the operands' type decides it; float32
            is computed as `tf32` if PyTorch's settings allow it
            (`torch.set_float32_matmul_precision("high")`, or `torch.backends.cuda.matmul`), else as
            `f32`.
        policy: what the kernels may do (see `autotune.Policy`); None is the current policy.
            `dependent` holds for the backward pass too, and a recorded gradient sets
            `batch_invariant` aside. `torch.compile` takes both when it traces the call; `vendor`,
            `cold` and `verify` are then those of the policy around the compiled call. Nothing is
            tuned.
        residual: a tensor of the result's shape and type that is added, for float16 and bfloat16,
            without an activation.

    Raises:
        UsageError: for `dependent` on a device below compute capability 9.0, or a compute with
            `batch_invariant`.
        ArrayError: if the operands do not fit each other, or no kernel takes their type.
        ProblemError: for an unknown activation or compute.
        NotFoundError: if no kernel can run the problem on the GPU.
    """
    compiling = torch.compiler.is_compiling()
    multiply: Callable[..., Any] = torch.ops.autotune.mm.default if compiling else _eager_mm
    now = policy or (traced_policy() if compiling else settings.policy())
    if now.batch_invariant and a.is_cuda and not recording(a, b, bias, residual):
        multiply = _invariant_mm
    arguments = a, b, bias, activation, compute, now.dependent, residual
    return multiply(*arguments) if policy is None else run_under(policy, multiply, *arguments)


def traced_policy() -> Policy:
    """The current policy; in a compiled function the one at the time of tracing."""
    return settings.policy()


# As `torch.compiler.assume_constant_result` does, which imports all of `torch._dynamo` for it:
# `torch.compile` cannot trace the reading of a context variable.
traced_policy._dynamo_marked_constant = True  # type: ignore[attr-defined]


def run_under(policy: Policy, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function that calls an operator under a policy. `torch.compile` runs it as it is: a
    compiled operator reads the policy of the time when it runs."""
    if torch.compiler.is_compiling() or policy == settings.policy():
        return function(*arguments)
    if policy.frozen:
        with runtime.entered(policy):
            return function(*arguments)
    return settings.followed(policy, function, *arguments)


def policy_with(dependent: bool) -> Policy:
    """The current policy with the `dependent` of an operator's argument."""
    policy = settings.policy()
    return policy if policy.dependent == dependent else _replaced(policy, dependent)


@lru_cache(maxsize=64)
def _replaced(policy: Policy, dependent: bool) -> Policy:
    return policy._replace(dependent=dependent)


def _eager_mm(a: Any, b: Any, bias: Any, *options: Any) -> Any:
    """`mm` by `torch.ops.autotune.mm` where nothing is compiled; the residual comes last."""
    operator = torch.ops.autotune.mm.default
    if torch.is_inference_mode_enabled() or recording(a, b, bias, options[-1]):
        return operator(a, b, bias, *options)
    # Skips the autograd implementation, which would find in 2 us that nothing is recorded.
    with torch._C._AutoDispatchBelowAutograd():
        return operator(a, b, bias, *options)


def _invariant_mm(*arguments: Any) -> Any:
    """`mm` by `torch.ops.autotune.mm_batch_invariant`, with PyTorch's activation and sum."""
    product = Product(*arguments)
    if product.compute is not None:
        raise UsageError(
            f"compute is {product.compute}; a batch-invariant product takes that of its operands: "
            "leave compute out, or call autotune.matmul"
        )
    operands = product.a, product.b, product.bias
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        operands = tuple(_cast(operand, "cuda", dtype) for operand in operands)
    result = torch.ops.autotune.mm_batch_invariant.default(*operands, product.dependent)
    if product.activation is not None:
        result = ACTIVATIONS[product.activation](result)
    return result if product.residual is None else result + product.residual


def recording(*operands: Any) -> bool:
    """Whether a gradient is recorded for one of the operands; None is an absent one."""
    # A loop takes half the time of any(); each call runs it.
    for operand in operands:
        if operand is not None and operand.requires_grad:
            return bool(torch.is_grad_enabled())
    return False


def register(library: Any) -> None:
    """Defines the operators, with their implementations."""
    library.define(SCHEMA)
    library.impl("mm", on_gpu, "CUDA")
    library.impl("mm", called_with(Product, by_torch), "CPU")
    library.impl("mm", called_with(Product, _differentiable), "Autograd")
    for device in ("cuda", "cpu"):
        converting = called_with(Product, partial(_under_autocast, device))
        library.impl("mm", converting, f"Autocast{device.upper()}")
    torch.library.register_fake("autotune::mm", called_with(Product, _fake), lib=library)
    library.define(INVARIANT_SCHEMA)
    library.impl("mm_batch_invariant", invariant_on_gpu, "CUDA")
    library.impl("mm_batch_invariant", called_with(_invariant_product, by_torch), "CPU")
    fake = called_with(_invariant_product, _fake)
    torch.library.register_fake("autotune::mm_batch_invariant", fake, lib=library)


def called_with(
    kind: Callable[..., Arguments], run: Callable[[Arguments], Any]
) -> Callable[..., Any]:
    """An implementation of an operator, which PyTorch calls with the arguments one by one."""
    return lambda *arguments, **named: run(kind(*arguments, **named))


def on_gpu(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
) -> Any:
    """`autotune::mm` by the tuned kernel. It lists its arguments, as a `Product` costs 1 us."""
    if compute is None and a.dtype is torch.float32 and tf32_allowed(torch):
        compute = "tf32"
    multiply, policy = multiplier(), policy_with(dependent)
    matmul = partial(multiply, activation=activation, compute=compute, policy=policy)
    try:
        return matmul(a, b, bias=bias, residual=residual)
    except (ArrayError, FrozenError) as error:
        # Only now, as nearly all operands need no copy.
        product = Product(a, b, bias, activation, compute, dependent, residual)
        if isinstance(error, ArrayError):
            return _with_copies(matmul, product)
        if multiply.runtime.mode.missing == "raise":
            raise
        return by_torch(product)


def _with_copies(matmul: Callable[..., Any], product: Product) -> Any:
    """A product by the runtime, with copies of what no kernel can read."""
    result_shape(product)  # says what is wrong otherwise
    if 0 in product.a.shape:
        return by_torch(product)  # no kernel takes a K of 0
    a, b = readable(product.a, "A"), readable(product.b, "B")
    bias, residual = contiguous(product.bias, product.residual)
    return matmul(a, b, bias=bias, residual=residual)


def by_torch(product: Product) -> Any:
    """`autotune::mm` by PyTorch, in its own precision for the operands' type."""
    result_shape(product)
    return with_epilogue(torch.matmul(product.a, product.b), product).contiguous()


def with_epilogue(result: Any, product: Any) -> Any:
    """A result of a `Product`, or of scaled operands, with its bias, activation and residual, in
    the result's type."""
    if product.bias is not None:
        result = result + product.bias.to(result.dtype)
    if product.activation is not None:
        result = ACTIVATIONS[product.activation](result)
    return result if product.residual is None else result + product.residual.to(result.dtype)


def _fake(product: Product) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    return product.a.new_empty(result_shape(product))


def invariant_on_gpu(a: Any, b: Any, bias: Any = None, dependent: bool = False) -> Any:
    """`autotune::mm_batch_invariant` by a kernel of the batch-invariant range of its N and K."""
    compute = "tf32" if a.dtype is torch.float32 and tf32_allowed(torch) else None
    matmul = partial(runtime.batch_invariant(), compute=compute, policy=policy_with(dependent))
    try:
        return matmul(a, b, bias=bias)
    except ArrayError:
        return _with_copies(matmul, Product(a, b, bias))


def _invariant_product(a: Any, b: Any, bias: Any = None, dependent: bool = False) -> Product:
    """The arguments of `autotune::mm_batch_invariant`, in the order of its schema."""
    return Product(a, b, bias, dependent=dependent)


# Autocast.


def _under_autocast(device: str, product: Product) -> Any:
    """Converts the operands, as autocast does for `torch.mm`, and calls the operator below it."""
    if product.compute is None:
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = _DTYPES_BY_TYPE[Problem(1, 1, 1, product.compute).operand_types[0]]
    key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")
    names = "a", "b", "bias", "residual"
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        converted = {name: _cast(getattr(product, name), device, dtype) for name in names}
        return torch.ops.autotune.mm.default(*product._replace(**converted))


def _cast(tensor: Any, device: str, dtype: Any) -> Any:
    """The tensor in `dtype`, if autocast would convert it: floating point on that device, but not
    float64."""
    eligible = tensor is not None and tensor.device.type == device and tensor.is_floating_point()
    return tensor.to(dtype) if eligible and tensor.dtype is not torch.float64 else tensor


# Gradients, computed by the operator itself, so that they have gradients too.


def _differentiable(product: Product) -> Any:
    """The result, which saves what its gradients need if a gradient is recorded.

    It does what `torch.library.register_autograd` does, in 3 to 5 us less a call.
    """
    if not recording(product.a, product.b, product.bias, product.residual):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.autotune.mm.default(*product)
    activation = product.activation
    if activation in (None, "relu"):
        return _GemmFunction.apply(*product)
    return ACTIVATIONS[activation](_GemmFunction.apply(*product._replace(activation=None)))


class _GemmFunction(torch.autograd.Function):  # type: ignore[misc]
    """`a b + bias + residual`, or the relu of `a b + bias`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        product = Product(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            result = torch.ops.autotune.mm.default(*product)
        ctx.save_for_backward(product.a, product.b, result if product.activation else None)
        ctx.options = product.compute, product.dependent
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        a, b, result = ctx.saved_tensors
        wanted = Product(*ctx.needs_input_grad)
        if result is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, result, 0)
        if 0 in gradient.stride():
            # An expanded gradient, such as that of a sum, would be copied for each use.
            gradient = gradient.contiguous()
        return (
            _mm_stored_like(a, gradient, b.mT, *ctx.options).sum_to_size(a.shape)
            if wanted.a
            else None,
            _gradient_of_b(gradient, a, b, *ctx.options) if wanted.b else None,
            gradient.sum(tuple(range(gradient.dim() - 1))) if wanted.bias else None,
            *(None, None, None),
            gradient if wanted.residual else None,
        )


def _gradient_of_b(gradient: Any, a: Any, b: Any, compute: str | None, dependent: bool) -> Any:
    """The gradient of B: A transposed times that of the result."""
    if a.dim() > 2 == b.dim():
        # B is one matrix for the whole batch: a single matmul sums over all rows.
        a, gradient = a.flatten(0, -2), gradient.flatten(0, -2)
    return _mm_stored_like(b, a.mT, gradient, compute, dependent).sum_to_size(b.shape)


def _mm_stored_like(like: Any, left: Any, right: Any, compute: str | None, dependent: bool) -> Any:
    """`left right`, stored column by column if `like` is. PyTorch would otherwise copy the gradient
    of a weight that is used transposed before accumulating it."""
    transposed = like.stride(-2) == 1 and like.stride(-1) != 1
    if transposed:
        left, right = right.mT, left.mT
    multiply = torch.ops.autotune.mm.default if torch.compiler.is_compiling() else _eager_mm
    result = multiply(*Product(left, right, compute=compute, dependent=dependent))
    return result.mT if transposed else result


# Checks of operands, also of fake ones and those with symbolic sizes.


def result_shape(product: Product) -> tuple[Any, ...]:
    """The shape of a result, with the batch axes that an operand has.

    The rules are those of `autotune.matmul`, except that strides do not matter, and operands that
    are not on a GPU may have any floating-point type.

    Raises:
        ArrayError: if the operands do not fit each other, or no kernel takes their type.
        ProblemError: for an unknown activation or compute.
    """
    a, b, bias, residual = product.a, product.b, product.bias, product.residual
    for name, operand in (("A", a), ("B", b)):
        if operand.dim() < 2:
            raise ArrayError(
                f"{name} has {operand.dim()} dimensions {tuple(operand.shape)}; give a matrix or a "
                "batch of them"
            )
    _check_type(a, product.compute)
    for name, operand in (("B", b), ("bias", bias), ("residual", residual)):
        if operand is not None:
            _check_same(a, operand, name)
    return shape_of(a, b, bias, residual, product.activation)


def shape_of(a: Any, b: Any, bias: Any, residual: Any, activation: str | None) -> tuple[Any, ...]:
    """The shape of the result of operands, whatever their types and devices.

    Raises:
        ArrayError: if the operands do not fit each other.
        ProblemError: for an unknown activation, or a residual with an activation.
    """
    k, inner = a.shape[-1], b.shape[-2]
    if k != inner:
        raise ArrayError(
            f"A {tuple(a.shape)} times B {tuple(b.shape)}: the inner sizes {k} and {inner} differ"
        )
    epilogue_of(bias is not None, activation, residual is not None)
    n = b.shape[-1]
    if bias is not None and tuple(bias.shape) != (n,):
        raise ArrayError(f"bias is {tuple(bias.shape)}; the product has {n} columns: give {(n,)}")
    if a.dim() == 2 or b.dim() == 2:  # nothing to compare, also of symbolic sizes
        batch = *a.shape[:-2], *b.shape[:-2]
    else:
        batch = batch_shape(described(a, "A"), described(b, "B"))
    shape = *batch, a.shape[-2], width_of(n, activation)
    if residual is not None and tuple(residual.shape) != shape:
        raise ArrayError(f"residual is {tuple(residual.shape)}; the product is {tuple(shape)}")
    return shape


def width_of(n: Any, activation: str | None) -> Any:
    """The columns of the result of a product of `n` columns.

    Raises:
        ProblemError: for `swiglu` of columns that are not whole pairs.
    """
    if activation != SWIGLU:
        return n
    if n % (2 * GATE_SPAN):
        raise ProblemError(
            f"{SWIGLU} takes {GATE_SPAN} columns of gates and {GATE_SPAN} of their values; B "
            f"has {n}: make it by autotune.interleave"
        )
    return n // 2


def described(tensor: Any, name: str) -> ArrayInfo:
    """A tensor as the runtime would describe it on GPU 0."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return ArrayInfo(name, shape, strides, name_of(tensor.dtype), 0)


def readable(tensor: Any, name: str) -> Any:
    """The tensor, or a row-major copy if no kernel can read its strides."""
    try:
        memory_of(described(tensor, name))
    except ArrayError:
        return tensor.contiguous()
    return tensor


def contiguous(*tensors: Any) -> tuple[Any, ...]:
    """Row-major tensors in place of those with other strides; None for those that are absent."""
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def name_of(dtype: Any) -> str:
    """A dtype's name, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def _check_type(a: Any, compute: str | None) -> None:
    type = DTYPES.get(a.dtype)
    if type is None and (a.is_cuda or not a.is_floating_point()):
        raise ArrayError(
            f"A is {name_of(a.dtype)}; the kernels take {', '.join(map(name_of, DTYPES))}: "
            "convert it"
        )
    if compute is None:
        return
    wanted = Problem(1, 1, 1, compute).precision.operand
    if type not in (wanted.name, None):
        raise ArrayError(
            f"A and B are {name_of(a.dtype)}; {compute} multiplies {wanted.dtype}: convert them or "
            f"give compute={type!r}"
        )


def _check_same(a: Any, tensor: Any, name: str) -> None:
    """Refuses an operand on another device or of another type than A."""
    if a.device != tensor.device:
        raise ArrayError(f"A is on {a.device}, {name} on {tensor.device}; move one of them")
    if a.dtype != tensor.dtype:
        types = f"A is {name_of(a.dtype)}, {name} {name_of(tensor.dtype)}"
        raise ArrayError(f"{types}; convert one of them")
