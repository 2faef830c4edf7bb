"""Warm calls in machine code, if the package was built with it and the arrays can be read in C.

`calls.c` reads arrays of libraries with the DLPack C exchange API, such as PyTorch since 2.10. It
is compiled when a wheel is built. Without that API or the library, or with `AUTOTUNE_NATIVE=0`,
Python finds the same calls a few microseconds later.
"""

from autotune.runtime.native.calls import NativeCalls

__all__ = ["NativeCalls"]
