"""Puts the tuned product in the place of a model's linear layers where it is the faster one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from rich.console import Console
from torch import nn

from autotune import runtime, settings
from autotune.api import problems
from autotune.errors import UsageError
from autotune.lookup.layers import Layer, LayerRecords, Report, Row, judge_layer
from autotune.records import Store
from autotune.report import layers
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.torch.linear import PatchedLinear
from autotune.torch.operands import DTYPES
from autotune.tuning.options import Options, options_of

BUDGET_S = 20.0
"""Seconds of tuning for a shape."""

WIDTH = 120
"""Of the table where it does not go to a terminal."""


def patch(
    model: nn.Module,
    rows: int | Iterable[int] | None = None,
    *,
    tune: bool = False,
    budget: float = BUDGET_S,
    min_gain: float = 0.0,
    file: TextIO | None = None,
) -> Report:
    """Makes the linear layers that gain by it multiply by the tuned kernels, and prints which.

    A layer gains if for one of the `rows` a kernel of ours was measured faster than cuBLAS, in
    layout nt and in the precision of its weights (float32: tf32 if PyTorch's settings allow that
    now), by `min_gain` and by more than the measurements scatter. Its product is chosen anew for
    each number of rows that comes: where cuBLAS was measured faster, cuBLAS is called. Layers that
    do not gain stay as they are, and so do those not on a GPU, those of other types than float32,
    float16 and bfloat16, those whose weight is a tensor of a type of its own, as quantized and
    distributed ones have, and subclasses of `nn.Linear`.

    A layer is not exchanged but changes its class, so that its parameters, hooks and whoever refers
    to it stay. A model that is patched already is judged anew. Patch before `torch.compile`.

    Args:
        model: any module; may be a linear layer itself.
        rows: M, the product of all dimensions of a layer's input but the last; one number or
            several; None takes all of which there are records.
        tune: tunes the shapes without a record first. Needs `rows` and PyCUDA.
        budget: seconds of that for each shape and number of rows.
        min_gain: that our kernel has to be faster by, 0.05 = 5 %.
        file: where to print; None is standard output.

    Raises:
        UsageError: for rows below 1, a `min_gain` below 0, a budget of 0 or less, and `tune`
            without rows.
        MissingError: with `tune`, without PyCUDA.
        AutotuneError: with `tune`, if no configuration of a shape works.
    """
    numbers, options = _numbers(rows), options_of(None, budget, 0, "gp", None)
    if not min_gain >= 0:
        raise UsageError(f"min_gain is {min_gain}; give 0 or more, such as 0.05 for 5 %")
    if tune and numbers is None:
        raise UsageError("tune without rows; give the rows of the layers' inputs, such as rows=512")
    console = Console(file=file)
    if not console.is_terminal:
        console.width = WIDTH
    unpatch(model)
    groups, store = _groups(model), Store(settings.cache_dir())
    ordinals = dict.fromkeys(group.ordinal for group in groups if group.obstacle is None)
    known = {ordinal: LayerRecords.on(runtime.probe(ordinal), store) for ordinal in ordinals}
    found: list[Row] = []
    for group in groups:
        if group.obstacle is not None:
            found.append(Row(group.layer, why=group.obstacle))
            continue
        there = known[group.ordinal]
        if tune and _tuned(group, numbers or (), there, options, console):
            there = known[group.ordinal] = LayerRecords.on(there.device, store)
        rows_of = judge_layer(group.layer, numbers, there, min_gain)
        if rows_of[0].replaced:
            for module in group.modules:
                module.__class__ = PatchedLinear
        found += rows_of
    report = Report(tuple(one.device.name for one in known.values()), tuple(found))
    console.print(layers.render(report))
    return report


def unpatch(model: nn.Module) -> tuple[str, ...]:
    """Makes what `patch` has changed plain linear layers again, and returns their names."""
    found = [name_of for name_of in model.named_modules() if type(name_of[1]) is PatchedLinear]
    for _, module in found:
        module.__class__ = nn.Linear
    return tuple(name for name, _ in found)


@dataclass(frozen=True)
class _LayerGroup:
    """Linear layers of one shape, in one place.

    `obstacle` is why no kernel can serve them, if none can.
    """

    layer: Layer
    ordinal: int
    modules: tuple[nn.Linear, ...]
    obstacle: str | None


def _groups(model: nn.Module) -> list[_LayerGroup]:
    """The linear layers of a model by shape, type and place, in the order of the first of each."""
    found: dict[Any, list[tuple[str, nn.Linear]]] = {}
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            weight, biased = module.weight, module.bias is not None
            kind = module.out_features, module.in_features, _compute(weight.dtype), biased
            key = *kind, _ordinal(weight), _obstacle(weight)
            found.setdefault(key, []).append((name, module))
    return [
        _LayerGroup(
            Layer(tuple(name for name, _ in members), *kind),
            ordinal or 0,
            tuple(module for _, module in members),
            obstacle,
        )
        for (*kind, ordinal, obstacle), members in found.items()
    ]


def _ordinal(weight: Any) -> int | None:
    """The GPU that holds a weight; None if none does."""
    return weight.device.index if weight.is_cuda else None


def _obstacle(weight: Any) -> str | None:
    # PyTorch's own parameters are of no other class; to multiply others is up to these.
    if type(weight) not in (nn.Parameter, torch.Tensor):
        return f"the weight is a {type(weight).__name__}"
    if _ordinal(weight) is None:
        return f"on {weight.device.type}"
    return None if weight.dtype in DTYPES else "no kernel has this type"


def _compute(dtype: Any) -> str:
    """The precision in which a layer of that type multiplies; the type's name if none does."""
    own = DTYPES.get(dtype)
    if own is None:
        return str(dtype).removeprefix("torch.")
    return "tf32" if own == "f32" and tf32_allowed(torch) else own


def _numbers(rows: int | Iterable[int] | None) -> tuple[int, ...] | None:
    if rows is None:
        return None
    given = (rows,) if isinstance(rows, int) else tuple(rows)
    for one in given or (0,):
        if not isinstance(one, int) or one < 1:
            raise UsageError(f"rows is {rows!r}; give whole numbers of at least 1")
    return tuple(sorted(set(given)))


def _tuned(
    group: _LayerGroup, rows: Iterable[int], known: LayerRecords, options: Options, console: Console
) -> bool:
    """Tunes what is not recorded of the layers; whether there was anything."""
    missing = [group.layer.problems(m)[0] for m in rows if known.answer(group.layer, m) is None]
    for problem in missing:
        console.print(f"tuning {problem} on {known.device.name}")
        problems.search(problem, options, device=f"gpu:{group.ordinal}")
        runtime.current().forget(problem)
    return bool(missing)
