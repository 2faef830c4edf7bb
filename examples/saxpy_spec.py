"""Tunes y = a x + y, from the command line: how many threads a block, and elements a thread?

    autotune tune examples/saxpy_spec.py
    autotune occupancy examples/saxpy_spec.py h100    # no GPU
    autotune export saxpy --out lib

The parameters are macros, as `compile` says, and the grid follows from the size of the problem.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autotune

SOURCE = """
extern "C" __global__ void saxpy(float* y, const float* x, float a, int n) {
    const int first = (blockIdx.x * EACH) * block_size_x + threadIdx.x;
    #pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = first + i * block_size_x;
        if (at < n) y[at] += a * x[at];
    }
}
"""
N = 1 << 24
Vector = NDArray[np.float32]


def reference(y: Vector, x: Vector, a: np.float32, n: np.int32) -> list[Vector | None]:
    """The array expected in each argument; None for an argument that stays as it is."""
    del n
    return [a * x + y, None, None, None]


def arguments() -> list[Any]:
    """Random vectors, and the numbers."""
    random = np.random.default_rng(0)
    vectors = (random.standard_normal(N, np.float32) for _ in range(2))
    return [*vectors, np.float32(2.5), np.int32(N)]


def KERNEL() -> dict[str, Any]:
    """The keywords of `autotune.tune_kernel`."""
    return {
        "source": SOURCE,
        "name": "saxpy",
        "parameters": {"block_size_x": (32, 64, 128, 256, 512, 1024), "EACH": (1, 2, 4, 8)},
        "compile": autotune.Compilation(defines=True),
        "problem_size": N,
        "grid_div": [("block_size_x", "EACH")],
        "arguments": arguments(),
        "reference": reference,
    }
