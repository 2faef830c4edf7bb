"""Kernels of the user's: what is known of one, what it is called with, and what it computes."""

from __future__ import annotations

from autotune.user_kernels.definition import UserKernel, defined, placed
from autotune.user_kernels.signature import check_signature
from autotune.user_kernels.table import KernelRow, KernelTable, table
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Workload, described, workload

__all__ = [
    "KernelRow",
    "KernelTable",
    "KernelTunable",
    "UserKernel",
    "Workload",
    "check_signature",
    "defined",
    "described",
    "placed",
    "table",
    "workload",
]
