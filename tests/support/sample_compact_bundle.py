"""A bundle of schema 1, as earlier versions wrote it, of one record and one range."""

from __future__ import annotations

from typing import Any

from autotune.problem import Problem
from autotune.records import Record
from autotune.records.ranges import Range, Segment
from support.sample_records import H100, entry, record

RECORD: Record = record(entry(16, 900.0), baseline_us=800.0)
RANGE = Range(
    H100, Problem(512, 4096, 4096, "bf16"), "m", (Segment(1, 64, 64), Segment(65, 512, 512)), 0.04
)
CHECKSUM = "99cd147a4ba2846e4159246d3b0cc81d604145a84e9c48fcf9ef7ee575d4f4df"


def compact_document() -> dict[str, Any]:
    """The document, without its checksum."""
    return {
        "schema": 1,
        "devices": [H100.to_json()],
        "forms": [["tiled", "tile_width"]],
        "limiters": ["threads"],
        "origins": [["13.0", "NVRTC 13.0", "5e1f", "0.1.0"]],
        "ranges": [
            {
                "device": 0,
                "dimension": "m",
                "evidence": "measured",
                "loss": 0.04,
                "problem": "512x4096x4096:bf16:nn",
                "schema": 1,
                "segments": [[1, 64, 64], [65, 512, 512]],
            }
        ],
        "records": [
            {
                "baseline": [800.0],
                "device": 0,
                "entries": [
                    [0, "16", [900.0, 0.0, 20, None, 0.0001, 0.001], [256, 32, 2048], 0.75, 0]
                ],
                "made": [0, "2026-11-21T12:00:00Z", 1, 9, 6.5],
                "problem": "4096x4096x4096:f32:nn",
            }
        ],
    }
