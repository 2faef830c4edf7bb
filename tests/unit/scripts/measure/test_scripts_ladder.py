"""The script that records the ladder's counters."""

from __future__ import annotations

import csv
from io import StringIO

from ladder import COUNTERS, counted, metrics

from autotune.tuning.ladder import STALLS

CSV = """"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","naive(const float *, long long)","gpu__time_duration.sum","nsecond","274,123,456"
"0","naive(const float *, long long)","lts__t_sectors.sum","sector","1"
"1","tiled(const float *, long long)","smsp__issue_active.avg.per_cycle_active","inst","0.42"
"""


def test_counters_are_read_by_kernel() -> None:
    assert counted(csv.DictReader(StringIO(CSV))) == {
        "naive": {"time_ns": 274_123_456.0},
        "tiled": {"issued": 0.42},
    }


def test_every_counter_and_stall_is_asked_for_once() -> None:
    asked = metrics()
    assert sorted(asked.values()) == sorted((*COUNTERS, *STALLS))
    stall = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
    assert asked[stall] == "barrier"
