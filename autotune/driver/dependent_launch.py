"""Programmatic dependent launch: kernels that start before their predecessor has ended.

`cuda_src/include/common/dependent_launch.cuh` says why that is safe.
"""

from __future__ import annotations

from enum import IntEnum

from autotune.device import Device
from autotune.errors import UsageError
from autotune.families.plan import LaunchPlan


class Dependence(IntEnum):
    """The part of a product that waits for the kernel before it on the stream."""

    NONE = 0
    """The product starts after that kernel."""
    ALL = 1
    """It starts early and waits before it reads."""
    OF_A = 2
    """It starts early and waits before it reads A: its B, or what B holds, was there before."""


CAPABILITY = 9, 0
"""The first compute capability with programmatic dependent launch."""


def has_dependent_launch(device: Device) -> bool:
    """Whether the device has programmatic dependent launch."""
    return device.compute_capability >= CAPABILITY


def dependent_launches(plan: LaunchPlan, device: Device, first: bool = False) -> tuple[bool, ...]:
    """For each launch of a plan, whether it is a dependent launch.

    Where the device has them, the second and later launches always are, as they follow a kernel of
    the same plan. The first is one if the caller asks for it.

    Raises:
        UsageError: for `first` on a device without them.
    """
    available = has_dependent_launch(device)
    if first and not available:
        major, minor = device.compute_capability
        raise UsageError(
            f"programmatic dependent launch needs compute capability 9.0; {device.name} has "
            f"{major}.{minor}: call without `dependent`"
        )
    return first, *[available] * (len(plan.launches) - 1)
