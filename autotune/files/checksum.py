"""Checksums: of JSON documents, however they are laid out, and of built code.

A checksum finds damage, no more: whoever can write a file can write its checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256

CHECKSUM = "checksum"

# The start of a document that `sealed` wrote: no other key of ours sorts before "checksum".
_SEALED = re.compile(rb'\{"checksum":"([0-9a-f]{64})",')


def of(data: Mapping[str, object]) -> str:
    """The checksum of a document: the SHA-256 of its canonical JSON without the checksum.

    Raises:
        ValueError: if a number is not finite.
    """
    return sha256(_canonical(data)).hexdigest()


def sealed(data: Mapping[str, object]) -> bytes:
    """The canonical JSON of a document with its checksum in front.

    Raises:
        ValueError: if a number is not finite.
    """
    text = _canonical(data)
    return b'{"%s":"%s",' % (CHECKSUM.encode(), sha256(text).hexdigest().encode()) + text[1:]


def check(data: Mapping[str, object], text: bytes = b"") -> None:
    """Refuses a document whose checksum is wrong or missing.

    Args:
        data: the document.
        text: its text; if `sealed` wrote it, it is hashed as it is, which is faster.

    Raises:
        ValueError: if the document was changed after it was written.
    """
    stated = data.get(CHECKSUM)
    if stated is None:
        raise ValueError("it has no checksum")
    start = _SEALED.match(text)
    if start and sha256(b"{" + text[start.end() :].rstrip()).hexdigest() == start[1].decode():
        return
    if stated != (actual := of(data)):
        raise ValueError(
            f"checksum is {str(stated)[:12]}, its content has {actual[:12]}; it was changed"
        )


def _canonical(data: Mapping[str, object]) -> bytes:
    """Sorted keys, no white space, ASCII: independent of the layout."""
    content = {name: value for name, value in data.items() if name != CHECKSUM}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed_code(name: str, code: bytes) -> bytes:
    """The code behind a line with the SHA-256 of its name and itself."""
    return _hash_of_code(name, code) + b"\n" + code


def unsealed_code(name: str, data: bytes) -> bytes:
    """The code that `sealed_code` was given.

    Raises:
        ValueError: if the data is damaged or was sealed under another name.
    """
    checksum, newline, code = data.partition(b"\n")
    if not newline or checksum != _hash_of_code(name, code):
        raise ValueError("its checksum is wrong; the file was changed, renamed or cut short")
    return code


def _hash_of_code(name: str, code: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + code).hexdigest().encode()
