"""The operator `autotune::mm`: its implementation on each device, and the shape of its result.

`torch.library.Library` defines it. An operator of `torch.library.custom_op` costs the host 20 us
more a call, several times what a small matmul takes on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch

from autotune import runtime, settings
from autotune.api.matmul import multiplier
from autotune.errors import ArrayError, FrozenError, UsageError
from autotune.problem import GATE_SPAN, SWIGLU
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.settings import Policy
from autotune.torch.autocast import cast
from autotune.torch.operands import contiguous, readable, result_shape

SCHEMA = (
    "mm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, str? compute=None, "
    "bool dependent=False, Tensor? residual=None) -> Tensor"
)


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
    if policy is None:
        return multiply(a, b, bias, activation, compute, now.dependent, residual)
    return run_under(policy, multiply, a, b, bias, activation, compute, policy.dependent, residual)


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


def _invariant_mm(
    a: Any,
    b: Any,
    bias: Any,
    activation: str | None,
    compute: str | None,
    dependent: bool,
    residual: Any,
) -> Any:
    """`mm` by `torch.ops.autotune.mm_batch_invariant`, with PyTorch's activation and sum."""
    if compute is not None:
        raise UsageError(
            f"compute is {compute}; a batch-invariant product takes that of its operands: leave "
            "compute out, or call autotune.matmul"
        )
    operands = a, b, bias
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        operands = tuple(cast(operand, "cuda", dtype) for operand in operands)
    result = torch.ops.autotune.mm_batch_invariant.default(*operands, dependent)
    if activation is not None:
        result = ACTIVATIONS[activation](result)
    return result if residual is None else result + residual


def run(
    a: Any,
    b: Any,
    bias: Any,
    activation: str | None,
    compute: str | None,
    dependent: bool,
    residual: Any = None,
) -> Any:
    """`mm` by `torch.ops.autotune.mm`."""
    if torch.compiler.is_compiling():
        return torch.ops.autotune.mm.default(a, b, bias, activation, compute, dependent, residual)
    return _eager_mm(a, b, bias, activation, compute, dependent, residual)


def _eager_mm(
    a: Any,
    b: Any,
    bias: Any,
    activation: str | None,
    compute: str | None,
    dependent: bool,
    residual: Any,
) -> Any:
    """`mm` by `torch.ops.autotune.mm` where nothing is compiled."""
    operator = torch.ops.autotune.mm.default
    if torch.is_inference_mode_enabled() or recording(a, b, bias, residual):
        return operator(a, b, bias, activation, compute, dependent, residual)
    # Skips the autograd implementation, which would find in 2 us that nothing is recorded.
    with torch._C._AutoDispatchBelowAutograd():
        return operator(a, b, bias, activation, compute, dependent, residual)


def recording(a: Any, b: Any, bias: Any, residual: Any = None) -> bool:
    """Whether a gradient is recorded for one of the operands."""
    wanted = (
        a.requires_grad
        or b.requires_grad
        or (bias is not None and bias.requires_grad)
        or (residual is not None and residual.requires_grad)
    )
    return bool(wanted and torch.is_grad_enabled())


def register(library: Any) -> None:
    """Defines the operator, with its implementations for GPUs, the CPU and fake tensors."""
    library.define(SCHEMA)
    library.impl("mm", on_gpu, "CUDA")
    library.impl("mm", by_torch, "CPU")
    torch.library.register_fake("autotune::mm", _fake, lib=library)


def on_gpu(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
) -> Any:
    """The matmul by the tuned kernel."""
    if compute is None and a.dtype is torch.float32 and tf32_allowed(torch):
        compute = "tf32"
    multiply = multiplier()
    policy = policy_with(dependent)
    matmul = partial(multiply, activation=activation, compute=compute, policy=policy)
    try:
        return matmul(a, b, bias=bias, residual=residual)
    except FrozenError:
        if multiply.runtime.mode.missing == "raise":
            raise
        return by_torch(a, b, bias, activation, compute, residual=residual)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        result_shape(a, b, bias, activation, compute, residual)
    a, b = readable(a, "A"), readable(b, "B")
    bias, residual = contiguous(bias, residual)
    return matmul(a, b, bias=bias, residual=residual)


def by_torch(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,  # noqa: ARG001 - the schema has it
    residual: Any = None,
) -> Any:
    """The matmul by PyTorch, in its own precision for the operands' type."""
    result_shape(a, b, bias, activation, compute, residual)
    result = torch.matmul(a, b)
    if bias is not None:
        result = result + bias
    if activation is not None:
        result = ACTIVATIONS[activation](result)
    if residual is not None:
        result = result + residual
    return result.contiguous()


def _fake(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,  # noqa: ARG001 - the schema has it
    residual: Any = None,
) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    return a.new_empty(result_shape(a, b, bias, activation, compute, residual))
