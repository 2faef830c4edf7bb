"""A tuned kernel in a PyCUDA program: on PyCUDA's arrays, and on bare addresses and a stream.

python examples/pycuda_matmul.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import autotune

M, N, K = 1000, 1000, 1000


def largest_error(gpuarray: Any, driver: Any, m: int = M, n: int = N, k: int = K) -> float:
    """Runs the kernel both ways, prints its configuration, and returns the largest error, relative
    to the largest element."""
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    on_a, on_b = gpuarray.to_gpu(a), gpuarray.to_gpu(b)
    c: Any = autotune.matmul(on_a, on_b)  # a GPUArray, on the default stream

    kernel, stream = autotune.kernel(m, n, k), driver.Stream()
    driver.Context.synchronize()
    kernel.launch(on_a.ptr, on_b.ptr, c.ptr, stream.handle, alpha=0.5, beta=0.5)
    stream.synchronize()
    print(f"{kernel.problem} by {kernel.config} ({kernel.how})")
    # The second call adds half of A B to half of C, which already was A B.
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return float(abs(c.get() - expected).max() / abs(expected).max())


def main() -> int:
    """Runs the example; returns the exit status."""
    try:
        import pycuda.autoprimaryctx  # noqa: F401
        from pycuda import driver, gpuarray
    except ImportError:
        print("this example needs PyCUDA: pip install pycuda")
        return 1
    except Exception as error:  # PyCUDA's own classes, known only once it is imported
        print(f"this example needs a GPU, and PyCUDA says: {error}")
        return 1
    print(f"largest error: {largest_error(gpuarray, driver):.1e} of the largest element")
    return 0


if __name__ == "__main__":
    sys.exit(main())
