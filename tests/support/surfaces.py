"""Snapshots of public surfaces: checked-in text that tests compare today's surfaces with.

A surface that changes on purpose is written again, and the diff of its snapshot is reviewed:

    UPDATE_SURFACES=1 python -m pytest -p no:xdist tests/unit/surfaces
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.paths import TESTS

SURFACES = TESTS / "unit" / "surfaces"
SNAPSHOTS = SURFACES / "snapshots"
UPDATE = "UPDATE_SURFACES"

_KEY = re.compile(r"[a-z]\w*")
"""The key of a field; other keys are data, such as shapes and paths."""
_TYPES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}


def hold(name: str, lines: Sequence[str], surface: str | None = None) -> None:
    """Fails with a diff unless a snapshot has these lines, or writes them if `UPDATE` is set.

    Args:
        name: the file of the snapshot.
        lines: the surface of today.
        surface: the key of the surface in a JSON file of several; None for a file of its own.
    """
    path = SNAPSHOTS / name
    if os.environ.get(UPDATE):
        _write(path, lines, surface)
    held = read(name) if surface is None else _surfaces(path).get(surface, [])
    title = name if surface is None else f"{name}, {surface}"
    diff = [*difflib.unified_diff(held, [*lines], f"{title} (held)", f"{title} (today)", "", "")]
    if diff:
        text = "\n".join(line.rstrip("\n") for line in diff)
        pytest.fail(f"{text}\n\nif this is meant, set {UPDATE}=1, and review {path}", pytrace=False)


def read(name: str) -> list[str]:
    """The lines of a snapshot; none if there is no such file."""
    path = SNAPSHOTS / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


def surfaces_of(name: str) -> list[str]:
    """The surfaces in a JSON file of several."""
    return [*_surfaces(SNAPSHOTS / name)]


def shape_of(data: object, maps: Sequence[str] = ()) -> list[str]:
    """A line for each key of JSON data with its types, such as `entries[].time_us: float`.

    A key that only some objects of a list have ends with `?`. Keys that are data are one `*`.

    Args:
        data: what `json.loads` returned.
        maps: keys of objects whose keys are all data, such as `params`.
    """
    kinds: dict[str, Counter[str]] = {}
    for path, kind in _leaves(data, "", frozenset(maps)):
        kinds.setdefault(path, Counter())[kind] += 1
    lines = []
    for path, counts in kinds.items():
        parent, dot, key = path.rpartition(".")
        field = dot and key != "*" and not key.endswith("[]")
        optional = bool(field) and counts.total() < kinds[parent]["object"]
        lines.append(
            f"{path.removeprefix('.') or '(all)'}{'?' * optional}: {' | '.join(sorted(counts))}"
        )
    return sorted(lines)


def _leaves(data: object, path: str, maps: frozenset[str]) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        yield path, "object"
        plain = path.rpartition(".")[2] not in maps and all(map(_KEY.fullmatch, data))
        for key, value in data.items():
            yield from _leaves(value, f"{path}.{key if plain else '*'}", maps)
    elif isinstance(data, list):
        yield path, "list"
        for value in data:
            yield from _leaves(value, f"{path}[]", maps)
    else:
        yield path, _TYPES[type(data)]


def _surfaces(path: Path) -> dict[str, list[str]]:
    if not path.exists():
        return {}
    data: dict[str, list[str]] = json.loads(path.read_text("utf-8"))
    return data


def _write(path: Path, lines: Sequence[str], surface: str | None) -> None:
    path.parent.mkdir(exist_ok=True)
    if surface is None:
        text = "".join(f"{line}\n" for line in lines)
    else:
        data = _surfaces(path) | {surface: [*lines]}
        text = json.dumps(dict(sorted(data.items())), indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, "utf-8")
