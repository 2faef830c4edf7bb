"""Runs recorded kernels on arrays, on the caller's stream, without PyCUDA and without Optuna.

    autotune.runtime.current()(a, b)           any shape; looked up at its first call
    autotune.runtime.batch_invariant()(a, b)   the same in one order of summation for every M
    autotune.runtime.load(problem)(a, b)       one problem, looked up and loaded now
    autotune.runtime.load_all(problems)        all problems of a program, loaded beforehand

The first call of a shape looks its configuration up, compiles the kernels or fetches them from the
cache, and loads them. Later calls read the arrays and launch. They do not allocate, wait or touch
the disk, so a CUDA graph can capture them.
"""

from autotune.runtime.kernels import Kernel
from autotune.runtime.operands import CallOptions
from autotune.runtime.process import (
    batch_invariant,
    current,
    entered,
    load,
    load_all,
    probe,
)
from autotune.runtime.state import Runtime, UntunedWarning

__all__ = [
    "CallOptions",
    "Kernel",
    "Runtime",
    "UntunedWarning",
    "batch_invariant",
    "current",
    "entered",
    "load",
    "load_all",
    "probe",
]
