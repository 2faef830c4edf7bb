"""The provenance of result files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import results
from support.sample_recording import recorded


def test_provenance_has_the_five_fields() -> None:
    fields = results.provenance("H100", "13.0", "NVRTC 13.0", commit="abc", date="2026-11-21")
    assert fields == {
        "device": "H100",
        "driver": "13.0",
        "toolkit": "NVRTC 13.0",
        "cublas": "not used",
        "commit": "abc",
        "date": "2026-11-21",
    }


def test_no_field_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results, "__file__", str(tmp_path / "results.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    fields = results.provenance(None, "", None)
    measured = ("device", "driver", "toolkit", "commit")
    assert {fields[name] for name in measured} == {results.UNKNOWN}
    assert fields["date"].startswith("20")


def test_provenance_joins_the_values_of_recordings() -> None:
    first = recorded()
    second = replace(first, origin=replace(first.origin, driver="99.0"), date="2099-01-01")
    fields = results.of_recordings([first, second], "abc")
    assert fields["driver"] == f"{first.origin.driver}, 99.0"
    assert (fields["device"], fields["date"]) == (first.device.name, "2099-01-01")


def test_unknown_version_of_cublas_is_not_recorded() -> None:
    assert results.provenance("H100", "13.0", "NVRTC 13.0", cublas="")["cublas"] == results.UNKNOWN
    assert results.provenance("H100", "13.0", "NVRTC 13.0", cublas="13.1.0")["cublas"] == "13.1.0"
