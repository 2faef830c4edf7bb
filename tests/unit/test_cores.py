"""The number of cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune import cores


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of 16 cores whose control groups lie in the folder; none limits yet."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path


def limited(root: Path, membership: str, **limits: str) -> int:
    """The cores of a process in a group, with the files of that group's folder."""
    (root / "membership").write_text(membership)
    for name, text in limits.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cores.available()


@pytest.mark.usefixtures("machine")
def test_affinity_counts() -> None:
    assert cores.available() == 16


@pytest.mark.usefixtures("machine")
def test_machine_counts_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores.available() == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("5000 100000", 1),
        ("9900000 100000", 16),
        ("max 100000", 16),
        ("", 16),
        ("100000 0", 16),
    ],
)
def test_limit_of_a_container_counts(machine: Path, text: str, expected: int) -> None:
    assert limited(machine, "0::/\n", cpu_dot_max=text) == expected


def test_innermost_and_outer_groups_limit(machine: Path) -> None:
    files = {"jobs__cpu_dot_max": "300000 100000", "jobs__seven__cpu_dot_max": "max 100000"}
    assert limited(machine, "0::/jobs/seven\n", **files) == 3


def test_path_of_the_host_falls_back_to_the_root(machine: Path) -> None:
    assert limited(machine, "0::/docker/abc\n", cpu_dot_max="400000 100000") == 4
