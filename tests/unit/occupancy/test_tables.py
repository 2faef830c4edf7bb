"""The limits of an SM as tables: looking up and taking the least gives the occupancy."""

from __future__ import annotations

import random

import pytest

from autotune.device import SMS, SmLimits, find
from autotune.occupancy import BlockDemand, LimitTables, Occupancy, limit_tables
from autotune.problem.integers import ceil_div

CARDS: dict[str, SmLimits] = {
    **{sm.name: sm for sm in SMS.values()},
    "textbook-d": find("textbook-d"),
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

    assert len(tables.shared) == 10
    assert set(tables.carve_outs) == set(range(10))
