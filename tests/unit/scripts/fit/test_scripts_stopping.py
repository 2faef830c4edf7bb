"""Searches of recorded and computed spaces that run until they stop by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stopping
from replay import Space
from support import sample_recording
from typer import Typer
from typer.testing import CliRunner, Result

from autotune.families.config import Config
from autotune.measure.measurement import Measurement

SIDE = 12


def space() -> Space:
    """A smooth space whose optimum, 100 us, is in a corner."""
    return Space(
        {
            Config.of("table", {"a": 2**a, "b": 2**b}): Measurement(100.0 + 10 * a + 7 * b)
            for a in range(SIDE)
            for b in range(SIDE)
        },
        {},
    )


def run(*words: object) -> Result:
    app = Typer()
    app.command()(stopping.main)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_search_that_understands_its_space_stops() -> None:
    evaluations, loss = stopping.stopped(space(), 1, SIDE**2)
    assert evaluations < SIDE**2 / 2
    assert loss == 0


def test_limit_ends_a_search() -> None:
    assert stopping.stopped(space(), 1, 15)[0] == 15


def test_rows_are_added_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "space", lambda _kind, _seed: space())
    out = tmp_path / "new" / "out.json"
    for kind in ("stencil", "transpose"):
        result = run("--computed", kind, "--seeds", 2, "--limit", 12, "--json", out)
        assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())["rows"]
    names = [f"{kind} {seed}" for kind in ("stencil", "transpose") for seed in (1, 2)]
    assert [row["space"] for row in rows] == names
    assert all(row["evaluations"] == [12, 12] and row["blind"] for row in rows)


def test_recordings_give_the_provenance(tmp_path: Path) -> None:
    recorded, out = tmp_path / "square.json.gz", tmp_path / "out.json"
    sample_recording.recorded().save(recorded)
    shared = "--seeds", 1, "--limit", 3, "--json", out, "--commit", "5eed"
    assert run(recorded, "--blind", *shared).exit_code == 0
    assert run("--computed", "transpose", *shared).exit_code == 0
    content = json.loads(out.read_text())
    assert [content[name] for name in ("device", "driver", "toolkit", "commit")] == [
        *("NVIDIA H100 80GB HBM3", "13.0", "NVRTC 13.5", "5eed")
    ]
    assert [row["space"] for row in content["rows"]] == ["square", "transpose 1", "transpose 2"]


def test_unknown_kind_is_a_usage_error() -> None:
    result = run("--computed", "sort")
    assert result.exit_code == 2
    assert "'sort'" in result.output


@pytest.mark.parametrize("kind", stopping.KINDS)
def test_seed_decides_the_times_of_a_computed_space(kind: str) -> None:
    first, second, other = (stopping.space(kind, seed) for seed in (1, 1, 2))
    assert first.outcomes == second.outcomes
    assert first.configs == other.configs
    assert first.outcomes != other.outcomes
    assert 0 < first.failures < len(first.configs) / 2
