"""Which devices are the same model, so that records of one serve the other.

The same GPU has several names, and the driver reports the memory of two cards of one model slightly
differently. So models are told apart by limits and rates instead of names.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from autotune.device.catalogue import catalogue
from autotune.device.device import Device

# The limits a kernel must fit into. Not the name, nor the memory size, which varies in one model.
_EQUAL = (
    *("compute_capability", "sms", "warp_size", "registers_per_block", "registers_per_sm"),
    *("shared_per_block", "shared_per_block_optin", "shared_per_sm", "threads_per_block"),
    *("threads_per_sm", "blocks_per_sm"),
)
# The rates that decide which kernel is fastest.
_CLOSE = ("l2_bytes", "sm_clock", "memory_bandwidth")
# The other fields that predictions depend on.
_PREDICTED_EQUAL = ("reserved_shared_per_block", "granularity")
TOLERANCE = 0.03
"""Largest relative difference of a rate within one model."""


def same_model(a: Device, b: Device) -> bool:
    """Whether two devices are the same model."""
    equal = all(getattr(a, name) == getattr(b, name) for name in _EQUAL)
    return equal and all(_is_close(getattr(a, name), getattr(b, name)) for name in _CLOSE)


def same_architecture(a: Device, b: Device) -> bool:
    """Whether two devices have the same compute capability, so that the same programs run."""
    return a.compute_capability == b.compute_capability


@lru_cache(maxsize=64)
def prediction_slug(device: Device) -> str:
    """The name of the folder of what was predicted for a device, which follows from its numbers.

    It is the slug where the numbers are those of the catalogue's device of that name. Others have a
    hash of their numbers behind it: a device file with the name of a real card has predictions of
    its own.
    """
    if any(_alike(device, listed) for listed in catalogue().values()):
        return device.slug
    capability = map(float, device.compute_capability)
    fields = vars(device).items()
    numbers = [
        float(value or 0)
        for name, value in fields
        if not name.startswith("clusters") and not isinstance(value, str | tuple)
    ]
    numbers += map(float, device.clusters or ())
    return f"{device.slug}-{sha256(repr([*capability, *numbers]).encode()).hexdigest()[:8]}"


def _alike(device: Device, listed: Device) -> bool:
    """Whether a device of the catalogue has the name and, closely, the numbers of another."""
    return (
        device.slug == listed.slug
        and same_model(device, listed)
        and all(getattr(device, name) == getattr(listed, name) for name in _PREDICTED_EQUAL)
        and _is_close(device.peak_fp32, listed.peak_fp32)
        and (device.clusters == listed.clusters or None in (device.clusters, listed.clusters))
    )


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(a, b)
