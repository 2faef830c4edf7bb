"""Sample records, fixed and random."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files.decoding import visible
from autotune.measure.measurement import Evidence, Measurement
from autotune.problem import COMPUTES, ELEMENTWISE, LARGEST_BATCH, LAYOUTS, Problem
from autotune.records import Entry, Provenance, Record

# As the driver (CUDA 13.0) describes an H100; the peak is 132 SMs x 128 lanes x 2 x 1.98 GHz.
H100 = Device(
    name="NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    sms=132,
    warp_size=32,
    registers_per_block=65536,
    registers_per_sm=65536,
    shared_per_block=49152,
    shared_per_block_optin=232448,
    shared_per_sm=233472,
    reserved_shared_per_block=1024,
    threads_per_block=1024,
    threads_per_sm=2048,
    blocks_per_sm=32,
    l2_bytes=52428800,
    memory_bytes=85 * 10**9,
    sm_clock=1_980_000_000,
    memory_clock=2_619_000_000,
    memory_bandwidth=3.352e12,
    peak_fp32=66.9e12,
)


SQUARE = Problem(4096, 4096, 4096)


def entry(width: int, time_us: float, spread_us: float = 0.0) -> Entry:
    """A configuration of the square tiled kernel with a time."""
    return Entry(
        config=Config("tiled", (("tile_width", width),)),
        measurement=Measurement(time_us, spread_us, samples=20, error=1e-4, tolerance=1e-3),
        resources=Resources(threads=min(width**2, 1024), registers=32, shared=8 * width**2),
        occupancy=0.75,
        limiter="threads",
    )


def record(
    *entries: Entry,
    problem: Problem = SQUARE,
    device: Device = H100,
    evidence: Evidence = "measured",
    source: str = "5e1f",
    baseline_us: float | None = None,
) -> Record:
    """A record of the entries, by default of a single one."""
    baseline = None if baseline_us is None else Measurement(baseline_us)
    provenance = Provenance(
        "13.0", "NVRTC 13.0", source, "0.1.0", "2026-11-21T12:00:00Z", 1, 9, 6.5
    )
    return Record(device, evidence, entries or (entry(16, 900.0),), baseline, provenance, problem)


_words = st.text("abc_", min_size=1, max_size=4)


_times = st.floats(min_value=1e-3, max_value=1e9)


_counts = st.integers(min_value=0, max_value=2**31)


_measurements = st.builds(
    Measurement,
    time_us=_times,
    spread_us=_times,
    samples=_counts,
    cold_us=st.none() | _times,
    error=st.none() | st.floats(min_value=0, max_value=1),
    tolerance=st.none() | st.floats(min_value=1, max_value=1e9),
)


_values = st.integers(-(10**15) + 1, 10**15 - 1) | _words


_configs = st.builds(Config.of, _words, st.dictionaries(_words, _values, max_size=4))


_entries = st.builds(
    Entry,
    config=_configs,
    measurement=_measurements,
    resources=st.builds(
        Resources,
        threads=st.integers(1, 1024),
        registers=st.integers(0, 255),
        shared=st.integers(0, 2**20),
        local=st.integers(0, 2**20),
        barriers=st.integers(0, 16),
    ),
    occupancy=st.floats(min_value=0, max_value=1),
    limiter=st.text(max_size=20).map(visible),
)


_sizes = st.integers(min_value=1, max_value=2**31 - 1)


def records() -> st.SearchStrategy[Record]:
    """Any record."""
    texts = st.text(max_size=20).map(visible)
    return st.builds(
        Record,
        problem=st.builds(
            Problem,
            *(_sizes, _sizes, _sizes),
            st.sampled_from(COMPUTES),
            st.sampled_from(LAYOUTS),
            st.integers(1, LARGEST_BATCH),
            st.sampled_from(ELEMENTWISE),
        ),
        device=st.sampled_from((H100, replace(H100, name="É" * 50 + "1", granularity=1))),
        evidence=st.sampled_from(("measured", "replayed", "predicted")),
        entries=st.lists(
            _entries, min_size=1, max_size=3, unique_by=lambda entry: entry.config
        ).map(tuple),
        baseline=st.none() | _measurements,
        provenance=st.builds(
            Provenance,
            *[texts] * 4,
            date=st.datetimes().map(lambda date: f"{date.isoformat()}Z"),
            seed=_counts,
            trials=_counts,
            seconds=_times,
        ),
    )
