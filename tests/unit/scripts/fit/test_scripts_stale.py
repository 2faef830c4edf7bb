"""The count of stale shipped records."""

from __future__ import annotations

from pathlib import Path

import pytest
import stale
from support.fake_runner import ORIGIN
from support.sample_recording import PROBLEM
from support.sample_records import record

from autotune.measure import targets
from autotune.records import bundle


@pytest.fixture(autouse=True)
def _shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record(), record(problem=PROBLEM, source="0ld")]
    (tmp_path / "card.jsonl.xz").write_bytes(bundle.dumps(records))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path))
    monkeypatch.setattr(targets, "here", lambda: ORIGIN)


def test_stale_records_are_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    stale.count(named=True)
    printed = capsys.readouterr().out
    assert "2 shipped records, 1 stale: 1 of NVIDIA H100 80GB HBM3" in printed
    assert printed.startswith("NVIDIA H100 80GB HBM3 256x256x256:f32:nn\n2 shipped")


def test_release_refuses_stale_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="stale records are not shipped"):
        stale.count(refuse=True)
    monkeypatch.setenv("AUTOTUNE_SHIP_STALE", "1")
    stale.count(refuse=True)
