"""Linear layers whose weights are quantised once and whose inputs are quantised row by row."""

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
from autotune.report.layers import QuantizedRow
from autotune.settings import Policy
from autotune.torch.quantize import quantize_weight
from autotune.torch.scaled import scaled_mm
from autotune.tuning.options import Search

DTYPES = (torch.float16, torch.bfloat16)
"""Types of weights that are quantised: those that a bias and a result of 8-bit operands have."""

RUNS, SAMPLES = 10, 20
"""Runs of a layer in a graph, and replays of the graph, of which the median counts."""


@dataclass(frozen=True)
class Quantization:
    """How layers are quantised.

    Attributes:
        compute: `f8`, `f8e5` (inputs in e5m2, weights in e4m3) or `i8`.
        scale: `tensor`, `row` or `block`.
        accumulate: `exact` or `fast`.
        policy: the layers' policy; None is the current policy at each call.
    """

    compute: str
    scale: str
    accumulate: str = "exact"
    policy: Policy | None = None

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


class QuantizedLinear(nn.Linear):  # type: ignore[misc]
    """The class that `patch` gives to an `nn.Linear` to be computed in 8 bits.

    The weight stays beside its quantised copy, so that `state_dict` and `unpatch` find it. While a
    gradient is recorded, or in training, PyTorch computes the layer from it.
    """

    quantization: Quantization
    weight_8: Any
    weight_scales: Any

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features)."""
        recorded = torch.is_grad_enabled() and (self.training or input.requires_grad)
        if recorded or input.dtype is not self.weight.dtype or 0 in input.shape:
            return nn.functional.linear(input, self.weight, self.bias)
        rows = input.reshape(-1, self.in_features)
        quantization = self.quantization
        of_columns = self.weight_scales
        if quantization.scale == "row":
            of_columns = of_columns.reshape(1, -1)
        elif quantization.scale == "block":
            of_columns = of_columns.t()
        result = scaled_mm(
            *(rows, self.weight_8.t(), None, of_columns),
            None if self.bias is None else self.bias.detach(),
            input.dtype,
            quantization.accumulate == "fast",
            quantization.compute,
            quantization.policy,
        )
        return result.view(*input.shape[:-1], self.out_features)


def quantized(module: nn.Linear, quantization: Quantization) -> None:
    """Makes a linear layer compute in 8 bits."""
    weight = module.weight.detach()
    codes, scales = quantize_weight(weight, quantization.scale, quantization.weight_dtype)
    module.register_buffer("weight_8", codes, persistent=False)
    module.register_buffer("weight_scales", scales, persistent=False)
    module.quantization = quantization
    module.__class__ = QuantizedLinear


def restored(module: QuantizedLinear) -> None:
    """Makes a layer what it was before `quantized`."""
    module.__class__ = nn.Linear
    for name in ("weight_8", "weight_scales", "quantization"):
        delattr(module, name)


def quantized_obstacle(module: nn.Linear) -> str | None:
    """Why a layer on a GPU cannot be quantised; None if it can."""
    if module.weight.dtype not in DTYPES:
        return "only float16 and bfloat16 are quantised"
    if module.bias is not None and module.bias.dtype is not module.weight.dtype:
        return "the bias has another type"
    return None


def patch_quantized(
    layers: Sequence[tuple[str, nn.Linear, str | None]],
    model: nn.Module,
    quantization: Quantization,
    sample: Any,
    min_gain: float,
    tune: Search | None,
) -> tuple[QuantizedRow, ...]:
    """Quantises the layers of a model, and keeps those that a sample shows to be no faster.

    Args:
        layers: name, layer and, if it cannot be quantised, the reason.
        model: the model.
        quantization: how.
        sample: an input of the model, or a tuple of its arguments; None times nothing.
        min_gain: the least gain of a layer in time.
        tune: how to tune the shapes of the sample that are not tuned; None does not.
    """
    inputs = _inputs(model, [layer for _, layer, why in layers if why is None], sample)
    rows = []
    for name, layer, why in layers:
        row = QuantizedRow(name, layer.out_features, layer.in_features, why=why)
        if why is None:
            row = _patched(row, layer, quantization, inputs.get(layer), min_gain, tune)
        rows.append(row)
    return tuple(rows)


def _patched(
    row: QuantizedRow,
    layer: nn.Linear,
    quantization: Quantization,
    input: Any,
    min_gain: float,
    tune: Search | None,
) -> QuantizedRow:
    """Quantises a layer and compares it with PyTorch's on an input, if the sample had one; undoes
    it if it gains too little."""
    if input is None:
        quantized(layer, quantization)
        return replace(row, replaced=True)
    m = input.numel() // layer.in_features
    if tune is not None:
        _tune(quantization.problem(m, row.outputs, row.inputs, input.dtype), layer, tune)
    with torch.no_grad():
        plain = partial(nn.functional.linear, input, layer.weight, layer.bias)
        wanted, before = plain().double(), _microseconds(plain)
        quantized(layer, quantization)
        error = float((layer(input).double() - wanted).norm() / wanted.norm())
        after = _microseconds(partial(layer, input))
    row = replace(row, m=m, plain_us=before, quantized_us=after, error=error)
    if before / after - 1 < min_gain:
        restored(layer)
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
