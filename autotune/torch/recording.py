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
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays, problems
from autotune.runtime.frameworks.base import dense
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.runtime.frameworks.scaled_mm import own_scale_b, own_scales
from autotune.runtime.quantized_operand import posed
from autotune.runtime.scales import Scales
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
    return _problem(a, b, output=_output(out_dtype))


def _addmm(
    added: Any, a: Any, b: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1
) -> Problem | None:
    del alpha
    return _problem(a, b, _epilogue(added, b, beta), output=_output(out_dtype))


def _addmm_activation(
    added: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Problem | None:
    del alpha
    activation = "gelu_tanh" if use_gelu else "relu"
    return _problem(a, b, _epilogue(added, b, beta, activation))


def _baddbmm(
    added: Any, a: Any, b: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1
) -> Problem | None:
    del added, beta, alpha
    return _problem(a, b, output=_output(out_dtype))


def _int_mm(a: Any, b: Any) -> Problem | None:
    return _problem(a, b, output="i32")


def _scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Problem | None:
    del scale_result
    return _own_scaled_mm(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum)


def _own_mm(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
) -> Problem | None:
    del dependent
    epilogue = epilogue_of(bias is not None, activation, residual is not None)
    return _problem(a, b, epilogue, compute=compute)


def _own_scaled_mm(*arguments: Any, **named: Any) -> Problem | None:
    product = ScaledProduct(*arguments, **named)
    if product.scale_a is None:
        return _quantised(product)
    a, b, names = product.a, product.b, ("scale_a", "scale_b")
    first, second = map(_operand, own_scales(a, b, product.scale_a, product.scale_b), names)
    return _problem(
        *(a, b, product.epilogue),
        output=problems.output_of(product.result_dtype),
        scales=(first, second),
        accumulate=product.accumulate or "exact",
    )


def _quantised(product: ScaledProduct) -> Problem | None:
    """The problem of a product whose A is quantised on the way in; None if an operand is empty."""
    a, b = product.a, product.b
    if 0 in (*a.shape, *b.shape):
        return None
    source = replace(_operand(a, "A"), strides=dense(tuple(a.shape)))
    return posed(
        *(source, _readable(_operand(b, "B")), None),
        _operand(own_scale_b(b, product.scale_b), "scale_b"),
        compute=product.precision,
        epilogue=product.epilogue,
        output=problems.output_of(product.result_dtype),
        accumulate=product.accumulate or "exact",
    ).problem


_PRODUCTS: Mapping[Any, Callable[..., Problem | None]] = {
    aten.mm: _mm,
    aten.addmm: _addmm,
    aten._addmm_activation: _addmm_activation,
    aten.bmm: _mm,
    aten.baddbmm: _baddbmm,
    aten._int_mm: _int_mm,
    aten._scaled_mm: _scaled_mm,
    torch.ops.autotune.mm: _own_mm,
    torch.ops.autotune.scaled_mm: _own_scaled_mm,
    torch.ops.autotune.scaled_mm_amax: _own_scaled_mm,
}


def _problem(
    a: Any,
    b: Any,
    epilogue: str = "none",
    *,
    compute: str | None = None,
    output: str | None = None,
    scales: Scales | None = None,
    accumulate: str = "exact",
) -> Problem | None:
    """The problem of two tensors, as the runtime would pose it; None if one is empty."""
    if 0 in (*a.shape, *b.shape):
        return None
    if compute is None and a.dtype is torch.float32 and tf32_allowed(torch):
        compute = "tf32"
    first, second = _operand(a, "A"), _operand(b, "B")
    arrays.check(first)
    arrays.check(second)
    return problems.problem_of(
        *(_readable(first), _readable(second), None),
        scales,
        compute=compute,
        epilogue=epilogue,
        output=output,
        accumulate=accumulate,
    )


def _output(out_dtype: Any) -> str | None:
    return None if out_dtype is None else problems.output_of(out_dtype)


def _epilogue(added: Any, b: Any, beta: Any, activation: str | None = None) -> str:
    """The epilogue of `addmm`: a vector is a bias, a matrix is C."""
    return epilogue_of(beta == 1 and added.shape == b.shape[-1:], activation)


def _operand(tensor: Any, name: str) -> arrays.ArrayInfo:
    """A tensor as if it were on a GPU."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return arrays.ArrayInfo(name, tuple(tensor.shape), tuple(tensor.stride()), dtype, 0)


def _readable(operand: arrays.ArrayInfo) -> arrays.ArrayInfo:
    """The operand, or a row-major copy if no kernel can read its strides, as the operator has."""
    try:
        arrays.memory_of(operand)
    except ArrayError:
        return replace(operand, strides=dense(operand.shape))
    return operand
