"""The catalogue of known GPUs, devices from files, and which devices are the same model.

The same GPU has several names, and the driver reports the memory of two cards of one model slightly
differently. So models are told apart by limits and rates instead of names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from autotune import files
from autotune.device.device import Device, expected_clusters, has_clusters, listed
from autotune.device.sm import SMS, fp32_lanes, sm_named
from autotune.errors import DeviceError
from autotune.files import limits
from autotune.files.decoding import parse

_IDENTITY = ("name", "aliases", "compute_capability")
_MARKETING = re.compile(r"^(nvidia|geforce|tesla|gtx|rtx)+")


@dataclass(frozen=True)
class CatalogueEntry:
    """A device of the catalogue.

    Attributes:
        key: its short name, such as `h100-sxm`.
        aliases: other names that `find` takes.
        device: its identity and limits.
        sources: the source of each value that is not its SM's, by the name of the `Device` field.
    """

    key: str
    aliases: tuple[str, ...]
    device: Device
    sources: Mapping[str, str]


@cache
def entries() -> Mapping[str, CatalogueEntry]:
    """The catalogue by short key, from `listed`, where each value has its source.

    What cards of one compute capability share comes from `sm.SMS`; the fp32 peak follows from SMs
    and clock.
    """
    content = listed()
    return {key: _entry(key, card, content["sources"]) for key, card in content["devices"].items()}


def catalogue() -> Mapping[str, Device]:
    """The known devices by short key, such as `h100-sxm`."""
    return {key: entry.device for key, entry in entries().items()}


def find(text: str) -> Device:
    """The catalogue's device with that key, alias or driver name.

    Case, spaces, dashes and the prefixes NVIDIA, GeForce, Tesla, GTX and RTX do not matter.
    A bare `h100` is the SXM module and a bare `a100` the one of 80 GB.

    Raises:
        DeviceError: if no device is called that; the message lists near matches.
    """
    cards = entries()
    keys = {
        _folded(name): key
        for key, entry in cards.items()
        for name in (key, entry.device.name, *entry.aliases)
    }
    if (wanted := _folded(text)) in keys:
        return cards[keys[wanted]].device
    if (sm := sm_named(text)) is not None:
        raise DeviceError(
            f"{sm.name} is a compute capability, which says nothing of SMs, clocks and memory; "
            f"give a card of it{_cards(sm.compute_capability)}. `autotune occupancy` and "
            "`autotune explore` take it as it is"
        )
    import difflib  # for the message alone

    near = dict.fromkeys(keys[name] for name in difflib.get_close_matches(wanted, keys, n=5))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise DeviceError(
        f"unknown device {text!r}; {hint}give one that `autotune device --list` lists, its compute "
        "capability such as sm_80 for occupancy, or a JSON file as `autotune device --json` prints"
    )


def load(text: str) -> Device:
    """A device from a JSON file (a path with a `/` or ending in `.json`) or by `find`.

    Raises:
        DeviceError: if the file cannot be read or holds something else, or the name is unknown.
    """
    if "/" not in text and not text.endswith(".json"):
        return find(text)
    try:
        content = parse(files.read(Path(text), limits.DEVICE))
    except (OSError, ValueError) as error:
        raise DeviceError(f"cannot read the device file {text}: {error}") from error
    if not isinstance(content, dict):
        raise DeviceError(
            f"{text}: holds no JSON object; give what `autotune device --json` prints"
        )
    try:
        return Device.from_json(content)
    except DeviceError as error:
        raise DeviceError(f"{text}: {error}") from error


def _entry(key: str, card: Mapping[str, Any], sources: Mapping[str, str]) -> CatalogueEntry:
    """Reads an entry; all but its names and compute capability are pairs of value and source.

    The clusters of a card with GPCs are the least that these hold.
    """
    major, minor = card["compute_capability"]
    capability = int(major), int(minor)
    stated = {name: pair for name, pair in card.items() if name not in _IDENTITY}
    values = {name: value for name, (value, _) in stated.items() if name != "gpcs"}
    shared = vars(SMS[capability]) if capability in SMS else {}
    peak = 2.0 * fp32_lanes(capability) * values["sms"] * values["sm_clock"]
    fields = {**shared, "peak_fp32": peak, **values, "compute_capability": capability}
    if has_clusters(capability):
        clusters = expected_clusters(capability, values["sms"])
        fields |= {"clusters": clusters, "clusters_expected": True}
    return CatalogueEntry(
        key,
        tuple(card["aliases"]),
        Device(name=card["name"], **fields),
        {"clusters" if name == "gpcs" else name: sources[key] for name, (_, key) in stated.items()},
    )


def _cards(capability: tuple[int, int]) -> str:
    """The cards of a compute capability, for a message; empty if none is listed."""
    keys = [key for key, card in catalogue().items() if card.compute_capability == capability]
    return f", such as {' or '.join(keys)}" if keys else ""


def _folded(text: str) -> str:
    return _MARKETING.sub("", re.sub(r"[^a-z0-9]", "", text.lower()))


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
