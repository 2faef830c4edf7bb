"""The catalogue of known GPUs, and devices from files."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from autotune import files
from autotune.device.device import Device
from autotune.errors import DeviceError
from autotune.files import limits
from autotune.files.decoding import parse

_MARKETING = re.compile(r"^(nvidia|geforce|tesla|gtx|rtx)+")


def catalogue() -> Mapping[str, Device]:
    """The known devices by short key, such as `h100-sxm`.

    The source of each entry's figures stands beside it in `data/devices.json`.
    """
    return {key: Device.from_json(entry["device"]) for key, entry in _entries().items()}


def find(text: str) -> Device:
    """The catalogue's device with that key, alias or driver name.

    Case, spaces, dashes and the prefixes NVIDIA, GeForce, Tesla, GTX and RTX do not matter.
    A bare `h100` is the SXM module and a bare `a100` the one of 80 GB.

    Raises:
        DeviceError: if no device is called that; the message lists near matches.
    """
    entries = _entries()
    keys = {
        _folded(name): key
        for key, entry in entries.items()
        for name in (key, entry["device"]["name"], *entry["aliases"])
    }
    if (wanted := _folded(text)) in keys:
        return Device.from_json(entries[keys[wanted]]["device"])
    near = dict.fromkeys(keys[name] for name in difflib.get_close_matches(wanted, keys, n=5))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise DeviceError(
        f"unknown device {text!r}; {hint}give one of {', '.join(entries)}, "
        "or a JSON file as `autotune device --json` prints it"
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


def _entries() -> dict[str, Any]:
    data = resources.files("autotune") / "data" / "devices.json"
    entries: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    return entries


def _folded(text: str) -> str:
    return _MARKETING.sub("", re.sub(r"[^a-z0-9]", "", text.lower()))
