from __future__ import annotations

import ctypes
import random
import time
import timeit
from dataclasses import replace

import pytest
from support import nvidia_occupancy
from support.nvidia_occupancy import DEVICES, Kernel, differing, evaluate, random_kernels

from autotune.device import SMS, SmLimits, catalogue, find
from autotune.errors import DeviceError, UsageError
from autotune.occupancy import (
    ARCHITECTURES,
    BlockDemand,
    LimitTables,
    Occupancy,
    best_block_sizes,
    block_sizes,
    limit_tables,
    most_registers,
    most_shared,
    occupancy,
)
from autotune.problem.integers import ceil_div

H100 = find("h100")
TEXTBOOK = find("textbook-d")
CASES_PER_DEVICE = 12_000  # 108,000 on the nine capabilities that have to agree


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """NVIDIA's cuda_occupancy.h as a shared library."""
    return nvidia_occupancy.compiled(tmp_path_factory.mktemp("oracle"))


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=lambda pair: f"{pair[0]}.{pair[1]}")
def test_every_limit_equals_nvidias_calculator(
    oracle: ctypes.CDLL, capability: tuple[int, int]
) -> None:
    device = DEVICES[capability]
    kernels = list(random_kernels(device, CASES_PER_DEVICE))

    assert differing(oracle, device, kernels)[:5] == []


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=lambda pair: f"{pair[0]}.{pair[1]}")
def test_every_block_size_equals_nvidias_calculator(
    oracle: ctypes.CDLL, capability: tuple[int, int]
) -> None:
    device = DEVICES[capability]
    kernels: list[Kernel] = [
        (threads, registers, 0, 1, None)
        for threads in (*range(1, 1026), 1536, 2048)
        for registers in (0, 1, 40, 255)
    ]

    assert differing(oracle, device, kernels)[:5] == []


@pytest.mark.parametrize("limit", ["warps", "blocks", "registers", "shared memory", "barriers"])
def test_random_cases_hit_every_limit_often(limit: str) -> None:
    kernels = list(random_kernels(H100, CASES_PER_DEVICE))

    assert sum(evaluate(H100, kernel).limiters == (limit,) for kernel in kernels) >= 50


def test_ten_thousand_evaluations_take_under_200_ms() -> None:
    kernels = list(random_kernels(H100, 10_000))

    seconds = min(
        timeit.repeat(
            lambda: [evaluate(H100, k) for k in kernels],
            number=1,
            repeat=5,
            timer=time.process_time,
        )
    )

    assert seconds < 0.2


def test_limiters_are_all_binding_limits() -> None:
    o = occupancy(H100, threads=256, registers=64, shared=57344)

    assert (
        o.blocks_per_sm,
        o.warps_per_sm,
        o.occupancy,
        o.limiters,
    ) == (
        4,
        32,
        0.5,
        ("registers", "shared memory"),
    )


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [
        (1025, 32, 0, "warps"),
        (1024, 65, 0, "registers"),
        (32, 257, 0, "registers"),
        (32, 32, 232449, "shared memory"),
    ],
)
def test_block_that_cannot_run_names_the_limit(
    threads: int, registers: int, shared: int, limiter: str
) -> None:
    resident = occupancy(H100, threads=threads, registers=registers, shared=shared)

    assert (resident.blocks_per_sm, resident.limiters) == (0, (limiter,))


def test_largest_opt_in_block_runs_once() -> None:
    assert occupancy(H100, threads=128, registers=32, shared=232448).blocks_per_sm == 1


def test_inapplicable_limits_are_left_out() -> None:
    resident = occupancy(find("v100"), threads=128, registers=0, shared=0)

    assert resident.limits == {"warps": 16, "blocks": 32}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "barriers"),
    [(0, 32, 0, 1), (-32, 32, 0, 1), (32, -1, 0, 1), (32, 32, -1, 1), (32, 32, 0, -1)],
)
def test_impossible_amounts_are_a_usage_error(
    threads: int, registers: int, shared: int, barriers: int
) -> None:
    with pytest.raises(UsageError, match=f"{threads} threads a block, {registers} registers"):
        evaluate(H100, (threads, registers, shared, barriers, None))


