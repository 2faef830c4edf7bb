"""Tunes one step of a 2-D stencil (`stencil.cu`): which block, and how many points a thread?

    python examples/stencil.py                                  # on the GPU of this machine
    python examples/stencil.py a100                             # occupancy on another; no GPU
    autotune tune examples/stencil.py --device replay:stencil   # recorded on an H200; no GPU

The name, `stencil<9, ...>`, fixes the number of points; the search varies the other four template
parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autotune

Grid = NDArray[np.float32]
WEIGHT = 0.05


def tile(parameters: Mapping[str, int]) -> tuple[int, int]:
    """Columns and rows that a block computes."""
    return parameters["BX"] * parameters["COLUMNS"], parameters["BY"] * parameters["ROWS"]


def shared(parameters: Mapping[str, int]) -> int:
    """Bytes of a tile with a halo of one point around it."""
    width, height = tile(parameters)
    return 4 * (width + 2) * (height + 2)


def kernel(points: int) -> dict[str, Any]:
    """The arguments that `tune_kernel` and `kernel_occupancy` share, for 5 or 9 points."""
    return {
        "source": Path(__file__).with_name("stencil.cu"),
        "name": f"stencil<{points}, BX, BY, COLUMNS, ROWS>",
        "parameters": {
            **{"BX": (16, 32, 64, 128, 256), "BY": (1, 2, 4, 8, 16)},
            **{"COLUMNS": (1, 2, 4), "ROWS": (1, 2, 4, 8)},
        },
        "constraints": {"at least two warps": lambda p: p["BX"] * p["BY"] >= 64},
        "block": lambda p: (p["BX"], p["BY"]),
        "shared": shared,
    }


def step(grid: Grid, points: int) -> Grid:
    """One step of the stencil."""
    height, width = grid.shape
    middle = grid[1:-1, 1:-1]
    shifts = [(y, x) for y in (0, 1, 2) for x in (0, 1, 2) if (y, x) != (1, 1)]
    beside = [(y, x) for y, x in shifts if points == 9 or 1 in (y, x)]
    total = sum(grid[y : height - 2 + y, x : width - 2 + x] for y, x in beside)
    after: Grid = grid.copy()
    after[1:-1, 1:-1] = middle + WEIGHT * (total - (points - 1) * middle)
    return after


def call(height: int = 4096, width: int = 4096, points: int = 9) -> dict[str, Any]:
    """All arguments of `tune_kernel`, for a grid of one shape."""
    before = np.random.default_rng(0).standard_normal((height, width), np.float32)
    sizes = np.int32(height), np.int32(width)

    def grid(parameters: Mapping[str, int]) -> tuple[int, int]:
        columns, rows = tile(parameters)
        return ceil(width / columns), ceil(height / rows)

    return {
        **kernel(points),
        "grid": grid,
        "arguments": (before, np.empty_like(before), *sizes, np.float32(WEIGHT)),
        "reference": lambda before, *_: [None, step(before, points), None, None, None],
    }


KERNEL = call  # for the command line


def tune(
    height: int = 4096, width: int = 4096, points: int = 9, **options: Any
) -> autotune.KernelRecord:
    """Searches the configurations for one shape and returns the record."""
    return autotune.tune_kernel(**call(height, width, points), **options)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(autotune.kernel_occupancy(**kernel(9), device=" ".join(sys.argv[1:])))
        sys.exit()
    record = tune(search=autotune.Search(seconds=20))
    for entry in record.entries:
        us = entry.measurement.time_us
        print(f"{us:9.2f} us  {2 * 4 * 4096**2 / us / 1e3:6.0f} GB/s  {entry.config}")
