"""Files of records, ranges and bundles: those of earlier versions are read and written the same.

`snapshots/cache` is a cache with a file of every kind and every field, `snapshots/cache.jsonl.xz`
its bundle. They stay as they are: a new field is shown by another file beside them.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import surfaces
from support.command_line import own_machine, run

SNAPSHOT = "records.json"
CACHE, BUNDLE = surfaces.SNAPSHOTS / "cache", surfaces.SNAPSHOTS / "cache.jsonl.xz"
MERGE, IMPORT = ("cache", "merge", "--kernels"), ("cache", "import")
EXPORT = ("cache", "export")
"""The commands that read and write files; a verb that is renamed changes its words here."""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    return own_machine(monkeypatch, tmp_path)


def files_of(root: Path) -> dict[str, str]:
    """The text of each file of a cache by its path."""
    paths = (path for path in root.rglob("*.json") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


HELD = files_of(CACHE)


def lines_of(bundle: Path) -> list[dict[str, Any]]:
    """The header of a bundle and its lines. The bytes of parts are those of any xz."""
    text = lzma.decompress(bundle.read_bytes()).decode()
    header, *lines = map(json.loads, text.splitlines())
    del header["checksum"]  # of the bytes too
    for part in header["parts"]:
        assert type(part.pop("bytes")) is int
    return [header, *lines]


def kind_of(path: str, fields: Mapping[str, Any]) -> str:
    """The kind of a file: its folder, and the fields that only some have."""
    folder = path.partition("/")[0]
    return " with ".join([folder, *sorted({"objective", "family", "order"}.intersection(fields))])


def test_every_file_is_read_and_written_back_the_same(cache: Path) -> None:
    assert run(*MERGE, str(CACHE)) == 0
    assert files_of(cache) == HELD


def test_files_have_a_record_of_every_kind() -> None:
    assert {path.partition("/")[0] for path in HELD} == {
        *("records", "families", "ordered", "kernels", "ranges")
    }


def test_bundle_is_read_into_the_same_files(cache: Path) -> None:
    """All but the order of a few keys: lines of a bundle are sorted."""
    assert run(*IMPORT, str(BUNDLE)) == 0
    expected = {
        path: json.loads(text)
        for path, text in HELD.items()
        if path.startswith(("records/", "ordered/", "ranges/")) and "-mma" not in path
    }
    assert {path: json.loads(text) for path, text in files_of(cache).items()} == expected


def test_exported_bundle_has_the_same_lines(cache: Path, tmp_path: Path) -> None:
    shutil.copytree(CACHE, cache)
    assert run(*EXPORT, str(tmp_path / "all.jsonl.xz")) == 0
    assert lines_of(tmp_path / "all.jsonl.xz") == lines_of(BUNDLE)


def test_written_files_keep_their_keys_and_types(cache: Path, tmp_path: Path) -> None:
    assert run(*MERGE, str(CACHE)) == 0
    kinds: dict[str, list[dict[str, Any]]] = {}
    for path, text in files_of(cache).items():
        fields = json.loads(text)
        kinds.setdefault(kind_of(path, fields), []).append(fields)
    assert run(*EXPORT, str(tmp_path / "all.jsonl.xz")) == 0
    header, *lines = lines_of(tmp_path / "all.jsonl.xz")
    kinds |= {"header of a bundle": [header], "lines of a bundle": lines}
    for kind, contents in kinds.items():
        shape = surfaces.shape_of(contents, ("params", "metrics"))
        surfaces.hold(SNAPSHOT, shape, kind)
    assert surfaces.surfaces_of(SNAPSHOT) == sorted(kinds)
