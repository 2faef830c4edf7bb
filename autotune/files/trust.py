"""Built code in the cache, behind a checksum.

The checksum finds damage, no more: whoever can write a file can write its checksum.
"""

from __future__ import annotations

from hashlib import sha256


def sealed(name: str, code: bytes) -> bytes:
    """The code behind a line with the SHA-256 of its name and itself."""
    return _checksum(name, code) + b"\n" + code


def unsealed(name: str, data: bytes) -> bytes:
    """The code that `sealed` was given.

    Raises:
        ValueError: if the data is damaged or was sealed under another name.
    """
    checksum, newline, code = data.partition(b"\n")
    if not newline or checksum != _checksum(name, code):
        raise ValueError("its checksum is wrong; the file was changed, renamed or cut short")
    return code


def _checksum(name: str, code: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + code).hexdigest().encode()
