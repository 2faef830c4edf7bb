"""Reads the source of a user kernel with the headers that it reaches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from autotune import files
from autotune.errors import UsageError
from autotune.files import limits
from autotune.records.kernel_record import INCLUDE, KernelSource

HEADERS = "include"
"""The folder of headers beside a source that was given as text."""


class SourceFiles:
    """A source and its headers, as read at one time.

    Attributes:
        file: the path of the source, relative to the folder that holds all files.
        texts: the text of each file by such a path.
        folders: the folders to search for headers, as such paths.
    """

    def __init__(
        self, file: str, texts: tuple[tuple[str, str], ...], folders: tuple[str, ...]
    ) -> None:
        self.file, self.texts, self.folders = file, texts, folders


def read_files(source: str | Path, name: str, folders: Sequence[Path]) -> SourceFiles:
    """A source with every header that it reaches in its own folder and in `folders`.

    Other headers, such as CUDA's, are left to the compiler.

    Args:
        source: CUDA C++ as text, or the path of a file.
        name: the kernel's name, for the file name of a text.
        folders: folders of headers.

    Raises:
        UsageError: if the source cannot be read, or is no source.
    """
    if isinstance(source, Path):
        text, path = _read(source), source.resolve()
        headers = _reached(text, (path.parent, *folders))
        root = _common((path.parent, *(header.parent for header in headers)), folders)
        texts = _relatives({path: text, **headers}, root)
        used = [folder for folder in (path.parent, *folders) if folder.is_relative_to(root)]
        return SourceFiles(_relative(path, root), texts, _paths(used, root))
    if not isinstance(source, str):
        raise UsageError(f"source is {source!r}; give CUDA C++ as text, or a pathlib.Path")
    if "\n" not in source and source.strip().endswith((".cu", ".cuh")):
        raise UsageError(f"source is the text {source!r}; for a file give pathlib.Path({source!r})")
    file = f"{name.rpartition('::')[2]}.cu"
    headers = _reached(source, folders)
    if not headers:
        return SourceFiles(file, ((file, source),), ())
    root = _common([header.parent for header in headers], folders)
    used = [folder for folder in folders if folder.is_relative_to(root)]
    texts = (*((file, source),), *_relatives(headers, root, HEADERS))
    return SourceFiles(file, texts, _paths(used, root, HEADERS))


@contextmanager
def unpacked(
    source: KernelSource, further: Sequence[Path] = ()
) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """A temporary folder with a source and its headers, and the folders to search for headers:
    its own, `further` ones and, if it needs them, those of CUDA."""
    with source.unpacked() as (folder, folders):
        yield folder, (*folders, *further, *(() if source.complete else cuda_headers()))


@cache
def cuda_headers() -> tuple[Path, ...]:
    """The folders of CUDA's own headers, such as `cuda_fp16.h` and `cub/cub.cuh`: those of a
    toolkit, or of the wheels `nvidia-cuda-runtime` and `nvidia-cuda-cccl`; none without either."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    places = (find_nvidia_header_directory(library) for library in ("cudart", "cccl"))
    return tuple(dict.fromkeys(Path(place) for place in places if place))


def _read(source: Path) -> str:
    try:
        return files.read(source, limits.SOURCE).decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"source {source} cannot be read: {error}") from error


def _reached(text: str, folders: Sequence[Path]) -> dict[Path, str]:
    """The headers that a text includes, directly or through others, in the compiler's order."""
    headers: dict[Path, str] = {}
    pending = [(name, folders) for name in INCLUDE.findall(text)]
    while pending:
        name, places = pending.pop()
        path = next((place / name for place in places if (place / name).is_file()), None)
        if path is None or (path := Path(os.path.normpath(path))) in headers:
            continue
        headers[path] = _read(path)
        beside = (path.parent, *folders)
        pending += [(inner, beside) for inner in INCLUDE.findall(headers[path])]
    return headers


def _common(parents: Iterable[Path], folders: Sequence[Path]) -> Path:
    """The folder that holds all files, and the folders through which they are included."""
    parents = [*parents]
    used = [folder for folder in folders if any(path.is_relative_to(folder) for path in parents)]
    return Path(os.path.commonpath([*parents, *used]))


def _relative(path: Path, root: Path, below: str = "") -> str:
    return (Path(below) / path.relative_to(root)).as_posix()


def _relatives(texts: dict[Path, str], root: Path, below: str = "") -> tuple[tuple[str, str], ...]:
    return tuple((_relative(path, root, below), text) for path, text in texts.items())


def _paths(folders: Iterable[Path], root: Path, below: str = "") -> tuple[str, ...]:
    return tuple(_relative(folder, root, below) for folder in folders)
