"""The numbers with which blocks of `wgmma` find their work, followed as the kernel follows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.device import find
from autotune.families.config import Config
from autotune.families.plan import Argument, Struct
from autotune.families.shared.arguments import magic
from autotune.families.wgmma import WGMMA
from autotune.families.wgmma.k_sharing import SLOWEST
from autotune.families.wgmma.launches import schedule_struct
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
from autotune.problem.integers import ceil_div

CONFIG = Config.parse(
    "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=1x1,split_k=1,reduction=none,workers=0,"
    "store=staged,stages=3,group=1"
)
LARGEST = 2**31 - 1


def params(**values: int | str) -> WgmmaParams:
    """`CONFIG` with the named values replaced, decoded."""
    assert values.keys() <= CONFIG.values.keys()
    decoded = WGMMA.decode(Config.of("wgmma", {**CONFIG.values, **values}))
    assert isinstance(decoded, WgmmaParams)
    return decoded


class Divisor(NamedTuple):
    """As in common/divisor.cuh."""

    value: int
    magic: int

    def divide(self, x: int) -> int:
        return (2 * x * (self.magic & 0xFFFFFFFF) >> 32) >> (self.magic >> 32)


class Schedule:
    """The numbers that a kernel gets."""

    def __init__(self, p: WgmmaParams, problem: Problem) -> None:
        value = schedule_struct(p, problem, 0).value
        assert isinstance(value, Struct)
        self._members = {name: _number(member) for name, member in value.members}

    def __getattr__(self, name: str) -> Any:
        return self._members[name]


def _number(argument: Argument) -> object:
    value = argument.value
    if isinstance(value, Struct):
        return Divisor(*(cell.value for cell in argument.cells))  # type: ignore[arg-type]
    return value


def edges(divisor: int) -> NDArray[np.uint64]:
    """Dividends of 0 to 2^31 - 1 around the ends, powers of 2 and multiples of the divisor."""
    last = LARGEST // divisor
    multiples = [0, 1, 2, 3, last // 3, last // 2, last - 1, last]
    near = [divisor * multiple for multiple in multiples] + [1 << i for i in range(32)]
    dividends = np.array(near, dtype=np.int64)[:, None] + np.arange(-2, 3)
    return np.unique(dividends.clip(0, LARGEST)).astype(np.uint64)


def check_division(divisor: int) -> None:
    factor, x = magic(divisor), edges(divisor)
    multiplier, shift = factor & 0xFFFFFFFF, factor >> 32
    assert factor < 2**63
    assert shift < 32
    # `__umulhi` is the upper half of a 64-bit product.
    quotients = (np.uint64(2) * x * np.uint64(multiplier) >> np.uint64(32)) >> np.uint64(shift)
    assert (quotients == x // np.uint64(divisor)).all(), divisor


def test_division_is_exact_for_small_divisors() -> None:
    for divisor in range(1, 3001):
        check_division(divisor)


def test_division_is_exact_for_large_divisors() -> None:
    powers = {(1 << i) + offset for i in range(11, 32) for offset in (-3, -2, -1, 0, 1, 2, 3)}
    primes = {65521, 1000003, 16777259, 1000000007, 2147483629}
    for divisor in sorted(powers | primes):
        if divisor <= LARGEST:
            check_division(divisor)


def test_division_is_exact_for_all_small_dividends() -> None:
    dividends = np.arange(5000, dtype=np.uint64)
    for divisor in range(1, 200):
        factor = magic(divisor)
        product = np.uint64(2) * dividends * np.uint64(factor & 0xFFFFFFFF)
        quotients = (product >> np.uint64(32)) >> np.uint64(factor >> 32)
        assert (quotients == dividends // np.uint64(divisor)).all(), divisor


def test_factor_holds_the_multiplier_and_the_shift() -> None:
    assert magic(1) == 2**31
    assert magic(2) == 2**31 + (1 << 32)
    # ceil(2^33 / 3) with 3 <= 2^2, ceil(2^34 / 5) with 5 <= 2^3.
    assert magic(3) == 2863311531 + (2 << 32)
    assert magic(5) == 3435973837 + (3 << 32)
    # 2^62 = (2^31 - 1) (2^31 + 1) + 1
    assert magic(LARGEST) == 2**31 + 2 + (31 << 32)


def located(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Row and column of every tile in turn, as `Tiles::locate` in hopper/shape.cuh finds them."""
    for tile in range(schedule.tiles.value):
        group = schedule.group_tiles.divide(tile)
        within = tile - group * schedule.group_tiles.value
        first = group * schedule.group.value
        last = first + schedule.group.value > schedule.rows
        height = schedule.last_group if last else schedule.group
        column = height.divide(within)
        yield first + within - column * height.value, column


