"""The reader for files that the package did not write in this process.

A file is read only if it is a regular file of a plausible size: a named pipe in its place would
block for ever, `/dev/zero` would fill the memory. `limits` has the size for each kind of file.

    data = files.read(path, limits.RECORD)                 # OSError: missing, a pipe, too large
    value = decoding.parse(data)                           # ValueError: not JSON, too deep or long
    text = expanded(data, limits.BUNDLE_TEXT)              # ValueError: not compressed, a bomb

`read` raises only `OSError`, whose `strerror` completes "<path>: cannot be read: ". A gzip or xz
file is one or more streams in a row; its content is that of all of them.
"""

from __future__ import annotations

import errno
import lzma
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
}


def read(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; see `limits` for each kind of file.

    Raises:
        OSError: if there is no such file, it cannot be read, is not a regular file, or is larger.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= limit:
            data = file.read(size + 1)
            if len(data) > size:  # the file grows meanwhile
                data += file.read(limit - size)
                size = os.fstat(file.fileno()).st_size
            if len(data) <= limit:
                return data
    raise OSError(errno.EFBIG, f"File has {size} bytes; at most {limit} are read", str(path))


def opened(
    path: Path, *, append: bool = False, create: bool = False, follow: bool = True
) -> BinaryIO:
    """A regular file, open for reading. The call never blocks.

    Args:
        path: the file.
        append: whether to open it for appending too.
        create: whether to create it if it is missing.
        follow: whether the file may be a link to one.

    Raises:
        OSError: if there is no such file, it cannot be opened, or is not a regular file.
    """
    # To open a device may act on it, so its kind is checked before, and again afterwards.
    with suppress(*([FileNotFoundError] if create else [])):
        _require_regular(path, path.stat() if follow else path.lstat())
    flags = os.O_RDWR | os.O_APPEND if append else os.O_RDONLY
    flags |= (os.O_CREAT if create else 0) | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    try:
        _require_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "r+b" if append else "rb")
    except BaseException:
        os.close(descriptor)
        raise


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Numbers that change with every change of a file, also where a copy restores its times
    (`rsync -a`, tar): no program can set the time of the last change of its status."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "of unknown kind")
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, f"Is {kind}, not a regular file", str(path))


_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_BROKEN = (zlib.error, lzma.LZMAError, EOFError)
_MEMORY = 128 << 20  # xz takes 65 MiB for what its highest preset compressed


def is_compressed(data: bytes) -> bool:
    """Whether the data starts with the magic bytes of gzip or xz."""
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
            raise ValueError(f"it is not {kind}: {error}") from error
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
        raise ValueError(f"it is not {_kind(data)}: {error}") from error
    return start, len(data) - len(stream.unused_data)


def _kind(data: bytes) -> str:
    return "xz" if data.startswith(_XZ) else "gzip"


def _decompressor(data: bytes) -> lzma.LZMADecompressor | zlib._Decompress:
    if data.startswith(_XZ):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    return zlib.decompressobj(wbits=31)
