"""The device: a GPU's identity and limits, and a catalogue of known GPUs."""

from __future__ import annotations

from autotune.device.device import Device, catalogue, find, fp32_lanes, load, tensor_rate

__all__ = ["Device", "catalogue", "find", "fp32_lanes", "load", "tensor_rate"]