@pytest.mark.parametrize(
    ("cluster", "swap", "clusters"),
    [("1x1", 0, (11, 7)), ("2x1", 0, (6, 7)), ("1x2", 0, (11, 4)), ("2x4", 0, (6, 2))],
)
@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
def test_groups_hold_every_tile_once(
    cluster: str, swap: int, clusters: tuple[int, int], group: int
) -> None:
    p = params(cluster=cluster, swap=swap, group=group)
    found = Schedule(p, Problem(128 * 11, 256 * 7, 4096, "bf16"))
    rows, columns = clusters
    assert (found.rows, found.columns, found.tiles.value) == (rows, columns, rows * columns)
    tiles = list(located(found))
    assert sorted(tiles) == [(row, column) for row in range(rows) for column in range(columns)]
    # A group is done before the next, and in it a column before the next.
    assert tiles == sorted(tiles, key=lambda tile: (tile[0] // group, tile[1], tile[0]))


@pytest.mark.parametrize(
    ("cluster", "clusters"), [("1x1", (7, 11)), ("2x1", (7, 6)), ("1x2", (4, 11))]
)
def test_transposed_groups_run_over_rows_of_c(cluster: str, clusters: tuple[int, int]) -> None:
    # The kernel's M runs over the columns of C.
    p = params(cluster=cluster, swap=1, bm=256, bn=128, group=4)
    found = Schedule(p, Problem(256 * 7, 128 * 11, 4096, "bf16"))
    assert (found.rows, found.columns) == clusters
    assert sorted(located(found)) == sorted(np.ndindex(clusters))


@pytest.mark.parametrize(("group", "rows", "last"), [(1, 1, 1), (4, 4, 3), (8, 8, 3), (16, 11, 11)])
def test_group_is_no_higher_than_the_matrix(group: int, rows: int, last: int) -> None:
    found = Schedule(params(group=group), Problem(128 * 11, 256 * 7, 4096, "bf16"))
    assert found.group == (rows, magic(rows))
    assert found.group_tiles == (rows * 7, magic(rows * 7))
    assert found.last_group == (last, magic(last))


@pytest.mark.parametrize(
    ("cluster", "split_k"),
    [*(("1x1", split_k) for split_k in (1, 2, 3, 5, 12, 64)), ("1x1x4", 12), ("2x1x2", 6)],
)
@pytest.mark.parametrize("k", [4096, 4100, 5000, 8192 + 64])
def test_parts_of_k_follow_each_other_and_end_at_k(cluster: str, split_k: int, k: int) -> None:
    p = params(cluster=cluster, split_k=split_k)
    found = Schedule(p, Problem(512, 512, k, "bf16"))
    assert found.steps == ceil_div(k, 64)
    assert found.shares.value * p.shape.k == split_k
    starts = [
        part * found.part_steps + min(part, found.longer_parts) for part in range(split_k + 1)
    ]
    assert (starts[0], starts[-1]) == (0, found.steps)
    lengths = {end - begin for begin, end in pairwise(starts)}
    assert lengths <= {found.part_steps, found.part_steps + 1}
    assert min(lengths) > 0


@pytest.mark.parametrize("batch", [1, 3, 65535])
def test_workers_find_matrix_share_and_tile(batch: int) -> None:
    p = params(split_k=3, reduction="fused", workers=132)
    problem = Problem(1000, 1000, 4096, "bf16", batch=batch)
    found = Schedule(p, problem)
    tiles, shares = found.tiles.value, found.shares.value
    assert (tiles, shares, found.batch) == (32, 3, batch)
    units = tiles * shares * batch
    assert units == p.units(problem)
    for unit in {0, 31, 32, 95, 96, units // 2, units - 33, units - 1} & set(range(units)):
        line = found.tiles.divide(unit)
        matrix = found.shares.divide(line)
        assert (line, matrix) == (unit // tiles, unit // (tiles * shares))


# The rough estimate of cycles that leaves out hopeless tiles of `wgmma`


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
