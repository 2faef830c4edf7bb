"""The lines of the quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from autotune.files.decoding import convert, parse


@dataclass(frozen=True)
class _QuarantineFields:
    """A line of the quarantine."""

    key: Annotated[str, Meta(min_length=1)]
    reason: str


def fields_of(line: bytes) -> tuple[str, str] | None:
    """Key and reason of a line of the quarantine; None if the line is broken."""
    try:
        fields = convert(parse(line), _QuarantineFields, "line")
    except ValueError:
        return None
    return fields.key, fields.reason
