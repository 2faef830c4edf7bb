from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, replace

import pytest
from rich.console import Console
from rich.table import Table

from autotune.device import find
from autotune.occupancy import BlockDemand
from autotune.report.occupancy import OccupancyRow, kernel_row, render, tile_width_rows

RTX_3090 = find("rtx 3090")
H100 = find("h100")
WIDTHS = (4, 8, 12, 16, 20, 24, 28, 32)


def printed(table: Table, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tile_width_row_has_resources_and_bound() -> None:
    (row,) = tile_width_rows(RTX_3090, {32: 40})

    assert (row.threads, row.shared, row.blocks_per_sm, row.limiter, row.flop_per_byte) == (
        1024,
        8192,
        1,
        "warps and registers",
        8,
    )


def test_text_32_is_the_widest_square_tile() -> None:
    rows = tile_width_rows(RTX_3090, dict.fromkeys(range(4, 40), 32))

    assert max(row.tile_width or 0 for row in rows if row.blocks_per_sm) == 32


def test_tile_too_wide_for_the_device_says_so() -> None:
    (row,) = tile_width_rows(RTX_3090, {33: 32})

    assert (row.limiter, row.bound_gflops) == (
        "does not fit: 1089 threads a block, at most 1024",
        None,
    )


def test_kernel_with_too_many_registers_says_so() -> None:
    row = kernel_row(RTX_3090, BlockDemand(1024, 128, 0))

    assert row.limiter == "does not fit: registers"


def test_rows_serialise_to_json() -> None:
    rows = tile_width_rows(RTX_3090, dict.fromkeys(WIDTHS, 32))

    assert [entry["tile_width"] for entry in json.loads(json.dumps([asdict(r) for r in rows]))] == [
        *WIDTHS
    ]


def test_table_shows_the_bound_and_its_share_of_the_peak() -> None:
    text = printed(render(tile_width_rows(RTX_3090, {32: 40})))

    assert "7,489.6   21%" in text


def test_table_of_one_kernel_shows_limits_and_no_tile() -> None:
    text = printed(render([kernel_row(RTX_3090, BlockDemand(256, 64, 8192))]))

    # A block has 8 KB and 1 KB that is reserved; an SM of 8.6 has 100 KB: 11 blocks.
    assert ("11 by shared memory" in text, "WIDTH" in text) == (True, False)


def test_clusters_have_columns_of_their_own() -> None:
    card = replace(H100, clusters=(66, 32, 15), clusters_expected=False)
    row = kernel_row(card, BlockDemand(384, 168, 200_000, cluster=8))
    alone = kernel_row(card, BlockDemand(384, 168, 200_000))

    assert (row.cluster, row.clusters, row.idle_sms, row.predicted) == (8, 15, 12, False)
    assert re.search(r" 15 +12 +registers and shared memory and clusters", printed(render([row])))
    assert "cluster" not in printed(render([alone]))


def test_clusters_of_an_unasked_driver_are_predicted() -> None:
    assert kernel_row(H100, BlockDemand(384, 168, 200_000, cluster=8)).predicted
    assert not kernel_row(H100, BlockDemand(384, 168, 200_000)).predicted


@pytest.mark.parametrize(
    "rows",
    [
        tile_width_rows(H100, dict.fromkeys(WIDTHS, 32)),
        (kernel_row(H100, BlockDemand(1024, 255, 232448)),),
        tile_width_rows(H100, dict.fromkeys(WIDTHS, 32), cluster=8),
        (kernel_row(H100, BlockDemand(384, 168, 232448, cluster=8)),),
    ],
)
def test_table_fits_a_terminal_of_80_columns(rows: tuple[OccupancyRow, ...]) -> None:
    text = printed(render(rows), width=80)

    assert "…" not in text
    assert "registers" in text
