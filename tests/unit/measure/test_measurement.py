"""Measurements on disk: the relative error is kept; older files without it are read."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support.sample_records import H100, SQUARE

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files.decoding import convert
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow

MEASURED = Measurement(12.5, 0.25, 20, 13.0, 1e-4, 1e-3, 7.5e-7)


def recorded(outcome: Measurement | Failure, baseline: Measurement | None = MEASURED) -> Recording:
    row = SweepRow(
        Config.parse("tiled:tile_width=16,specialized=1"), Resources(256, 32, 2048), outcome
    )
    origin = Origin("13.0", "NVRTC 13.5", "5e1f")
    return Recording(SQUARE, H100, origin, "2026-11-21T12:00:00+00:00", baseline, (row,))


def rewritten(path: Path, change: Any) -> None:
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))


def without_relative_errors(data: dict[str, Any]) -> None:
    del data["baseline"]["relative_error"]
    del data["families"]["tiled"]["relative_error"]


@pytest.mark.parametrize(
    "outcome", [MEASURED, Failure("accuracy", "relative error 1e-06 is 2.0 times the vendor's")]
)
def test_recording_keeps_relative_errors(tmp_path: Path, outcome: Measurement | Failure) -> None:
    recorded(outcome).save(path := tmp_path / "one.json.gz")
    assert Recording.load(path) == recorded(outcome)


def test_recording_without_relative_errors_is_read(tmp_path: Path) -> None:
    recorded(MEASURED).save(path := tmp_path / "old.json.gz")
    rewritten(path, without_relative_errors)
    older = replace(MEASURED, relative_error=None)
    assert Recording.load(path) == recorded(older, older)


def test_record_keeps_the_relative_error() -> None:
    assert convert(asdict(MEASURED), Measurement, "measurement") == MEASURED


def test_record_without_a_relative_error_is_read() -> None:
    old = {name: value for name, value in asdict(MEASURED).items() if name != "relative_error"}
    older = replace(MEASURED, relative_error=None)
    assert convert(old, Measurement, "measurement") == older


@pytest.mark.parametrize("wrong", ["1e-6", float("nan"), float("inf"), True])
def test_invalid_relative_error_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="relative_error"):
        convert(asdict(MEASURED) | {"relative_error": wrong}, Measurement, "measurement")
