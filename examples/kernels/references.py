"""The data and the NumPy references of the kernels in `cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Results = list[Array | None]
"""The array expected in each argument; None for an argument that stays as it is."""
FILTER = 9
BOX = np.dtype(
    [("low", np.float32, 3), ("size", np.float32, 3), ("step", np.float32), ("periodic", np.int32)]
)


def floats(*shape: int, seed: int = 0) -> Array:
    """Random numbers from -1 to 1."""
    return 2 * np.random.default_rng(seed).random(shape, np.float32) - 1


def stencil_step(before: Array, after: Array, height: int, width: int, weight: float) -> Results:
    """One Jacobi step."""
    del after, height, width
    out, middle = before.copy(), before[1:-1, 1:-1]
    around = before[:-2, 1:-1] + before[2:, 1:-1] + before[1:-1, :-2] + before[1:-1, 2:]
    out[1:-1, 1:-1] = middle + weight * (around - 4 * middle)
    return [None, out, None, None, None]


def filter_weights() -> dict[str, Array]:
    """The filter of the convolution."""
    return {"d_filter": floats(FILTER * FILTER, seed=1)}


def convolved(output: Array, image: Array, height: int, width: int) -> Results:
    """The convolution of the image with the filter."""
    weights = filter_weights()["d_filter"].reshape(FILTER, FILTER)
    total, term = np.zeros_like(output), np.empty_like(output)
    for y, x in np.ndindex(FILTER, FILTER):
        total += np.multiply(image[y : y + height, x : x + width], weights[y, x], out=term)
    return [total, None, None, None]


def accelerations(bodies: Array, out: Array, n: int, softening: float) -> Results:
    """The sum over all bodies of mass times distance, over the third power of distance."""
    result = np.zeros_like(out)
    at, mass = bodies[:, :3], bodies[:, 3]
    for start in range(0, n, 256):
        away = [at[None, :, axis] - at[start : start + 256, axis, None] for axis in range(3)]
        squared = away[0] ** 2 + away[1] ** 2 + away[2] ** 2 + softening
        factor = mass / (squared * np.sqrt(squared))
        for axis in range(3):
            result[start : start + 256, axis] = (factor * away[axis]).sum(1)
    return [None, result, None, None]


def box() -> Any:
    """The box of the particles, a structure."""
    values = ((-1.0, -1.0, -1.0), (2.0, 2.0, 2.0), 0.125, 1)
    return np.array(values, BOX)[()]


def moved(positions: Array, velocities: Array, out: Array, box: Any, n: int) -> Results:
    """The particles after a step."""
    del out, n
    after = positions.copy()
    at = positions[:, :3] + box["step"] * velocities[:, :3]
    at = np.where(at < box["low"], at + box["size"], at)
    after[:, :3] = np.where(at >= box["low"] + box["size"], at - box["size"], at)
    return [None, None, after, None, None]


def counted(values: Array, bins: Array, n: int) -> Results:
    """The bins, with the number of bytes of each value added."""
    del n
    parts = np.split(values, 64)
    counts = sum((np.bincount(part, minlength=256) for part in parts), start=bins)
    return [None, counts.astype(np.uint32), None]


def normalised(before: Array, after: Array, epsilon: float) -> Results:
    """Rows with mean 0 and variance 1."""
    del after
    centred = before - before.mean(1, keepdims=True)
    variance = np.square(centred).mean(1, keepdims=True)
    return [None, centred / np.sqrt(variance + epsilon), None]


def softmaxed(before: Array, after: Array, rows: int) -> Results:
    """The softmax of each row."""
    del after, rows
    powers = np.exp(before - before.max(1, keepdims=True))
    return [None, powers / powers.sum(1, keepdims=True), None]


def sparse(rows: int) -> list[Any]:
    """A sparse matrix with 8 to 24 elements in a row, a vector and the result."""
    random = np.random.default_rng(0)
    starts = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(8, 25, rows), out=starts[1:])
    places = random.integers(0, rows, starts[-1], dtype=np.int32)
    values, x = floats(starts[-1]), floats(rows, seed=1)
    return [starts, places, values, x, np.zeros(rows, np.float32), np.int32(rows)]


def sparse_product(
    starts: Array, places: Array, values: Array, x: Array, y: Array, rows: int
) -> Results:
    """The sparse matrix times the vector."""
    del y, rows
    product = np.add.reduceat(values * x[places], starts[:-1])
    return [None, None, None, None, product, None]


def laplacian(before: Array, after: Array, *sizes: int) -> Results:
    """The sum of six neighbours less six times the point."""
    del after
    padded = np.pad(before, 1)
    inner = slice(1, -1)
    total = -6 * before
    for axis in range(3):
        for part in (slice(None, -2), slice(2, None)):
            total += padded[tuple(part if at == axis else inner for at in range(3))]
    return [None, total, *(None for _ in sizes)]


def matrices(n: int) -> list[Any]:
    """Two matrices, their product to be, and their side."""
    return [floats(n, n), floats(n, n, seed=1), np.zeros((n, n), np.float32), np.int32(n)]
