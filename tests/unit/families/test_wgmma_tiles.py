"""The rough estimate of cycles that leaves out hopeless tiles of `wgmma`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.device import find
from autotune.families.wgmma import WGMMA
from autotune.families.wgmma.k_sharing import SLOWEST
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.tiles import (
    CLUSTER_CYCLES,
    LAST_BLOCK_CYCLES,
    START_CYCLES,
    SplitTile,
    estimate,
)
from autotune.model import space
from autotune.problem import Problem

H100 = find("h100")


SQUARE = Problem(4096, 4096, 4096, "bf16")


DEEP = Problem(128, 256, 65536, "bf16")


def tile(cluster: str = "1x1", split_k: int = 1, bm: int = 128, bn: int = 256) -> SplitTile:
    return SplitTile(0, bm, bn, cluster, split_k)


def cycles(problem: Problem, chosen: SplitTile) -> float:
    return estimate(problem, H100).cycles(chosen)


def test_tensor_cores_or_l2_take_their_time() -> None:
    one = Problem(64, 64, 4096, "bf16")
    # 2048 multiply-adds a cycle (bf16) make 16 cycles; 384 elements of 2 bytes at 55 a cycle, 14.
    assert cycles(one, tile()) == START_CYCLES + 4096 * 16
    # 64 x 64 take 2 cycles, but 128 elements 4.7.
    small = cycles(one, tile(bm=64, bn=64))
    assert small == pytest.approx(START_CYCLES + 4096 * 256 / 55)
    # Three products at half the rate.
    near = replace(one, compute="tf32x3")
    assert cycles(near, tile()) == pytest.approx(START_CYCLES + 4096 * 6 * 16)


def test_l2_serves_the_loads_that_a_cluster_leaves() -> None:
    one = Problem(64, 64, 4096, "bf16")
    loaded = estimate(one, H100).cycles(tile(bm=64, bn=64), loaded=0.75)
    assert loaded == pytest.approx(START_CYCLES + 4096 * 0.75 * 256 / 55)


def test_waves_of_tiles_take_one_after_the_other() -> None:
    # 512 tiles for 132 SMs.
    assert cycles(SQUARE, tile()) == START_CYCLES + 4 * 4096 * 16
    # 256 clusters of 2, of which 66 run at a time.
    assert cycles(SQUARE, tile("2x1")) == START_CYCLES + 4 * 4096 * 16


def test_wave_that_clusters_do_not_fill_counts_whole() -> None:
    # 128 tiles are a wave of blocks; 30 clusters of 4 of an H200 are not the 32 needed.
    problem, h200 = Problem(1024, 4096, 4096, "bf16"), find("h200")
    assert estimate(problem, h200).cycles(tile()) == START_CYCLES + 4096 * 16
    assert estimate(problem, h200).cycles(tile("2x2")) == START_CYCLES + 2 * 4096 * 16


def test_splits_of_a_long_k_beat_few_whole_tiles() -> None:
    # One tile of 128 x 256: 65536 steps on one SM, or 2048 on each of 32.
    whole, split = cycles(DEEP, tile()), cycles(DEEP, tile(split_k=32))
    gathered = 4 * 32 * 128 * 256 / 32
    assert whole == START_CYCLES + 65536 * 16
    assert split == START_CYCLES + 2048 * 16 + LAST_BLOCK_CYCLES + gathered
    assert split < whole / 5
    # The blocks of a cluster share the reading of the sums of 4 clusters.
    inside = cycles(DEEP, tile("1x1x8", split_k=32))
    assert inside == START_CYCLES + 2048 * 16 + CLUSTER_CYCLES + LAST_BLOCK_CYCLES + gathered / 64
    assert cycles(DEEP, tile("1x1x8", split_k=8)) == START_CYCLES + 8192 * 16 + CLUSTER_CYCLES


@pytest.mark.parametrize("k", [64, 256])
def test_splits_of_a_short_k_lose_to_whole_tiles(k: int) -> None:
    problem = replace(DEEP, k=k)
    assert all(cycles(problem, tile()) < cycles(problem, tile(split_k=s)) for s in (2, 4))


def test_splits_have_whole_lines_of_k() -> None:
    # 65 lines in 2 splits: 33 lines of 64 steps.
    expected = START_CYCLES + 33 * 64 * 16 + CLUSTER_CYCLES
    assert cycles(replace(DEEP, k=4100), tile("1x1x2", split_k=2)) == expected


@pytest.mark.parametrize(
    "problem",
    [
        *(SQUARE, DEEP, Problem(8, 4096, 4096, "f16"), Problem(300, 200, 1000, "tf32", "tn")),
        Problem(64, 64, 65536, "tf32x3", "tt"),
    ],
    ids=str,
)
def test_legal_configurations_are_near_the_least_time(problem: Problem) -> None:
    rough = estimate(problem, H100)
    configs = space.feasible(problem, H100, "wgmma").configs
    decoded = [WGMMA.decode(config) for config in configs]
    factors = {rough.cycles(p) / rough.least for p in decoded if isinstance(p, WgmmaParams)}
    assert min(factors) <= 1.05
    assert max(factors) <= SLOWEST


def test_long_k_of_few_tiles_is_always_split() -> None:
    configs = space.feasible(DEEP, H100, "wgmma").configs
    assert min(config.integer("split_k") for config in configs) > 1


def test_many_tiles_split_no_k() -> None:
    configs = space.feasible(SQUARE, H100, "wgmma").configs
    assert {config.values["split_k"] for config in configs} == {1}
