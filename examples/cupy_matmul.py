"""A tuned matmul of CuPy arrays: on CuPy's current stream, in a CUDA graph, with a bias.

python examples/cupy_matmul.py
"""

from __future__ import annotations

import sys
from typing import Any

import autotune

M, N, K = 64, 4096, 4096


def largest_error(cupy: Any, m: int = M, n: int = N, k: int = K) -> float:
    """Runs matmul from a graph, prints the configuration, and returns the largest error relative to
    the largest element."""
    autotune.warmup([(m, n, k)], epilogue="bias")
    a, b, bias = (cupy.random.standard_normal(shape, "f4") for shape in ((m, k), (k, n), n))
    out = cupy.empty((m, n), "f4")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        autotune.matmul(a, b, out, bias=bias)  # allocates the stream's workspace
        stream.begin_capture()
        autotune.matmul(a, b, out, bias=bias)
        graph = stream.end_capture()
        out.fill(0)
        graph.launch(stream)
    stream.synchronize()
    kernel = autotune.kernel(m, n, k, epilogue="bias")
    print(f"{kernel.problem} by {kernel.config} ({kernel.how})")
    expected = a.astype("f8") @ b.astype("f8") + bias
    return float(abs(out - expected).max() / abs(expected).max())


def main() -> int:
    """Runs the example; returns the exit status."""
    try:
        import cupy
    except ImportError:
        print("this example needs CuPy: pip install cupy-cuda13x")
        return 1
    if not cupy.cuda.is_available():
        print("this example needs a GPU, and CuPy sees none")
        return 1
    print(f"largest error: {largest_error(cupy):.1e} of the largest element")
    return 0


if __name__ == "__main__":
    sys.exit(main())
