"""The B of SwiGLU, made of the weights of its two halves."""

from __future__ import annotations

import sys
from typing import Any

from autotune.errors import ArrayError
from autotune.problem import GATE_SPAN


def interleave(gate: Any, up: Any, axis: int = 0) -> Any:
    """The weights of a gate and of what it is for as one, as `activation="swiglu"` takes them: 8
    outputs of the gate, 8 of the other, and so on.

        weight = autotune.interleave(mlp.gate_proj.weight, mlp.up_proj.weight)
        hidden = autotune.matmul(x, weight.T, activation="swiglu")  # silu(x gate.T) * (x up.T)

    Scales of the rows of two weights become those of the rows of the one in the same way. Those of
    blocks belong to the interleaved weight: quantise that.

    Args:
        gate: the weight of the gate, (n / 2, k) as `torch.nn.Linear` has it, of NumPy, PyTorch or
            CuPy.
        up: the other weight, of the same shape and type.
        axis: the axis of the outputs; 1 for (k, n / 2).

    Raises:
        ArrayError: for weights that differ in shape or type, or whose outputs are no multiple of 8.
    """
    shape = tuple(gate.shape)
    if shape != tuple(up.shape) or gate.dtype != up.dtype:
        weights = (f"{tuple(weight.shape)} of {weight.dtype}" for weight in (gate, up))
        raise ArrayError("the gate is {}, the other weight {}; give two alike".format(*weights))
    if not -len(shape) <= axis < len(shape):
        raise ArrayError(f"axis is {axis}; the weights have {len(shape)} axes")
    axis %= len(shape)
    if shape[axis] % GATE_SPAN:
        raise ArrayError(
            f"the weights are {shape}; give {shape[axis]} outputs, axis {axis}, as a multiple of "
            f"{GATE_SPAN}"
        )
    spans = *shape[:axis], shape[axis] // GATE_SPAN, GATE_SPAN, *shape[axis + 1 :]
    whole = *shape[:axis], 2 * shape[axis], *shape[axis + 1 :]
    library = sys.modules[type(gate).__module__.partition(".")[0]]
    pair = [weight.reshape(spans) for weight in (gate, up)]
    return library.stack(pair, axis + 1).reshape(whole)
