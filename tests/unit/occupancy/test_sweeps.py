"""The best block sizes, and what a block may take for a number of blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.device import SMS, SmLimits, catalogue, find
from autotune.errors import UsageError
from autotune.occupancy import BlockDemand, best_block_sizes, block_sizes, headroom

H100 = find("h100")
CARDS: dict[str, SmLimits] = {
    **{sm.name: sm for sm in SMS.values()},
    "textbook-d": find("textbook-d"),
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


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_headroom_is_used_up_by_one_more(card: str, threads: int) -> None:
    device, demand = CARDS[card], BlockDemand(threads)
    most = demand.on(device).blocks_per_sm
    for blocks in range(1, most + 1):
        room = headroom(device, demand, blocks)
        full = BlockDemand(threads, room.registers, room.shared)
        assert full.on(device).blocks_per_sm >= blocks
        more = replace(full, registers=room.registers + 1).on(device)
        assert more.blocks_per_sm < blocks or room.registers == 255
        assert replace(full, shared=room.shared + 1).on(device).blocks_per_sm < blocks
        assert room.occupancy == pytest.approx(blocks / most * demand.on(device).occupancy)


def test_impossible_number_of_blocks_names_the_limit() -> None:
    room = headroom(H100, BlockDemand(1024), 3)

    assert (room.registers, room.shared, room.limiter) == (0, 0, "warps")


def test_less_than_one_block_is_refused() -> None:
    with pytest.raises(UsageError, match="0 blocks an SM; give 1 or more"):
        headroom(H100, BlockDemand(256), 0)


def test_text_device_d_keeps_three_blocks_at_ten_registers() -> None:
    assert headroom(find("textbook-d"), BlockDemand(512), 3).registers == 10


def test_carve_out_shrinks_the_headroom() -> None:
    whole = headroom(H100, BlockDemand(256), 4)
    quarter = headroom(H100, BlockDemand(256, carve_out=25), 4)

    assert quarter.shared < whole.shared


def test_every_card_of_the_catalogue_has_an_occupancy() -> None:
    resident = {key: BlockDemand(256, 32, 1024).on(card) for key, card in catalogue().items()}

    assert {key: o.limiter for key, o in resident.items() if o.blocks_per_sm < 2} == {}
