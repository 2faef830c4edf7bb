"""Makes the linear layers of a model use the tuned kernels where these are faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

import torch
from rich.console import Console
from torch import nn

from autotune import runtime, settings
from autotune.api import ranges, shapes
from autotune.api.shapes import Shapes
from autotune.errors import UsageError
from autotune.lookup.answer import untuned_card
from autotune.lookup.batch_invariant import batch_invariant
from autotune.problem import COMPUTES, Problem
from autotune.problem.arguments import Span
from autotune.problem.words import DtypeLike, canonical
from autotune.records import Records, Store
from autotune.report.layers import (
    UNKNOWN,
    Layer,
    LayerRecords,
    QuantizedReport,
    Report,
    Row,
    compare_layer,
    layer_table,
    quantized_table,
)
from autotune.report.listing import ShapeRow, ShapesReport, shape_table
from autotune.report.tables import PlainConsole
from autotune.runtime.frameworks import tf32_allowed
from autotune.settings import Policy
from autotune.torch.linear import (
    PatchedLinear,
    Quantization,
    patch_quantized,
    patched,
    unpatched,
)
from autotune.torch.operator import DTYPES, name_of
from autotune.tuning.options import Search

BUDGET_S = 20.0
"""Seconds to tune a shape."""

WIDTH = 120
"""Width of the table where it is not printed to a terminal."""

NO_RANGE = "no batch-invariant range"

Rows = tuple[int, ...] | Shapes | None
"""Numbers that hold for every layer, the shapes that a model ran, or all that have records."""


@dataclass(frozen=True)
class LayerGroup:
    """Linear layers of one shape and type on one device.

    Attributes:
        layer: their names, shape and precision.
        ordinal: the GPU.
        modules: the layers.
        obstacle: why no kernel can serve them; None if one can.
    """

    layer: Layer
    ordinal: int
    modules: tuple[nn.Linear, ...]
    obstacle: str | None


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
        search: how to tune; its seconds, 20 by default, are for each shape and number of rows on
            average, and shared as in `autotune.tune`.
        min_gain: the least gain over cuBLAS; 0.05 is 5 %.
        file: file to print to; None is standard output.
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
    console = _console(file)
    if compute is not None:
        if policy.batch_invariant:
            raise UsageError("batch invariance takes no compute of 8 bits; leave either out")
        quantization = Quantization(canonical("compute", compute, COMPUTES), scale, accumulate)
        if options is not None and sample is None:
            raise UsageError("tune without a sample; give an input of the model, sample=x")
        unpatch(model)
        layers = [
            (name, module, _obstacle(module.weight))
            for name, module in model.named_modules()
            if type(module) is nn.Linear
        ]
        quantised = patch_quantized(model, layers, quantization, kept, sample, min_gain, options)
        console.print(quantized_table(quantised))
        return quantised
    if options and numbers is None:
        raise UsageError("tune without rows; give the rows of the layers' inputs, such as rows=512")
    unpatch(model)
    if policy.batch_invariant:
        report = _patch_by_ranges(_groups(model), numbers, options, kept)
    else:
        report = _patch_by_records(model, numbers, options, min_gain, kept, console)
    console.print(layer_table(report))
    return report


def _options(policy: Policy, search: Search | None) -> Search | None:
    """The search that tunes the shapes; None if they are not tuned.

    Raises:
        UsageError: for a search that the policy does not make, or that records.
    """
    if search is not None and not policy.tune:
        raise UsageError("search without tune; give policy=autotune.Policy(tune=True) too")
    if not policy.tune or policy.frozen or settings.mode().frozen:
        return None
    search = search or Search()
    search.refuse_recording("the layers of a model take")
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
        name: module for name, module in model.named_modules() if isinstance(module, PatchedLinear)
    }
    for module in changed.values():
        unpatched(module)
    return tuple(changed)


def checked_rows(rows: int | Iterable[int] | Shapes | None) -> Rows:
    """The rows that a caller gave, numbers ascending.

    Raises:
        UsageError: for anything but whole numbers of at least 1, or shapes.
    """
    if rows is None or isinstance(rows, Shapes):
        return rows
    numbers = (rows,) if isinstance(rows, int) else tuple(rows)
    for number in numbers or (0,):
        if not isinstance(number, int) or number < 1:
            raise UsageError(f"rows is {rows!r}; give whole numbers of at least 1")
    return tuple(sorted(set(numbers)))


def rows_of(rows: Rows, layer: Layer) -> dict[int, int] | None:
    """The numbers of rows of a layer with how often each runs; None for all that have records."""
    if rows is None:
        return None
    if not isinstance(rows, Shapes):
        return dict.fromkeys(rows, len(layer.names))
    counts = {
        problem.m: sum(rows[variant] for variant in layer.problems(problem.m))
        for problem in rows
        if problem in layer.problems(problem.m)
    }
    return dict(sorted(counts.items()))


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
    if options:
        tuned = _tune_missing(groups, rows, records, options)
        if tuned:
            console.print(shape_table(tuned))
            records = {ordinal: LayerRecords.on(r.device, store) for ordinal, r in records.items()}

    def compared(group: LayerGroup, numbers: Mapping[int, int] | None) -> Sequence[Row]:
        return compare_layer(group.layer, numbers, records[group.ordinal], min_gain)

    table = _patched_rows(groups, rows, policy, compared)
    unknown = sum(row.why == UNKNOWN for row in table)
    for recorded in records.values():
        if unknown and not (recorded.problems or recorded.ranges):
            console.print(untuned_card(recorded.device, unknown))
    devices = tuple(recorded.device.name for recorded in records.values())
    return Report(devices, tuple(table))


def _patched_rows(
    groups: Iterable[LayerGroup],
    rows: Rows,
    policy: Policy | None,
    compared: Callable[[LayerGroup, Mapping[int, int] | None], Sequence[Row]],
) -> list[Row]:
    """The rows of the table of all layers; patches those that are `compared` as replaced."""
    table: list[Row] = []
    for group in groups:
        numbers = rows_of(rows, group.layer)
        why = group.obstacle or ("not among the shapes" if numbers == {} else None)
        own = [Row(group.layer, why=why)] if why else compared(group, numbers)
        if all(row.replaced for row in own):
            patched(group.modules, policy)
        table += own
    return table


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
        return name_of(dtype)
    return "tf32" if type == "f32" and tf32_allowed(torch) else type


def _tune_missing(
    groups: Iterable[LayerGroup], rows: Rows, records: dict[int, LayerRecords], options: Search
) -> ShapesReport:
    """Tunes the layers' shapes that have no record. The shapes of a GPU share one budget; `options`
    state that of one shape."""
    usable = [group for group in groups if group.obstacle is None]
    tuned: list[ShapeRow] = []
    for ordinal, recorded in records.items():
        missing = Shapes()
        for layer in (group.layer for group in usable if group.ordinal == ordinal):
            for m, count in (rows_of(rows, layer) or {}).items():
                if recorded.answer(layer, m) is None:
                    missing[layer.problems(m)[0]] += count
        if not missing:
            continue
        shared = replace(options, seconds=(options.seconds or 0) * len(missing) or None)
        tuned += shapes.tune_shapes(missing, shared, f"gpu:{ordinal}")
        for problem in missing:
            runtime.current().forget(problem)
    return ShapesReport(tuned)


def _patch_by_ranges(
    groups: Sequence[LayerGroup], rows: Rows, options: Search | None, policy: Policy | None
) -> Report:
    """Patches the layers that a batch-invariant range serves, however fast cuBLAS is; `options` say
    how missing ranges are tuned, None not at all."""
    usable = [group for group in groups if group.obstacle is None]
    devices = {group.ordinal: runtime.probe(group.ordinal) for group in usable}
    records = Records(Store(settings.cache_dir()))

    def compared(group: LayerGroup, numbers: Mapping[int, int] | None) -> Sequence[Row]:
        device, counts = devices[group.ordinal], tuple(numbers or (1,))
        if options and batch_invariant(_plain(group, 1), device, records) is None:
            span = Span(_plain(group, max(counts)), "m", 1)
            ranges.tune(span, options, device=f"gpu:{group.ordinal}", batch_invariant=True)
        answers = {m: batch_invariant(_plain(group, m), device, records) for m in counts}
        return [
            Row(group.layer, m, answer.problem, answer.time_us, replaced=True)
            if answer
            else Row(group.layer, m, why=NO_RANGE)
            for m, answer in answers.items()
        ]

    table = _patched_rows(groups, rows, policy, compared)
    return Report(tuple(device.name for device in devices.values()), tuple(table))


def _plain(group: LayerGroup, m: int) -> Problem:
    """The product of the layers without a bias, which does not change the order of summation."""
    return group.layer.problems(m)[-1]
