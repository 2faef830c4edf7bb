"""The device: a GPU's identity and limits, a catalogue of known GPUs, and which are one model."""

from __future__ import annotations

from autotune.device.catalogue import (
    CatalogueEntry,
    catalogue,
    entries,
    find,
    load,
    prediction_slug,
    same_architecture,
    same_model,
)
from autotune.device.device import CLUSTER_SIZES, Device, SmLimits
from autotune.device.sm import SMS, Sm, fp32_lanes, sm_named, tensor_rate

__all__ = [
    "CLUSTER_SIZES",
    "SMS",
    "CatalogueEntry",
    "Device",
    "Sm",
    "SmLimits",
    "catalogue",
    "entries",
    "find",
    "fp32_lanes",
    "load",
    "prediction_slug",
    "same_architecture",
    "same_model",
    "sm_named",
    "tensor_rate",
]
