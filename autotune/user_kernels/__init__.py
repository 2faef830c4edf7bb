"""User kernels: their definition, the call they are tuned for, and the results expected of it."""

from __future__ import annotations

from autotune.user_kernels.definition import Compilation, UserKernel, define_kernel, source_folder
from autotune.user_kernels.signature import check_signature
from autotune.user_kernels.stand_in import first_results
from autotune.user_kernels.table import KernelRow, KernelTable, occupancy_table
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Verification, Workload, call_of, workload

__all__ = [
    "Compilation",
    "KernelRow",
    "KernelTable",
    "KernelTunable",
    "UserKernel",
    "Verification",
    "Workload",
    "call_of",
    "check_signature",
    "define_kernel",
    "first_results",
    "occupancy_table",
    "source_folder",
    "workload",
]
