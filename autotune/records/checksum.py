"""Checksums in JSON files: the SHA-256 of all else that a document says, however it is laid out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256

CHECKSUM = "checksum"

# How a document starts that `sealed` wrote: no other key of ours comes before in the alphabet.
_SEALED = re.compile(rb'\{"checksum":"([0-9a-f]{64})",')


def of(data: Mapping[str, object]) -> str:
    """The checksum of a document, but for the one in it: of its canonical JSON.

    Raises:
        ValueError: if a number is not finite.
    """
    return sha256(_canonical(data)).hexdigest()


def sealed(data: Mapping[str, object]) -> bytes:
    """The canonical JSON of a document with its checksum in front.

    Raises:
        ValueError: if a number is not finite.
    """
    return b'{"%s":"%s",' % (CHECKSUM.encode(), of(data).encode()) + _canonical(data)[1:]


def check(data: Mapping[str, object], text: bytes = b"") -> None:
    """Refuses a document whose checksum is wrong or missing.

    Args:
        data: the document.
        text: what it was read from: as `sealed` wrote it, it need not be written again.

    Raises:
        ValueError: if the document was changed after it was written.
    """
    told = data.get(CHECKSUM)
    if told is None:
        raise ValueError("it has no checksum")
    start = _SEALED.match(text)
    if start and sha256(b"{" + text[start.end() :].rstrip()).hexdigest() == start[1].decode():
        return
    if told != (found := of(data)):
        said = str(told)[:12]
        raise ValueError(f"checksum is {said}, its content has {found[:12]}; it was changed")


def _canonical(data: Mapping[str, object]) -> bytes:
    """Sorted keys, no white space, ASCII: other layouts of the same content give the same."""
    rest = {name: value for name, value in data.items() if name != CHECKSUM}
    return json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
