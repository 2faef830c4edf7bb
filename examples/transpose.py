"""Tunes the transpose of a matrix: which tile, how many rows of threads, how much padding?

    python examples/transpose.py             # on the GPU of this machine
    python examples/transpose.py rtx 4090    # what the configurations occupy on another; no GPU

TILE x ROWS threads of a block load a TILE x TILE tile into shared memory row by row and store it
column by column, so that adjacent threads access adjacent floats of both matrices. Each row of the
tile has PAD more floats, which spread its columns over the banks of shared memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autotune

SOURCE = """
template <int TILE, int ROWS, int PAD>
__global__ void __launch_bounds__(TILE * ROWS)
transpose(const float* __restrict__ in, float* __restrict__ out, int rows, int columns) {
    extern __shared__ float tile[];
    const int pitch = TILE + PAD;
    int x = blockIdx.x * TILE + threadIdx.x;
    const int top = blockIdx.y * TILE;
    for (int y = threadIdx.y; y < TILE; y += ROWS)
        if (x < columns && top + y < rows)
            tile[y * pitch + threadIdx.x] = in[(long long)(top + y) * columns + x];
    __syncthreads();
    x = top + threadIdx.x;
    const int left = blockIdx.x * TILE;
    for (int y = threadIdx.y; y < TILE; y += ROWS)
        if (x < rows && left + y < columns)
            out[(long long)(left + y) * rows + x] = tile[threadIdx.x * pitch + y];
}
"""
KERNEL: dict[str, Any] = {
    "source": SOURCE,
    "name": "transpose",
    "parameters": {"TILE": (8, 16, 32, 64), "ROWS": (1, 2, 4, 8, 16, 32), "PAD": (0, 1, 2)},
    "constraints": {"rows divide the tile": lambda p: p["TILE"] % p["ROWS"] == 0},
    "block": lambda p: (p["TILE"], p["ROWS"]),
    "shared": lambda p: 4 * p["TILE"] * (p["TILE"] + p["PAD"]),
}
Matrix = NDArray[np.float32]


def reference(
    matrix: Matrix, out: Matrix, rows: np.int32, columns: np.int32
) -> list[Matrix | None]:
    """The array expected in each argument; None for an argument that stays as it is."""
    del out, rows, columns
    return [None, matrix.T, None, None]


def tune(rows: int = 4096, columns: int = 4096, **options: Any) -> autotune.KernelRecord:
    """Searches the configurations for one shape and returns the record."""
    matrix = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    out = np.empty((columns, rows), np.float32)

    def grid(p: Mapping[str, int]) -> tuple[int, int]:
        return ceil(columns / p["TILE"]), ceil(rows / p["TILE"])

    return autotune.tune_kernel(
        **KERNEL,
        grid=grid,
        arguments=(matrix, out, np.int32(rows), np.int32(columns)),
        reference=reference,
        **options,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(autotune.kernel_occupancy(**KERNEL, device=" ".join(sys.argv[1:])))
        sys.exit()
    record = tune(search=autotune.Search(seconds=20))
    for entry in record.entries:
        us = entry.measurement.time_us
        print(f"{us:9.2f} us  {2 * 4 * 4096**2 / us / 1e3:6.0f} GB/s  {entry.config}")