@pytest.mark.parametrize("carve_out", [-1, 101])
def test_impossible_carve_out_is_a_usage_error(carve_out: int) -> None:
    with pytest.raises(UsageError, match=f"the carve-out is {carve_out}; give 0 to 100"):
        evaluate(H100, (32, 32, 0, 1, carve_out))


def test_unknown_compute_capability_names_the_supported() -> None:
    future = replace(H100, compute_capability=(99, 0))

    with pytest.raises(DeviceError, match=r"compute capability 99\.0; take .* 9\.0"):
        occupancy(future, threads=32, registers=32, shared=0)


# Clusters.

FULL_SM = {"threads": 384, "registers": 168, "shared": 200_000}
"""A block that fills an SM."""
CARD = replace(H100, clusters=(66, 32, 15))


@pytest.mark.parametrize(
    ("size", "clusters", "idle", "limiters"),
    [
        (1, None, 0, ("registers", "shared memory")),
        (2, 66, 0, ("registers", "shared memory")),
        (4, 32, 4, ("registers", "shared memory", "clusters")),
        (8, 15, 12, ("registers", "shared memory", "clusters")),
    ],
)
def test_clusters_are_counted_on_the_whole_device(
    size: int, clusters: int | None, idle: int, limiters: tuple[str, ...]
) -> None:
    o = occupancy(CARD, **FULL_SM, cluster=size)

    assert (o.cluster, o.clusters, o.idle_sms, o.limiters) == (size, clusters, idle, limiters)
    assert (o.blocks_per_sm, o.warps_per_sm) == (1, 12)


def test_kernel_that_cannot_run_has_no_clusters() -> None:
    o = occupancy(CARD, threads=32, registers=32, shared=232449, cluster=2)

    assert (o.blocks_per_sm, o.clusters, o.limiters) == (0, 0, ("shared memory",))


def test_device_without_clusters_names_them() -> None:
    o = occupancy(find("a100"), threads=256, registers=32, shared=0, cluster=2)

    assert (o.blocks_per_sm, o.occupancy, o.clusters, o.limiters) == (0, 0.0, 0, ("clusters",))


def test_other_sizes_of_a_cluster_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="a cluster of 3 blocks; give 1, 2, 4 or 8"):
        occupancy(CARD, **FULL_SM, cluster=3)


# Examples of the source texts (Kirk and Hwu, Programming Massively Parallel Processors).


def test_text_device_d_allows_ten_registers_a_thread() -> None:
    ten = occupancy(TEXTBOOK, threads=512, registers=10, shared=0)

    assert (ten.blocks_per_sm * 512, ten.occupancy) == (1536, 1.0)


def test_text_device_d_loses_a_block_at_eleven_registers() -> None:
    eleven = occupancy(TEXTBOOK, threads=512, registers=11, shared=0)

    assert (eleven.blocks_per_sm * 512, eleven.limiters) == (1024, ("registers",))


def test_text_device_d_tile_width_16_is_bound_by_threads() -> None:
    resident = occupancy(TEXTBOOK, threads=16 * 16, registers=8, shared=2 * 16 * 16 * 4)

    assert (resident.limiters, resident.by_warps, resident.by_shared) == (("warps",), 6, 8)


def test_text_h100_has_112_shared_bytes_a_thread() -> None:
    """With 512-thread blocks and each block's reserved 1024 bytes; a square tile needs 8."""
    full = [
        bytes_a_thread
        for bytes_a_thread in range(200)
        if occupancy(H100, threads=512, registers=32, shared=512 * bytes_a_thread).occupancy == 1
    ]
    needed = 2 * 16 * 16 * 4 // (16 * 16)

    assert (max(full), needed) == (112, 8)


CARDS: dict[str, SmLimits] = {
    **{sm.name: sm for sm in SMS.values()},
    **{key: find(key) for key in ("textbook-d", "textbook-4.7", "textbook-4.9")},
}


