"""The seam of quantised layers: weights are quantised once, inputs row by row at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from autotune import runtime
from autotune.api import tuning
from autotune.errors import UsageError
from autotune.problem import PRECISIONS, Epilogue, Problem
from autotune.report.layers import QuantizedReport, QuantizedRow
from autotune.settings import Policy
from autotune.torch.linear import PatchedLinear, patched, unpatched
from autotune.torch.scaled import quantize_weight, scaled_mm
from autotune.tuning.options import Search

DTYPES = (torch.float16, torch.bfloat16)
"""Types of weights that are quantised: those that a bias and a result of 8-bit operands have."""

RUNS, SAMPLES = 10, 20
"""Runs of a layer in a graph, and replays of the graph, whose median counts."""


@dataclass(frozen=True)
class Quantization:
    """The quantisation of layers.

    Attributes:
        compute: `f8`, `f8e5` (inputs in e5m2, weights in e4m3) or `i8`.
        scale: `tensor`, `row` or `block`.
        accumulate: `exact` or `fast`.
    """

    compute: str
    scale: str
    accumulate: str = "exact"

    def __post_init__(self) -> None:
        self.problem(1, 1, 1)

    def problem(self, m: int, n: int, k: int, dtype: Any = torch.bfloat16) -> Problem:
        """The GEMM of a layer with `m` rows of inputs and results of that type.

        Raises:
            UsageError: for another precision, or no scales.
            ProblemError: for other unknown words, or those that do not fit.
        """
        output = "f16" if dtype is torch.float16 else "bf16"
        row = PRECISIONS.get(self.compute)
        if row is None or not row.eight_bit or self.scale == "none":
            raise UsageError(
                f"compute is {self.compute}, scale {self.scale}; give f8, f8e5 or i8, and tensor, "
                "row or block"
            )
        return Problem(
            *(m, n, k, self.compute, "nt"),
            output=output,
            scale=self.scale,
            accumulate=self.accumulate,
        )

    @property
    def weight_dtype(self) -> Any:
        """Type of the weights."""
        return getattr(torch, self.problem(1, 1, 1).operand_elements[1].dtype)

    def prepare(self, layer: nn.Linear) -> None:
        """Puts the quantised weight beside the weight."""
        codes, scales = quantize_weight(layer.weight.detach(), self.scale, self.weight_dtype)
        layer.register_buffer("weight_8", codes, persistent=False)
        layer.register_buffer("weight_scales", scales, persistent=False)

    def remove(self, layer: nn.Linear) -> None:
        """Takes away what `prepare` put there."""
        del layer.weight_8, layer.weight_scales

    def linear(self, layer: PatchedLinear, input: Any) -> Any:
        """A layer of an input, (..., in_features), in 8 bits.

        The weight stays beside its quantised copy, so that `state_dict` and `unpatch` find it.
        While a gradient is recorded, or in training, PyTorch computes the layer from it.
        """
        recorded = torch.is_grad_enabled() and (layer.training or input.requires_grad)
        if recorded or input.dtype is not layer.weight.dtype or 0 in input.shape:
            return nn.functional.linear(input, layer.weight, layer.bias)
        of_columns = layer.weight_scales
        if self.scale == "row":
            of_columns = of_columns.reshape(1, -1)
        elif self.scale == "block":
            of_columns = of_columns.t()
        result = scaled_mm(
            *(input.reshape(-1, layer.in_features), layer.weight_8.t(), None, of_columns),
            None if layer.bias is None else layer.bias.detach(),
            input.dtype,
            self.accumulate == "fast",
            self.compute,
            layer.policy,
        )
        return result.view(*input.shape[:-1], layer.out_features)


def _obstacle(module: nn.Linear) -> str | None:
    """Why a layer on a GPU cannot be quantised; None if it can."""
    if module.weight.dtype not in DTYPES:
        return "only float16 and bfloat16 are quantised"
    if module.bias is not None and module.bias.dtype is not module.weight.dtype:
        return "the bias has another type"
    return None


def patch_quantized(
    model: nn.Module,
    layers: Sequence[tuple[str, nn.Linear, str | None]],
    quantization: Quantization,
    policy: Policy | None,
    sample: Any,
    min_gain: float,
    tune: Search | None,
) -> QuantizedReport:
    """Quantises the layers of a model, and keeps those that a sample shows to be no faster.

    Args:
        model: the model.
        layers: name, layer and, if no kernel can serve it, the reason.
        quantization: element type and scales of the quantised layers.
        policy: the policy that the layers keep; None follows the current one at each call.
        sample: an input of the model, or a tuple of its arguments; None times nothing.
        min_gain: the least gain of a layer in time.
        tune: how to tune the shapes of the sample that are not tuned; None does not.
    """
    layers = [(name, layer, why or _obstacle(layer)) for name, layer, why in layers]
    inputs = _inputs(model, [layer for _, layer, why in layers if why is None], sample)
    rows = []
    for name, layer, why in layers:
        row = QuantizedRow(name, layer.out_features, layer.in_features, why=why)
        if why is None:
            row = _patched(row, layer, quantization, policy, inputs.get(layer), min_gain, tune)
        rows.append(row)
    return QuantizedReport(quantization.compute, quantization.scale, tuple(rows))


def _patched(
    row: QuantizedRow,
    layer: nn.Linear,
    quantization: Quantization,
    policy: Policy | None,
    input: Any,
    min_gain: float,
    tune: Search | None,
) -> QuantizedRow:
    """Quantises a layer and compares it with PyTorch's on an input, if the sample had one; undoes
    it if it gains too little."""
    if input is None:
        patched([layer], policy, quantization)
        return replace(row, replaced=True)
    m = input.numel() // layer.in_features
    if tune is not None:
        _tune(quantization.problem(m, row.outputs, row.inputs, input.dtype), layer, tune)
    with torch.no_grad():
        plain = partial(nn.functional.linear, input, layer.weight, layer.bias)
        wanted, before = plain().double(), _microseconds(plain)
        patched([layer], policy, quantization)
        error = float((layer(input).double() - wanted).norm() / wanted.norm())
        after = _microseconds(partial(layer, input))
    row = replace(row, m=m, plain_us=before, quantized_us=after, error=error)
    if before / after - 1 < min_gain:
        unpatched(layer)
        return replace(row, why=f"gains less than {min_gain:.0%}")
    return replace(row, replaced=True)


def _tune(problem: Problem, layer: nn.Linear, options: Search) -> None:
    """Tunes the problem of a layer, with its bias, unless it is tuned."""
    problem = replace(problem, epilogue=Epilogue(bias=layer.bias is not None))
    ordinal = layer.weight.device.index
    if not runtime.current().runtime.resolve(problem, ordinal).final:
        tuning.search(problem, options, device=f"gpu:{ordinal}")
        runtime.current().forget(problem)


def _inputs(model: nn.Module, layers: Sequence[nn.Linear], sample: Any) -> dict[nn.Module, Any]:
    """The first input of each layer while the model computes a sample."""
    seen: dict[nn.Module, Any] = {}
    if sample is None:
        return seen

    def note(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        if arguments and arguments[0].numel():
            seen.setdefault(layer, arguments[0].detach().clone())

    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            model(*(sample if isinstance(sample, tuple) else (sample,)))
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _microseconds(run: Callable[[], object]) -> float:
    """The time of a function in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            run()
    times = []
    for _ in range(SAMPLES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / RUNS)
    return float(median(times))
