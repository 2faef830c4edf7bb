"""Makes the linear layers of a model use the tuned kernels where these are faster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TextIO

import torch
from rich.console import Console
from torch import nn

from autotune import runtime, settings
from autotune.api import tuning
from autotune.api.shapes import Shapes
from autotune.errors import UsageError
from autotune.lookup.answer import untuned_card
from autotune.problem import COMPUTES
from autotune.problem.words import DtypeLike, canonical
from autotune.records import Store
from autotune.report import layers, quantized_layers, tuned_shapes
from autotune.report.console import PlainConsole
from autotune.report.layers import UNKNOWN, Layer, LayerRecords, Report, Row, judge_layer
from autotune.report.quantized_layers import QuantizedReport
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.settings import Policy
from autotune.targets.workplace import Workplace
from autotune.torch.invariant import patch_invariant
from autotune.torch.layer_groups import LayerGroup
from autotune.torch.linear import PatchedLinear, patched, unpatched
from autotune.torch.operands import DTYPES
from autotune.torch.quantized import (
    Quantization,
    QuantizedLinear,
    patch_quantized,
    quantized_obstacle,
    restored,
)
from autotune.torch.rows import Rows, checked_rows, rows_of, tune_noted
from autotune.tuning.options import Search

BUDGET_S = 20.0
"""Seconds to tune a shape."""

WIDTH = 120
"""Width of the table where it is not printed to a terminal."""


def patch(
    model: nn.Module,
    rows: int | Iterable[int] | Shapes | None = None,
    *,
    policy: Policy | None = None,
    search: Search | None = None,
    min_gain: float = 0.0,
    file: TextIO | None = None,
    compute: DtypeLike | None = None,
    scale: str = "row",
    accumulate: str = "exact",
    sample: Any = None,
) -> Report | QuantizedReport:
    """Makes linear layers run the tuned kernels where these are faster, and prints a table of them.

    A layer is patched if, for one of the `rows`, the tuned kernel was measured faster than cuBLAS
    by `min_gain` and by more than the spread. The measurement is in layout nt and the precision of
    the weights (for float32 it is tf32 if PyTorch's settings allow that now). A patched layer
    decides again for each number of rows: where cuBLAS was measured faster, it calls cuBLAS. Other
    layers stay as they are, and so do layers not on a GPU, layers of types other than float32,
    float16 and bfloat16, layers whose weight is a tensor subclass, as in quantized and distributed
    models, and subclasses of `nn.Linear`.

    A patched layer is the same object with another class, so its parameters, hooks and references
    stay valid. Patching a patched model starts afresh. Patch before `torch.compile`.

    With a `compute` of 8 bits, layers in float16 and bfloat16 are quantised instead: their weights
    once, their inputs row by row whenever they run. The weights stay beside their quantised copies,
    and compute the layer in training. A `sample` shows what that gains and how far the results
    move; layers that gain less than `min_gain` stay as they are. Patch again after a change of the
    weights.

    Args:
        model: any module; may be a linear layer itself.
        rows: M, the product of all dimensions of a layer's input but the last: a number or
            several, or the shapes that `recording` noted, of which each layer takes its own; None
            takes all that have records.
        policy: what the layers may do (see `autotune.Policy`), also under another policy; None is
            the current policy, and that of each call for the layers. `tune` and `frozen` are for
            `patch` alone. `tune` tunes shapes without a record now; `quick` races their most
            promising configurations and cuBLAS, in one to two seconds each. It needs `rows`. With
            `batch_invariant` all layers with a batch-invariant range (see `autotune.tune`) are
            patched, also where cuBLAS is faster; `tune` tunes the range from one row to the largest
            of the `rows`. Where a gradient is recorded they run the fastest kernels.
        search: how to tune; its seconds, 20 by default, are for each shape and number of rows, and
            those of noted shapes are shared as in `autotune.tune`.
        min_gain: the least gain over cuBLAS; 0.05 is 5 %.
        file: where to print; None is standard output.
        compute: `f8`, `f8e5` (inputs in e5m2) or `i8` to quantise the layers; else None.
        scale: granularity of the scales: `row`, `tensor` or `block` (not of `i8`).
        accumulate: how fp8 products are summed: `exact` or `fast`.
        sample: with a compute, an input of the model, or a tuple of its arguments; `tune` then
            tunes the shapes of the layers in it.

    Raises:
        UsageError: for rows below 1, a `min_gain` below 0, a `search` without `tune`, `tune`
            without rows (with a compute: without a sample), or another compute.
        MissingError: with `tune`, without a driver or a GPU.
        AutotuneError: with `tune`, if no configuration of a shape works.
    """
    kept = policy and policy._replace(tune=False, frozen=False)
    policy, numbers = policy or settings.policy(), checked_rows(rows)
    policy.check()
    options = _options(policy, search)
    if not min_gain >= 0:
        raise UsageError(f"min_gain is {min_gain}; give 0 or more, such as 0.05 for 5 %")
    if compute is not None and policy.batch_invariant:
        raise UsageError("batch invariance takes no compute of 8 bits; leave either out")
    if compute is not None:
        named = canonical("compute", compute, COMPUTES)
        quantization = Quantization(named, scale, accumulate, kept)
        return _quantise(model, quantization, sample, min_gain, options, file)
    if options and numbers is None:
        raise UsageError("tune without rows; give the rows of the layers' inputs, such as rows=512")
    console = _console(file)
    unpatch(model)
    if policy.batch_invariant:
        report = patch_invariant(_groups(model), numbers, options, kept)
    else:
        report = _patch_by_records(model, numbers, options, min_gain, kept, console)
    console.print(layers.render(report))
    return report


def _options(policy: Policy, search: Search | None) -> Search | None:
    """How the shapes are tuned; None if they are not.

    Raises:
        UsageError: for a search that the policy does not make.
    """
    if search is not None and not policy.tune:
        raise UsageError("search without tune; give policy=autotune.Policy(tune=True) too")
    if not policy.tune or policy.frozen or settings.mode().frozen:
        return None
    search = search or Search()
    if policy.tune == "quick":
        if search.effort not in ("default", "quick"):
            raise UsageError(f"tune is 'quick', the search's effort {search.effort}; give one")
        return replace(search, effort="quick").limited()
    if (search.effort, search.seconds, search.trials) == ("default", None, None):
        search = replace(search, seconds=BUDGET_S)
    return search.limited()


def unpatch(model: nn.Module) -> tuple[str, ...]:
    """Makes patched layers plain linear layers again, with the weights that they had, and returns
    their names."""
    changed = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, (PatchedLinear, QuantizedLinear))
    }
    for module in changed.values():
        if isinstance(module, QuantizedLinear):
            restored(module)
        else:
            unpatched(module)
    return tuple(changed)


def _patch_by_records(
    model: nn.Module,
    rows: Rows,
    options: Search | None,
    min_gain: float,
    policy: Policy | None,
    console: Console,
) -> Report:
    """`patch` in the precision of the layers; `options` say how it tunes, None not at all."""
    groups, store = _groups(model), Store(settings.cache_dir())
    ordinals = dict.fromkeys(group.ordinal for group in groups if group.obstacle is None)
    records = {ordinal: LayerRecords.on(runtime.probe(ordinal), store) for ordinal in ordinals}
    if options and isinstance(rows, Shapes):
        tunable = [(group.ordinal, group.layer) for group in groups if group.obstacle is None]
        console.print(tuned_shapes.render(tune_noted(tunable, rows, records, options)))
    table: list[Row] = []
    for group in groups:
        if group.obstacle is not None:
            table.append(Row(group.layer, why=group.obstacle))
            continue
        recorded, numbers = records[group.ordinal], rows_of(rows, group.layer)
        if numbers == {}:
            table.append(Row(group.layer, why="not among the shapes"))
            continue
        noted = isinstance(rows, Shapes)
        if (
            options
            and not noted
            and _tune_missing(group, numbers or (), recorded, options, console)
        ):
            recorded = records[group.ordinal] = LayerRecords.on(recorded.device, store)
        judged = judge_layer(group.layer, numbers, recorded, min_gain)
        if judged[0].replaced:
            patched(group.modules, policy)
        table += judged
    unknown = sum(row.why == UNKNOWN for row in table)
    for recorded in records.values():
        if unknown and not (recorded.problems or recorded.ranges):
            console.print(untuned_card(recorded.device, unknown))
    devices = tuple(recorded.device.name for recorded in records.values())
    return Report(devices, tuple(table))


def _quantise(
    model: nn.Module,
    quantization: Quantization,
    sample: Any,
    min_gain: float,
    options: Search | None,
    file: TextIO | None,
) -> QuantizedReport:
    """`patch` with a compute of 8 bits; `options` say how it tunes, None not at all."""
    if options is not None and sample is None:
        raise UsageError("tune without a sample; give an input of the model, sample=x")
    unpatch(model)
    layers = [
        (name, module, _obstacle(module.weight) or quantized_obstacle(module))
        for name, module in model.named_modules()
        if type(module) is nn.Linear
    ]
    rows = patch_quantized(layers, model, quantization, sample, min_gain, options)
    report = QuantizedReport(quantization.compute, quantization.scale, rows)
    _console(file).print(quantized_layers.render(report))
    return report


def _console(file: TextIO | None) -> Console:
    """A console that writes wide tables where it is not a terminal."""
    console = PlainConsole(file=file)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def _groups(model: nn.Module) -> list[LayerGroup]:
    """The linear layers of a model by shape, type and device, in the order of the first of each."""
    groups: dict[Any, list[tuple[str, nn.Linear]]] = {}
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            weight, biased = module.weight, module.bias is not None
            kind = module.out_features, module.in_features, _compute(weight.dtype), biased
            key = *kind, _ordinal(weight), _obstacle(weight)
            groups.setdefault(key, []).append((name, module))
    return [
        LayerGroup(
            Layer(tuple(name for name, _ in members), *kind),
            ordinal or 0,
            tuple(module for _, module in members),
            obstacle,
        )
        for (*kind, ordinal, obstacle), members in groups.items()
    ]


def _ordinal(weight: Any) -> int | None:
    """The GPU that holds a weight; None if it is not on one."""
    return weight.device.index if weight.is_cuda else None


def _obstacle(weight: Any) -> str | None:
    """Why no kernel can serve a layer with this weight; None if one can."""
    # Tensor subclasses define their own matmul.
    if type(weight) not in (nn.Parameter, torch.Tensor):
        return f"the weight is a {type(weight).__name__}"
    if _ordinal(weight) is None:
        return f"on {weight.device.type}"
    return None if weight.dtype in DTYPES else "no kernel has this type"


def _compute(dtype: Any) -> str:
    """The precision of a layer of that type; the name of the type if no kernel has it."""
    type = DTYPES.get(dtype)
    if type is None:
        return str(dtype).removeprefix("torch.")
    return "tf32" if type == "f32" and tf32_allowed(torch) else type


def _tune_missing(
    group: LayerGroup,
    rows: Iterable[int],
    recorded: LayerRecords,
    options: Search,
    console: Console,
) -> bool:
    """Tunes the shapes of the layers that have no record; whether there were any."""
    missing = [group.layer.problems(m)[0] for m in rows if recorded.answer(group.layer, m) is None]
    with Workplace(group.ordinal, seed=options.seed, quick=options.quick) as workplace:
        for problem in missing:
            console.print(f"tuning {problem} on {recorded.device.name}")
            tuning.search_at(workplace, problem, options)
            runtime.current().forget(problem)
    return bool(missing)
