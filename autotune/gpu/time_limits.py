"""How many seconds requests to a worker may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.user_kernels.workload import Workload

# A candidate takes well under a second. The second term is for slow GPUs: verification's float64
# product and the naive kernel at 1 TFLOP/s, a dozen times over.
CANDIDATE, PER_TFLOP = 5.0, 20.0
PER_GB = 20.0  # the arrays of a user kernel are compared on the host
BASELINE = 120.0  # loading cuBLAS takes seconds from a slow disk
EXAMINE_TIMES = 4  # a winner is verified on two sets of operands and launched many times
LIBRARY_RUNS = 16  # runs that one factory of further baselines may open
ENERGY = 20.0  # two windows of 0.75 s, and a counter that stands still is noticed after 5 s


def of(task: Problem | Workload) -> float:
    """Seconds for one candidate, from a problem's operations."""
    flops = task.flops if isinstance(task, Problem) else 0
    return CANDIDATE + PER_TFLOP * flops / 1e12