def looked_up(tables: LimitTables, demand: BlockDemand) -> tuple[int, int, float, tuple[str, ...]]:
    """Blocks, warps, occupancy and limiters, from the tables alone."""
    row = ceil_div(demand.threads, tables.slot) - 1
    steps = tables.shared[
        tables.carve_outs[0 if demand.carve_out is None else demand.carve_out + 1]
    ]
    limits: dict[str, int | None] = {
        "warps": tables.warps[row],
        "blocks": tables.blocks,
        "registers": sum(demand.registers <= most for most in tables.registers[row]),
        "shared memory": sum(demand.shared <= most for most in steps),
        "barriers": tables.barriers[demand.barriers],
    }
    taken = {"registers": demand.registers, "shared memory": demand.shared}
    for name in tables.unlimited:
        if taken[name] == 0:
            limits[name] = None
    applying = {name: blocks for name, blocks in limits.items() if blocks is not None}
    blocks = min(applying.values())
    used = blocks * (row + 1)
    limiters = tuple(name for name, allowed in applying.items() if allowed == blocks)
    return blocks, tables.resident_warps[used], tables.shares[used], limiters


def exact(resident: Occupancy) -> tuple[int, int, float, tuple[str, ...]]:
    return (
        resident.blocks_per_sm,
        resident.warps_per_sm,
        resident.occupancy,
        resident.limiters,
    )


@pytest.mark.parametrize("card", CARDS)
def test_tables_give_the_occupancy(card: str) -> None:
    device = CARDS[card]
    tables, draw = limit_tables(device), random.Random(card)
    for _ in range(2000):
        demand = BlockDemand(
            draw.choice((draw.randint(1, 1024), 32 * draw.randint(1, 32))),
            draw.choice((draw.randint(0, 255), 8 * draw.randint(0, 31))),
            draw.choice(
                (0, draw.randint(0, device.shared_per_block_optin), 1024 * draw.randint(0, 9))
            ),
            draw.randint(0, 16),
            draw.choice((None, draw.randint(0, 100))),
        )
        assert looked_up(tables, demand) == exact(demand.on(device)), demand


def test_carve_outs_of_one_size_share_a_step_table() -> None:
    tables = limit_tables(find("h100"))

    # The SM's ten sizes, less 0 KiB: CUDA reserves 1 KiB for each block.
    assert len(tables.shared) == 9
    assert set(tables.carve_outs) == set(range(9))


SWEPT: dict[str, SmLimits] = {
    **{sm.name: sm for sm in SMS.values()},
    **{key: find(key) for key in ("textbook-d", "textbook-4.7", "textbook-4.9")},
}


def test_best_block_sizes_fill_the_sm() -> None:
    """32 blocks of 32 threads fill half an SM; 21 of 96 leave a warp free, 2 of 768 a fourth."""
    best = set(best_block_sizes(H100, BlockDemand(1, registers=32)))

    assert best >= {64, 128, 256, 512, 1024}
    assert best.isdisjoint({32, 96, 768})


def test_no_block_size_beats_the_best() -> None:
    demand = BlockDemand(1, registers=72, shared=20_000)
    best = best_block_sizes(H100, demand)
    shares = {n: replace(demand, threads=n).on(H100).occupancy for n in block_sizes(H100)}

    assert {n for n, share in shares.items() if share == max(shares.values())} == set(best)


def test_kernel_that_never_runs_has_no_best_block_size() -> None:
    assert best_block_sizes(H100, BlockDemand(1, registers=32, shared=10**6)) == ()


@pytest.mark.parametrize("card", SWEPT)
@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_most_amounts_are_used_up_by_one_more(card: str, threads: int) -> None:
    device, demand = SWEPT[card], BlockDemand(threads)
    for blocks in range(1, demand.on(device).blocks_per_sm + 1):
        registers, shared = (
            most_registers(device, threads, blocks),
            most_shared(device, None, blocks),
        )
        full = BlockDemand(threads, registers, shared)
        assert full.on(device).blocks_per_sm >= blocks
        more = replace(full, registers=registers + 1).on(device)
        assert more.blocks_per_sm < blocks or registers == 255
        assert replace(full, shared=shared + 1).on(device).blocks_per_sm < blocks


def test_text_device_d_keeps_three_blocks_at_ten_registers() -> None:
    assert most_registers(find("textbook-d"), 512, 3) == 10


def test_carve_out_shrinks_the_most_shared_memory() -> None:
    assert most_shared(H100, 25, 4) < most_shared(H100, None, 4)


def test_every_card_of_the_catalogue_has_an_occupancy() -> None:
    resident = {key: BlockDemand(256, 32, 1024).on(card) for key, card in catalogue().items()}

    assert {key: o.limiter for key, o in resident.items() if o.blocks_per_sm < 2} == {}
