"""The provenance of results: five fields that every result file has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotune.measure.recording import Recording

FIELDS = ("device", "driver", "toolkit", "commit", "date")
UNKNOWN = "not recorded"


def provenance(
    device: str | None,
    driver: str | None,
    toolkit: str | None,
    *,
    commit: str = "",
    date: str = "",
) -> dict[str, str]:
    """The fields, none of them empty.

    Args:
        device: name of the GPU.
        driver: CUDA version that the driver supports.
        toolkit: the compiler and its version.
        commit: the commit of the code; by default that of this checkout.
        date: in ISO 8601; by default now.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    values = (device, driver, toolkit, commit or head(), date or now)
    return {name: value or UNKNOWN for name, value in zip(FIELDS, values, strict=True)}


def rows_in(path: Path, source: str) -> list[dict[str, Any]]:
    """The rows of a result file, if it was made with these kernel sources."""
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["rows"] if content["source"] == source else []


def of_recordings(recordings: Sequence[Recording], commit: str = "") -> dict[str, str]:
    """The fields of a result computed from recordings; different values are joined."""

    def joined(values: Sequence[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    return provenance(
        joined([item.device.name for item in recordings]),
        joined([item.origin.driver for item in recordings]),
        joined([item.origin.compiler for item in recordings]),
        commit=commit,
        date=max((item.date for item in recordings), default=""),
    )


def head() -> str:
    """The commit of this checkout, abbreviated; empty outside of one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    folder = Path(__file__).parent
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip()
