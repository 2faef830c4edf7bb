"""`inductor`, and the operator that it puts into the graphs of `torch.compile`.

`autotune::chosen_mm` has no gradients and no autocast: a graph is rewritten after both. Inductor
calls its launch with an output that it has planned, which costs the host less than a call of an
operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch

from autotune import settings
from autotune.api.matmul import multiplier
from autotune.errors import ArrayError, FrozenError, UsageError
from autotune.runtime.frameworks import own_scales
from autotune.settings import Policy
from autotune.torch import operator, scaled
from autotune.torch.operator import Product, called_with, shape_of
from autotune.torch.scaled import ScaledProduct

if TYPE_CHECKING:
    from autotune.torch.graph_pass import Inductor

SCHEMA = (
    "chosen_mm(Tensor a, Tensor b, *, Tensor? bias=None, Tensor? residual=None, "
    "Tensor? scale_a=None, Tensor? scale_b=None, str? activation=None, str? compute=None, "
    "ScalarType? out_dtype=None, bool fast=False, bool cold=False, bool dependent=False) -> Tensor"
)

FURTHER = "bias", "residual", "scale_a", "scale_b"
"""The operands of `autotune::chosen_mm` beside A and B."""

DEFAULT = Policy(tune="quick", cold=True, dependent=True)
"""The policy of `inductor()`. A race takes a second or two a shape, once; the weights of a model
come from memory; and a block of Llama 3 gains 1 % more by dependent launches."""


def inductor(policy: Policy | None = None, min_gain: float = 0.0) -> Inductor:
    """Makes programs that `torch.compile` compiles from now on run tuned kernels where these gain.

        autotune.torch.inductor()
        model = torch.compile(model, mode="reduce-overhead")

        with autotune.torch.inductor() as choices:  # or for what is compiled in a block
            compiled(x)
        print(choices)

    It serves `mm`, `addmm`, `bmm`, `baddbmm` and `_scaled_mm` on GPUs, forward and backward, in
    their layouts. A kernel also computes the bias, the activation or the residual behind its
    product, if no pointwise kernel is left then.

    A product is replaced if its record says that the tuned kernel is faster than cuBLAS by
    `min_gain` and by more than a tie, or that cuBLAS's result was wrong. Without a record a look-up
    has to expect the gain. It is also replaced if the installed cuBLAS has a known fault that it
    may meet, unless its record verified this version. Other products stay as they are. A product
    with a symbolic M is replaced if the kernel gains for the M of the first call or for any
    recorded M. It chooses its kernel, or cuBLAS, at each call.

    The choices are logged as a table for each graph, to the logger `autotune` at level INFO.
    Inductor runs this pass after the passes that the program has set. Its cache keeps the graphs
    under a key of the policy, the records and the versions. With `cpp_wrapper`, and so in
    ahead-of-time compilation, nothing is replaced. Functions that were compiled before stay as
    they are.

    Args:
        policy: `tune="quick"` races the most promising kernels and cuBLAS for each shape without a
            record when a graph is compiled, in one to two seconds a shape; otherwise records and
            look-ups decide alone. `cold` ranks by the times of operands that are not in L2, such as
            the weights of a model. `dependent` lets kernels start early where the GPU can. None is
            `Policy(tune="quick", cold=True, dependent=True)`.
        min_gain: the least gain over cuBLAS; 0.05 is 5 %.

    Returns:
        The switch. Its `close()`, or the end of a `with` block, restores Inductor's settings. Its
        `rows` are the choices so far.

    Raises:
        UsageError: for a `min_gain` below 0, or a field of a policy that it does not follow.
    """
    policy = DEFAULT if policy is None else policy
    policy.check()
    followed = policy._replace(cold=False, dependent=False)
    if followed not in (Policy(), Policy(tune="quick")):
        raise UsageError(
            f"inductor follows tune='quick', cold and dependent of a policy, not {followed}; tune "
            "shapes beforehand with autotune.tune"
        )
    if not min_gain >= 0:
        raise UsageError(f"min_gain is {min_gain}; give 0 or more, such as 0.05 for 5 %")
    from autotune.torch.graph_pass import Inductor

    lower()
    return Inductor(policy, min_gain)


def register(library: Any) -> None:
    """Defines the operator, with its implementations for GPUs and fake tensors."""
    library.define(SCHEMA)
    library.impl("chosen_mm", _on_gpu, "CUDA")
    torch.library.register_fake("autotune::chosen_mm", _result, lib=library)


def _on_gpu(a: Any, b: Any, *, out_dtype: Any = None, **arguments: Any) -> Any:
    """The product where Inductor calls no launch."""
    operands = {name: arguments.pop(name) for name in FURTHER if arguments.get(name) is not None}
    options = {name: value for name, value in arguments.items() if name not in FURTHER}
    out = _result(a, b, out_dtype=out_dtype, **operands)
    return launch(a, b, *operands.values(), named=(*operands,), out=out, **options)


def _result(
    a: Any, b: Any, *, bias: Any = None, residual: Any = None, out_dtype: Any = None, **_: Any
) -> Any:
    """A new tensor for the result."""
    return a.new_empty(shape_of(a, b, bias, residual, None), dtype=out_dtype or a.dtype)


def launch(
    a: Any,
    b: Any,
    *further: Any,
    named: tuple[str, ...],
    out: Any,
    activation: str | None = None,
    compute: str | None = None,
    fast: bool = False,
    cold: bool = False,
    dependent: bool = False,
) -> Any:
    """`autotune::chosen_mm` into an output; `named` are the names of the further operands."""
    operands = dict(zip(named, further, strict=True)) if further else {}
    policy = _policy(settings.policy(), cold, dependent)
    options = 1.0, 0.0, activation, compute, "fast" if fast else None, None, policy
    try:
        if "scale_a" in operands:
            scales = own_scales(a, b, operands["scale_a"], operands["scale_b"])
            operands["scale_a"], operands["scale_b"] = scales
        return multiplier().run(a, b, out, options, operands)
    except (ArrayError, FrozenError):
        product: Any = Product(a, b, activation=activation, compute=compute, dependent=dependent)
        run: Callable[..., Any] = operator.on_gpu
        if "scale_a" in named:
            product = ScaledProduct(a, b, None, None, None, out.dtype, fast)
            run = called_with(ScaledProduct, scaled.on_gpu)
        product = product._replace(**dict(zip(named, further, strict=True)))
        return out.copy_(settings.followed(policy, run, *product))


@lru_cache(maxsize=64)
def _policy(policy: Policy, cold: bool, dependent: bool) -> Policy:
    return policy._replace(cold=cold, dependent=dependent)


@cache
def lower() -> None:
    """Teaches Inductor, once in a process, to call the launch with an output of its own.

    The generated code names it as `extern_kernels.autotune_mm`, also where the code comes from the
    cache of another process.
    """
    from torch._inductor import ir
    from torch._inductor.lowering import (
        add_layout_constraint,
        constrain_to_fx_strides,
        register_lowering,
    )
    from torch._inductor.select_algorithm import ExternKernelChoice

    choice = ExternKernelChoice(launch, name="autotune_mm")

    def lowered(a: Any, b: Any, *, out_dtype: Any = None, **arguments: Any) -> Any:
        operands = {name: arguments.pop(name, None) for name in FURTHER}
        present = {name: node for name, node in operands.items() if node is not None}
        placed = [ir.ExternKernel.realize_input(node) for node in (a, b, *present.values())]
        sizes = [*placed[0].get_size()[:-1], placed[1].get_size()[-1]]
        layout = ir.FixedLayout(a.get_device(), out_dtype or a.get_dtype(), sizes)
        return choice.bind(placed, layout, named=(*present,), **arguments).output_node()

    overload = torch.ops.autotune.chosen_mm.default
    register_lowering(overload, type_promotion_kind=None)(lowered)
    # The kernel was chosen for the strides that the graph states.
    add_layout_constraint(overload, constrain_to_fx_strides)
