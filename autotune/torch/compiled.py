"""`inductor`, and the operators that it puts into the graphs of `torch.compile`.

`autotune::chosen_mm` and `autotune::chosen_scaled_mm` have no gradients and no autocast: a graph is
rewritten after both. Inductor calls their launches with an output that it has planned, which costs
the host less than a call of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from autotune import runtime, settings
from autotune.api.matmul import multiplier
from autotune.errors import ArrayError, FrozenError, UsageError
from autotune.runtime.frameworks import own_scales
from autotune.settings import Policy
from autotune.torch import operator, scaled
from autotune.torch.operator import Product, called_with
from autotune.torch.scaled import ScaledProduct

if TYPE_CHECKING:
    from autotune.torch.graph_pass import Inductor

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
    `min_gain` and by more than a tie. Without a record a look-up has to expect that. Other products
    stay as they are. A product with a symbolic M is replaced if the kernel gains for the M of the
    first call or for any recorded M. It chooses its kernel, or cuBLAS, at each call.

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


SCHEMAS = {
    "chosen_mm": "(Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, "
    "str? activation=None, str? compute=None, bool cold=False, bool dependent=False) -> Tensor",
    "chosen_scaled_mm": "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType? out_dtype=None, bool use_fast_accum=False, bool cold=False, "
    "bool dependent=False) -> Tensor",
}


class ChosenMm(NamedTuple):
    """The arguments of `autotune::chosen_mm`."""

    a: Any
    b: Any
    bias: Any = None
    residual: Any = None
    activation: str | None = None
    compute: str | None = None
    cold: bool = False
    dependent: bool = False

    @property
    def product(self) -> Product:
        """The arguments of `autotune::mm`."""
        operands = self.a, self.b, self.bias, self.activation, self.compute
        return Product(*operands, self.dependent, self.residual)


class ChosenScaledMm(NamedTuple):
    """The arguments of `autotune::chosen_scaled_mm`."""

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    bias: Any = None
    out_dtype: Any = None
    use_fast_accum: bool = False
    cold: bool = False
    dependent: bool = False

    @property
    def product(self) -> ScaledProduct:
        """The arguments of `autotune::scaled_mm`."""
        return ScaledProduct(*self[:7], dependent=self.dependent)


def register(library: Any) -> None:
    """Defines the operators, with their implementations for GPUs, the CPU and fake tensors."""
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("chosen_mm", ChosenMm, operator),
        ("chosen_scaled_mm", ChosenScaledMm, scaled),
    )
    for name, kind, room in kinds:
        library.define(name + SCHEMAS[name])
        library.impl(name, called_with(kind, _on_gpu), "CUDA")
        library.impl(name, called_with(kind, _with_product(room.by_torch)), "CPU")
        fake = called_with(kind, _with_product(room.fake))
        torch.library.register_fake(f"autotune::{name}", fake, lib=library)


def _with_product(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda chosen: run(chosen.product)


def _on_gpu(chosen: ChosenMm | ChosenScaledMm) -> Any:
    """The result in new memory, by the operators of eager programs."""
    product, policy = chosen.product, _policy(settings.policy(), chosen.cold, chosen.dependent)
    if isinstance(product, ScaledProduct):
        return settings.followed(policy, scaled.on_gpu, product)
    return settings.followed(policy, operator.on_gpu, *product)


def launch_mm(
    a: Any,
    b: Any,
    *further: Any,
    named: tuple[str, ...],
    activation: str | None,
    compute: str | None,
    cold: bool,
    dependent: bool,
    out: Any,
) -> Any:
    """`autotune::chosen_mm` into an output; `named` are the names of the further operands."""
    operands = dict(zip(named, further, strict=True)) if further else {}
    policy = _policy(settings.policy(), cold, dependent)
    options = 1.0, 0.0, activation, compute, None, None, policy
    try:
        return multiplier().run(a, b, out, options, operands)
    except (ArrayError, FrozenError):
        chosen = ChosenMm(a, b, None, None, activation, compute, cold, dependent)
        return out.copy_(_on_gpu(chosen._replace(**operands)))


def launch_scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *bias: Any,
    fast: bool,
    cold: bool,
    dependent: bool,
    out: Any,
) -> Any:
    """`autotune::chosen_scaled_mm` into an output."""
    policy = _policy(settings.policy(), cold, dependent)
    options = 1.0, 0.0, None, None, "fast" if fast else None, None, policy
    try:
        scales = own_scales(a, b, scale_a, scale_b)
        operands = dict(zip(("scale_a", "scale_b", "bias"), (*scales, *bias), strict=False))
        return runtime.current().run(a, b, out, options, operands)
    except ArrayError:
        added = bias[0] if bias else None
        chosen = ChosenScaledMm(a, b, scale_a, scale_b, added, out.dtype, fast, cold, dependent)
        return out.copy_(_on_gpu(chosen))


@lru_cache(maxsize=64)
def _policy(policy: Policy, cold: bool, dependent: bool) -> Policy:
    return policy._replace(cold=cold, dependent=dependent)


@cache
def lower() -> None:
    """Teaches Inductor, once in a process, to call the launches with an output of its own.

    The generated code names the launches as `extern_kernels.autotune_mm`, also where it comes from
    the cache of another process.
    """
    from torch._inductor.lowering import (
        add_layout_constraint,
        constrain_to_fx_strides,
        register_lowering,
    )
    from torch._inductor.select_algorithm import ExternKernelChoice

    mm = ExternKernelChoice(launch_mm, name="autotune_mm")
    scaled_mm = ExternKernelChoice(launch_scaled_mm, name="autotune_scaled_mm")

    def lowered_mm(*arguments: Any, **named: Any) -> Any:
        chosen = ChosenMm(*arguments, **named)
        further = {"bias": chosen.bias, "residual": chosen.residual}
        present = {name: node for name, node in further.items() if node is not None}
        options = {
            "named": tuple(present),
            "activation": chosen.activation,
            "compute": chosen.compute,
            "cold": chosen.cold,
            "dependent": chosen.dependent,
        }
        return _extern(mm, [chosen.a, chosen.b, *present.values()], None, options)

    def lowered_scaled_mm(*arguments: Any, **named: Any) -> Any:
        chosen = ChosenScaledMm(*arguments, **named)
        operands = [node for node in chosen[:5] if node is not None]
        options = {
            "fast": chosen.use_fast_accum,
            "cold": chosen.cold,
            "dependent": chosen.dependent,
        }
        return _extern(scaled_mm, operands, chosen.out_dtype, options)

    for name, lowered in (("chosen_mm", lowered_mm), ("chosen_scaled_mm", lowered_scaled_mm)):
        overload = getattr(torch.ops.autotune, name).default
        register_lowering(overload, type_promotion_kind=None)(lowered)
        # The kernel was chosen for the strides that the graph states.
        add_layout_constraint(overload, constrain_to_fx_strides)


def _extern(choice: Any, operands: Sequence[Any], dtype: Any, options: dict[str, Any]) -> Any:
    """The call of a launch in Inductor's representation, with its output."""
    from torch._inductor import ir

    placed = [ir.ExternKernel.realize_input(operand) for operand in operands]
    a, b = placed[:2]
    sizes = [*a.get_size()[:-1], b.get_size()[-1]]
    layout = ir.FixedLayout(a.get_device(), dtype or a.get_dtype(), sizes)
    return choice.bind(placed, layout, **options).output_node()
