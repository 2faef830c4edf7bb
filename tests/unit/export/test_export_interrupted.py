"""An export that is killed spoils nothing, and succeeds when it is run again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support import exported_library

from autotune.errors import AutotuneError
from autotune.export import ExportedLibrary, write_library
from autotune.families.config import Config
from autotune.problem import Problem

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
RENAMES = 8
"""Seven files, then the manifest."""


class Killed(BaseException):
    """Stands for SIGKILL."""


def library(k: int) -> ExportedLibrary:
    return exported_library.library_of({replace(Problem(64, 48, 40), k=k): NAIVE})


@contextmanager
def killed_at(rename: int) -> Iterator[None]:
    """Ends an export at a rename; a dead process deletes nothing."""
    count, real, unlink = 0, Path.replace, Path.unlink

    def replaced(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count > rename:
            raise Killed
        return real(path, target)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        if count > rename:
            raise Killed
        unlink(path, missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replaced)
        patch.setattr(Path, "unlink", unlinked)
        try:
            yield
        except Killed:
            return
    pytest.fail(f"there are {count} renames")


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file but the manifest."""
    names = sorted(path.name for path in folder.iterdir())
    return {
        name: sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if name != "lib.json"
    }


def manifest(folder: Path) -> Any:
    return json.loads((folder / "lib.json").read_text())


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("rename", range(RENAMES))
def test_same_export_succeeds_after_a_kill(tmp_path: Path, rename: int, fresh: bool) -> None:
    if not fresh:
        write_library(library(40), tmp_path, "c")
    old = digests(tmp_path)
    with killed_at(rename):
        write_library(library(41), tmp_path, "c")
    left = digests(tmp_path)
    (tmp_path / "mine").write_text("mine")
    write_library(library(41), tmp_path, "c")
    data, written = manifest(tmp_path), digests(tmp_path)
    assert written.pop("mine") == sha256(b"mine").hexdigest()
    assert [product["problem"] for product in data["products"]] == ["64x48x41:f32:nn"]
    assert written == data["files"]
    assert all(left[name] in (old.get(name), data["files"][name]) for name in left)


def test_file_changed_after_a_kill_is_not_replaced(tmp_path: Path) -> None:
    with killed_at(4):
        write_library(library(40), tmp_path, "c")
    (tmp_path / "lib.c").write_text("mine")
    with pytest.raises(AutotuneError, match=r"lib\.c is not as an export left it"):
        write_library(library(40), tmp_path, "c")
    assert (tmp_path / "lib.c").read_text() == "mine"


# Manifests that no export wrote.


def changed(folder: Path, change: Callable[[Any], object]) -> None:
    """Writes an export into a folder, and changes its manifest."""
    write_library(library(40), folder, "c")
    data = manifest(folder)
    change(data)
    (folder / "lib.json").write_text(json.dumps(data))


@pytest.mark.parametrize("place", ["../precious", "{outside}/precious", "link", "./precious"])
def test_manifest_reaches_no_other_path(tmp_path: Path, place: str) -> None:
    folder, precious = tmp_path / "folder", tmp_path / "precious"
    folder.mkdir()
    for path in (precious, folder / "precious"):
        path.write_text("precious")
    (folder / "link").symlink_to(precious)
    name, digest = place.format(outside=tmp_path), sha256(b"precious").hexdigest()
    changed(folder, lambda data: data["files"].update({name: digest}))
    write_library(library(41), folder, "c")
    assert [path.read_text() for path in (precious, folder / "precious")] == ["precious"] * 2
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("files"),
        lambda data: data.pop("made_by"),
        lambda data: data.update(made_by="somebody"),
        lambda data: data.update(made_by=3),
        lambda data: data.update(files={"lib.c": "abc"}),
        lambda data: data.update(files={"lib.c": 10**400}),
        lambda data: data.update(files={"lib.c": None}),
    ],
)
def test_impossible_manifest_is_not_replaced(
    tmp_path: Path, change: Callable[[Any], object]
) -> None:
    changed(tmp_path, change)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(AutotuneError, match=r"lib\.json is not as an export left it"):
        write_library(library(41), tmp_path, "c")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"files":' * 50_000, b"\xff\xfe", b"", b"0" * 5000]
)
def test_unreadable_manifest_is_not_replaced(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "lib.json").write_bytes(text)
    with pytest.raises(AutotuneError, match=r"lib\.json is not as an export left it"):
        write_library(library(41), tmp_path, "json")
    assert (tmp_path / "lib.json").read_bytes() == text


@pytest.mark.parametrize("name", ["lib.json", "lib.c", "README.md"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_pipe_directory_or_device_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    with pytest.raises(AutotuneError, match=f"{name} is not as an export left it"):
        write_library(library(40), tmp_path, "c")
    assert [path.name for path in tmp_path.iterdir()] == [name]
