"""Linear layers that run the tuned kernels, in the precision of their weights or quantised.

Weights are quantised once, inputs row by row at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from autotune import runtime
from autotune.api import tuning
from autotune.errors import UsageError
from autotune.problem import PRECISIONS, Epilogue, Problem, epilogue_of
from autotune.problem.words import DtypeLike
from autotune.report.layers import QuantizedReport, QuantizedRow
from autotune.settings import Policy
from autotune.torch.operator import ACTIVATIONS, DTYPES, mm
from autotune.torch.scaled import quantize_weight, scaled_mm
from autotune.tuning.options import Search


class Linear(nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear` by `torch.ops.autotune.mm`, followed by an activation if one is named.

    Inputs may have any number of dimensions. Parameters and state_dict are those of `nn.Linear`.
    PyTorch computes inputs that no kernel takes, such as float64 on a GPU.

    Args:
        in_features: size of the last dimension of an input.
        out_features: size of the last dimension of an output.
        bias: whether there is a bias.
        activation: `relu`, `gelu` (the exact one, with erf), `gelu_tanh`, `silu` or None; `swiglu`,
            for a weight of `autotune.interleave` without a bias, gives half of out_features.
        compute: the precision; see `autotune.torch.mm`.
        policy: as in `autotune.torch.mm`; None is the current policy of each call.
        device: device of the parameters.
        dtype: type of the parameters.

    Raises:
        ProblemError: for an unknown activation or compute.
    """

    activation: str | None = None
    compute: str | None = None
    policy: Policy | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str | None = None,
        compute: DtypeLike | None = None,
        device: Any = None,
        dtype: Any = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        epilogue_of(bias, activation)
        named = None if compute is None else Problem(1, 1, 1, compute).compute
        self.activation, self.compute = activation, named
        if policy is not None:
            self.policy = policy

    @classmethod
    def of(
        cls,
        module: nn.Linear,
        activation: str | None = None,
        compute: DtypeLike | None = None,
        policy: Policy | None = None,
    ) -> Linear:
        """A layer that shares the parameters of a linear layer.

        Raises:
            ProblemError: for an unknown activation or compute.
        """
        sizes = module.in_features, module.out_features
        layer = cls(*sizes, module.bias is not None, activation, compute, "meta", policy=policy)
        layer.weight, layer.bias = module.weight, module.bias
        layer.train(module.training)
        return layer

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features).

        Raises:
            ArrayError: if the input does not fit the weight.
            NotFoundError: with `batch_invariant`, if no range serves the product.
        """
        weight, bias = self.weight, self.bias
        if not supports(input):
            result = nn.functional.linear(input, weight, bias)
            return ACTIVATIONS[self.activation](result) if self.activation else result
        if input.dim() == 2:
            return mm(input, weight.t(), bias, self.activation, self.compute, self.policy)
        rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
        result = mm(rows, weight.t(), bias, self.activation, self.compute, self.policy)
        return result.view(*input.shape[:-1], result.shape[-1])

    def extra_repr(self) -> str:
        """The text of `nn.Linear`, with the activation and the compute if they are set."""
        named = (("activation", self.activation), ("compute", self.compute))
        return ", ".join(
            [super().extra_repr(), *(f"{name}={value}" for name, value in named if value)]
        )


class PatchedLinear(Linear):
    """The class that `patch` gives to an `nn.Linear`, and `unpatch` takes away again: the layer
    stays the same object, with its parameters, hooks and references.

    Attributes:
        policy: what its calls may do; None is the current policy of each call.
        quantization: computes the layer in 8 bits; None computes it in the precision of its weight.
    """

    quantization: Quantization | None = None

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features); see `Linear`."""
        if self.quantization is None:
            return super().forward(input)
        return self.quantization.linear(self, input)


def patched(
    modules: Iterable[nn.Linear], policy: Policy | None, quantization: Quantization | None = None
) -> None:
    """Makes linear layers patched ones with a policy and, for 8 bits, a quantization."""
    for module in modules:
        if quantization is not None:
            quantization.prepare(module)
        module.policy, module.quantization = policy, quantization
        module.__class__ = PatchedLinear


def unpatched(module: PatchedLinear) -> None:
    """Makes a layer what it was before `patched`."""
    if module.quantization is not None:
        module.quantization.remove(module)
    module.__class__ = nn.Linear
    for name in ("policy", "quantization"):
        module.__dict__.pop(name, None)


def supports(input: Any) -> bool:
    """Whether the operator takes an input. PyTorch computes nested and sparse ones."""
    if input.is_nested or input.layout is not torch.strided:
        return False
    return input.dtype in DTYPES if input.is_cuda else input.device.type in ("cpu", "meta")


QUANTIZED_DTYPES = torch.float16, torch.bfloat16
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

    def prepare(self, layer: nn.Linear) -> None:
        """Puts the quantised weight beside the weight."""
        dtype = getattr(torch, self.problem(1, 1, 1).operand_elements[1].dtype)
        codes, scales = quantize_weight(layer.weight.detach(), self.scale, dtype)
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
    if module.weight.dtype not in QUANTIZED_DTYPES:
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
