"""Notes the GEMMs that PyTorch runs: a model's shapes, with how often each runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.api.shapes import Shapes
from autotune.errors import ArrayError, ProblemError
from autotune.problem import Problem
from autotune.runtime.arrays import ArrayInfo, check, dense, memory_of
from autotune.runtime.frameworks import own_scale_b, own_scales, tf32_allowed
from autotune.runtime.operands import DEFAULTS, CallOptions, output_of, problem_of
from autotune.runtime.quantized import quantised_infos, quantises
from autotune.torch.operator import Product, described
from autotune.torch.scaled import ScaledProduct

aten = torch.ops.aten


@contextmanager
def recording() -> Iterator[Shapes]:
    """Notes every matrix product that PyTorch runs inside a `with` block.

        with autotune.torch.recording() as shapes:
            model(x)
        shapes.save("shapes.json")           # autotune tune shapes.json --budget 10m
        autotune.tune(shapes, seconds=600)
        autotune.torch.patch(model, rows=shapes)

    Noted are `mm`, `addmm`, `bmm`, `baddbmm`, `_scaled_mm`, `_int_mm` and the operators of
    `autotune.torch`, and so whatever calls them: `linear`, `matmul`, `einsum`, linear layers, the
    `Conv1D` of GPT-2, and backward passes. Products inside fused attention or of types that no
    kernel takes, and empty ones, are not. The model may be on any device, also on `meta`.
    """
    shapes = Shapes()
    with _Recorder(shapes):
        yield shapes


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Counts the problems of the operators that pass."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self._shapes = shapes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        named = kwargs or {}
        problem_of = _PRODUCTS.get(func.overloadpacket)
        if problem_of is None:
            if _is_composite(func):  # as `linear` in inference mode: its parts are noted
                with self:
                    return func.decompose(*args, **named)
            return func(*args, **named)
        try:
            rest = {name: value for name, value in named.items() if name != "out"}
            problem = problem_of(*args, **rest)
        except (ArrayError, ProblemError, TypeError):
            problem = None  # no kernel takes it, or it is an overload that is not known yet
        if problem is not None:
            self._shapes[problem] += 1
        return func(*args, **named)


def _is_composite(func: Any) -> bool:
    if func.namespace == "prim":  # the dispatcher does not know these
        return False
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


def _mm(a: Any, b: Any, out_dtype: Any = None) -> Problem | None:
    return problem_of_tensors({"a": a, "b": b}, output=output_of(out_dtype))


def _addmm(
    added: Any, a: Any, b: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1
) -> Problem | None:
    del alpha
    return problem_of_tensors(_with_bias(added, a, b, beta), output=output_of(out_dtype))


def _addmm_activation(
    added: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Problem | None:
    del alpha
    options = CallOptions(activation="gelu_tanh" if use_gelu else "relu")
    return problem_of_tensors(_with_bias(added, a, b, beta), options)


def _baddbmm(
    added: Any, a: Any, b: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1
) -> Problem | None:
    del added, beta, alpha
    return _mm(a, b, out_dtype)


def _int_mm(a: Any, b: Any) -> Problem | None:
    return problem_of_tensors({"a": a, "b": b}, output="i32")


def scaled_problem(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Problem | None:
    """The problem of a call of `torch._scaled_mm`."""
    del scale_result
    return _own_scaled_mm(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum)


def _own_mm(*arguments: Any, **named: Any) -> Problem | None:
    product = Product(*arguments, **named)
    options = CallOptions(activation=product.activation, compute=product.compute)
    return problem_of_tensors(_operands(product, "a", "b", "bias", "residual"), options)


def _own_scaled_mm(*arguments: Any, **named: Any) -> Problem | None:
    product = ScaledProduct(*arguments, **named)
    if 0 in (*product.a.shape, *product.b.shape):
        return None
    if product.scale_a is None:
        product = product._replace(scale_b=own_scale_b(product.b, product.scale_b))
    else:
        scales = own_scales(product.a, product.b, product.scale_a, product.scale_b)
        product = product._replace(scale_a=scales[0], scale_b=scales[1])
    options = CallOptions(
        activation=product.activation,
        compute=product.precision if product.scale_a is None else None,
        accumulate=product.accumulate,
    )
    operands = _operands(product, "a", "b", "bias", "residual", "scale_a", "scale_b")
    return problem_of_tensors(operands, options, output_of(product.result_dtype))


_PRODUCTS: Mapping[Any, Callable[..., Problem | None]] = {
    aten.mm: _mm,
    aten.addmm: _addmm,
    aten._addmm_activation: _addmm_activation,
    aten.bmm: _mm,
    aten.baddbmm: _baddbmm,
    aten._int_mm: _int_mm,
    aten._scaled_mm: scaled_problem,
    torch.ops.autotune.mm: _own_mm,
    torch.ops.autotune.scaled_mm: _own_scaled_mm,
    torch.ops.autotune.scaled_mm_amax: _own_scaled_mm,
}


def _operands(product: Product | ScaledProduct, *names: str) -> dict[str, Any]:
    """The operands that a product has, of those names."""
    pairs = ((name, getattr(product, name)) for name in names)
    return {name: tensor for name, tensor in pairs if tensor is not None}


def _with_bias(added: Any, a: Any, b: Any, beta: Any) -> dict[str, Any]:
    """The operands of `addmm`: a vector is a bias, a matrix is C."""
    operands = {"a": a, "b": b}
    return {**operands, "bias": added} if beta == 1 and added.shape == b.shape[-1:] else operands


def problem_of_tensors(
    operands: Mapping[str, Any], options: CallOptions = DEFAULTS, output: str | None = None
) -> Problem | None:
    """The problem of tensors, as the runtime would pose it; None if one is empty."""
    a, b = operands["a"], operands["b"]
    if 0 in (*a.shape, *b.shape):
        return None
    if options.compute is None and a.dtype is torch.float32 and tf32_allowed(torch):
        options = options._replace(compute="tf32")
    names = {"a": "A", "b": "B"}
    infos = {name: described(each, names.get(name, name)) for name, each in operands.items()}
    for name in "ab":
        check(infos[name])
        infos[name] = _readable(infos[name])
    if quantises(infos):
        infos["a"] = replace(infos["a"], strides=dense(infos["a"].shape))
        infos = quantised_infos(infos, options)
    return problem_of(infos, options, output=output)


def _readable(operand: ArrayInfo) -> ArrayInfo:
    """The operand, or a row-major copy if no kernel can read its strides, as the operator has."""
    try:
        memory_of(operand)
    except ArrayError:
        return replace(operand, strides=dense(operand.shape))
    return operand
