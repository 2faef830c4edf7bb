"""Warm calls in machine code, if the machine has a C compiler and the arrays can be read in C.

`calls.c` reads arrays of libraries with the DLPack C exchange API, such as PyTorch since 2.10.
Without that API, without a C compiler, or with `AUTOTUNE_NATIVE=0`, Python finds the same calls a
few microseconds later.
"""

from autotune.runtime.native.calls import native_calls

__all__ = ["native_calls"]
