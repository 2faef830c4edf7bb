"""The content of gzip and xz files: of a bounded size, or an error.

A file of either kind is one or more streams in a row; its content is that of all of them.
"""

from __future__ import annotations

import lzma
import zlib
from typing import Protocol

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_BROKEN = (zlib.error, lzma.LZMAError, EOFError)
_MEMORY = 128 << 20  # xz takes 65 MiB for what its highest preset compressed


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


def is_compressed(data: bytes) -> bool:
    """Whether a file is gzip or xz, as far as its start tells."""
    return data.startswith((_GZIP, _XZ))


def expanded(data: bytes, limit: int) -> bytes:
    """The content of a file, of at most `limit` bytes; see `files.limits`.

    Raises:
        ValueError: if it is neither gzip nor xz, is cut short or damaged, or expands to more.
    """
    kind, pieces, size = _kind(data), list[bytes](), 0
    while data or not pieces:
        stream = _decompressor(data)
        try:
            pieces.append(stream.decompress(data, limit + 1 - size))
        except _BROKEN as error:
            if pieces:
                break
            raise _refused(kind, error) from error
        size += len(pieces[-1])
        if size > limit:
            raise ValueError(f"it is {kind} of more than {limit} bytes")
        if not stream.eof:
            break
        data = stream.unused_data
    else:
        return b"".join(pieces)
    raise ValueError(f"it is {kind} that was cut short or appended to")


def first_stream(data: bytes, most: int) -> tuple[bytes, int]:
    """The first `most` bytes of the content of a file's first stream, and where the stream ends:
    with the file, if there is more of it.

    Raises:
        ValueError: if the file is neither gzip nor xz, or damaged.
    """
    stream = _decompressor(data)
    try:
        start = stream.decompress(data, most)
    except _BROKEN as error:
        raise _refused(_kind(data), error) from error
    return start, len(data) - len(stream.unused_data)


def _kind(data: bytes) -> str:
    return "xz" if data.startswith(_XZ) else "gzip"


def _decompressor(data: bytes) -> _Decompressor:
    if data.startswith(_XZ):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    return zlib.decompressobj(wbits=31)


def _refused(kind: str, error: Exception) -> ValueError:
    return ValueError(f"it is not {kind}: {error}")
