"""Operands as `matmul` takes them: quantised to 8 bits, or the two halves of SwiGLU interleaved."""

from __future__ import annotations

import sys
from typing import Any

from autotune import runtime
from autotune.errors import ArrayError
from autotune.problem import GATE_SPAN
from autotune.runtime.quantized import quantizer


def quantize(x: Any, dtype: Any = "e4m3", scale: Any = "row", out: Any = None) -> tuple[Any, Any]:
    """A matrix or a batch of them in 8 bits, and the fp32 scales that multiply it back, on the
    caller's current stream of the array's GPU.

    The scales make the largest finite number of each group the largest one of the type, 448 of
    e4m3, 57344 of e5m2 and 127 of int8. They are those that `autotune.matmul` takes as `scale_a`,
    and as `scale_b` with `q.T`, but for those of blocks, which are of 128 x 128 there.

        scale     scales                            a scale for
        tensor    (1,)                              all numbers
        row       (m,)                              each row
        block     (ceil(k / 128), m)                128 neighbours of a row

    A batch has its axes in front of those of `row` and `block`.

    A group of zeros has scale 1. Infinities and NaN do not count towards a scale: an infinity
    becomes the largest number, NaN stays NaN in fp8 and becomes 0 in int8. No number overflows.
    No scale is below 2^-126, so that smaller numbers lose bits.

    A call allocates at most its results, and a first one compiles a kernel; a CUDA graph can
    capture it. Any GPU quantises to fp8, also one that cannot multiply it.

    Args:
        x: (m, k) or with batch axes in front, in fp32, fp16 or bfloat16; row-major, rows equally
            far apart. Arrays as in `autotune.matmul`.
        dtype: `e4m3`, `e5m2` or `int8`, or such a dtype of PyTorch or ml_dtypes.
        scale: `tensor`, `row`, `block`, or an fp32 array of one number, which divides `x` as it is.
        out: an array for the result, of the shape of `x` and of that dtype, or a pair of it and an
            fp32 array for the scales. If None, the library of `x` allocates them (PyCUDA has no
            fp8).

    Returns:
        The quantised array and its scales.

    Raises:
        UsageError: for an unknown dtype or scale.
        ArrayError: for an array that is empty, on the CPU, of another type or shape, not
            row-major, or whose elements are not in its memory; for results that overlap it.
        MissingError: without a driver or a GPU.
    """
    return quantizer(runtime.current().runtime)(x, dtype, scale, out)


def interleave(gate: Any, up: Any, axis: int = 0) -> Any:
    """The weights of a gate and of its values, interleaved as `activation="swiglu"` takes them: 8
    outputs of the gate, 8 of the values, and so on.

        weight = autotune.interleave(mlp.gate_proj.weight, mlp.up_proj.weight)
        hidden = autotune.matmul(x, weight.T, activation="swiglu")  # silu(x gate.T) * (x up.T)

    Scales of the weights' rows are interleaved in the same way. Scales of blocks belong to the
    interleaved weight: quantise that weight.

    Args:
        gate: the weight of the gate, (n / 2, k) as `torch.nn.Linear` has it, of NumPy, PyTorch or
            CuPy.
        up: the weight of the values, of the same shape and type.
        axis: the axis of the outputs; 1 for (k, n / 2).

    Raises:
        ArrayError: for weights that differ in shape or type, or whose outputs are not multiples of
            8.
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
