"""Which devices are the same model, so that records of one serve the other.

The same GPU has several names, and the driver reports the memory of two cards of one model slightly
differently. So models are told apart by limits and rates instead of names.
"""

from __future__ import annotations

from autotune.device.device import Device

# The limits a kernel must fit into. Not the name, nor the memory size, which varies in one model.
_EQUAL = (
    *("compute_capability", "sms", "warp_size", "registers_per_block", "registers_per_sm"),
    *("shared_per_block", "shared_per_block_optin", "shared_per_sm", "threads_per_block"),
    *("threads_per_sm", "blocks_per_sm"),
)
# The rates that decide which kernel is fastest.
_CLOSE = ("l2_bytes", "sm_clock", "memory_bandwidth")
TOLERANCE = 0.03
"""Largest relative difference of a rate within one model."""


def same_model(a: Device, b: Device) -> bool:
    """Whether two devices are the same model."""
    equal = all(getattr(a, name) == getattr(b, name) for name in _EQUAL)
    return equal and all(_is_close(getattr(a, name), getattr(b, name)) for name in _CLOSE)


def same_architecture(a: Device, b: Device) -> bool:
    """Whether two devices have the same compute capability, so that the same programs run."""
    return a.compute_capability == b.compute_capability


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(a, b)
