"""The workspace that launches take of device memory."""

from __future__ import annotations

from autotune.device import Device

WORKSPACE_SHARE = 8
"""A workspace takes at most this part of the device's memory."""


def workspace_fault(needed: int, device: Device) -> str | None:
    """Why a workspace of `needed` bytes is too large; None if it is not."""
    most = device.memory_bytes // WORKSPACE_SHARE
    if needed <= most:
        return None
    return f"needs {needed} bytes; {most} of {device.name} are taken at most"
