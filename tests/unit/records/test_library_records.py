"""Algorithms of cuBLASLt in records: versions, merging, stamping."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fake_runner import tiled
from support.sample_records import entry, record

from autotune.families.config import Config
from autotune.families.cublaslt import config_of
from autotune.families.plan import OWN, OWN_RESOURCES, Algorithm
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Origin
from autotune.records import Entry, codec
from autotune.records.inventory import restamped
from autotune.records.merging import KEPT, merge, reconcile, stale
from autotune.tuning.retiming import best_first


def algorithm(split_k: int) -> Config:
    return config_of(Algorithm(66, 20, split_k, 1, 0, 0, 35, 0, 5), 4096)


def of_library(time_us: float, split_k: int = 2) -> Entry:
    return Entry(algorithm(split_k), Measurement(time_us, 0.1, 20), OWN_RESOURCES, 0.0, OWN)


def of_kernel(time_us: float, width: int = 16) -> Entry:
    return replace(entry(width, time_us), config=tiled(width))


def today(version: str, kernels: str = "5e1f") -> Origin:
    source = f"cublaslt:{version} tiled:{kernels}" if version else f"naive:0 tiled:{kernels}"
    return Origin("13.0", "NVRTC 13.0", source)


MIXED = record(of_library(700.0), of_kernel(900.0), source="cublaslt:13.0.0 tiled:5e1f")


def test_record_survives_its_file() -> None:
    assert codec.loads(codec.dumps(MIXED)) == MIXED


def test_best_kernel_is_timed_again_with_the_best_algorithm() -> None:
    algorithms = of_library(700.0), of_library(710.0, split_k=3)
    made = record(*algorithms, of_kernel(900.0), source=MIXED.provenance.source)
    assert best_first(made)[:2] == [algorithm(2), of_kernel(900.0).config]


def test_text_tells_how_the_best_kernel_compares() -> None:
    lines = str(MIXED).split("\n")
    assert lines[1] == str(algorithm(2))
    assert "cuBLASLt 13.0.0: 700.00 us; the best kernel is 0.778 times as fast" in lines
    assert not any(line.startswith("occupancy") for line in lines)


def test_best_algorithm_stays_among_ten_faster_kernels() -> None:
    kernels = [of_kernel(100.0 + width, width) for width in range(4, 20)]
    merged = merge(
        None, replace(MIXED, entries=(*kernels, of_library(700.0), of_library(710.0, 3)))
    )
    assert len(merged.entries) == KEPT
    assert [each.config for each in merged.entries if each.library] == [algorithm(2)]


def test_new_version_drops_the_algorithms_of_the_old() -> None:
    new = record(of_kernel(800.0, 32), source="cublaslt:13.1.0 tiled:5e1f")
    merged = merge(MIXED, new)
    assert [each.config for each in merged.entries] == [tiled(32), tiled(16)]


def test_stores_of_two_versions_agree_on_this_machines() -> None:
    other = record(of_library(650.0), of_kernel(880.0), source="cublaslt:13.1.0 tiled:5e1f")
    for pair in ((MIXED, other), (other, MIXED)):
        merged = reconcile(*pair, today("13.0.0"))
        assert merged.library is not None
        assert (merged.library_version, merged.library.measurement.time_us) == ("13.0.0", 700.0)


@pytest.mark.parametrize(
    ("version", "why"), [("13.0.0", None), ("", None), ("13.1.0", "cuBLASLt 13.0.0, now 13.1.0")]
)
def test_only_another_version_makes_the_winner_stale(version: str, why: str | None) -> None:
    assert stale(MIXED, today(version)) == why


def test_kernel_that_won_is_not_stale_with_another_version() -> None:
    won = replace(MIXED, entries=(of_kernel(600.0), of_library(700.0)))
    assert stale(won, today("13.1.0")) is None


def test_same_code_is_stamped_with_the_algorithm() -> None:
    stamped = restamped(MIXED, today("13.0.0", "beef"), lambda _: True)
    assert stamped is not None
    assert stamped.entries == MIXED.entries
    assert stamped.provenance.source == "cublaslt:13.0.0 tiled:beef"


def test_machine_without_the_library_stamps_kernels() -> None:
    stamped = restamped(MIXED, today("", "beef"), lambda each: not each.library)
    assert stamped is not None
    assert stamped.provenance.source == "cublaslt:13.0.0 tiled:beef"


def test_winner_of_another_version_is_not_stamped() -> None:
    assert restamped(MIXED, today("13.1.0", "beef"), lambda each: not each.library) is None
