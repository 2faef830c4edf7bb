"""Exercises and examples of Hwu, Kirk and El Hajj, Programming Massively Parallel Processors.

Answers are known ones, worked out by hand; `docs/pmpp.md` has the same figures.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.paths import ROOT

from autotune.device import Device, catalogue, find, same_architecture
from autotune.families.ladder import RUNGS
from autotune.occupancy import occupancy
from autotune.report.device import render_catalogue
from autotune.roofline import attainable, bandwidth_bound, intensity

PAGE = (ROOT / "docs" / "pmpp.md").read_text("utf-8")
TEXTBOOK = {key: card for key, card in catalogue().items() if card.granularity is not None}
A100, H100, V100 = find("a100-40"), find("h100"), find("v100")
BOUND = "Bound by memory or by arithmetic"

# Exercise, device, threads a block, registers a thread, bytes of shared memory a block; then
# resident blocks, occupancy in per cent and what limits it. 0 registers are left out of account.
OCCUPANCY = [
    ("4.6 a", "textbook-4.6", 128, 0, 0, 4, 100 / 3, "blocks"),
    ("4.6 b", "textbook-4.6", 256, 0, 0, 4, 200 / 3, "blocks"),
    ("4.6 c", "textbook-4.6", 512, 0, 0, 3, 100, "warps"),
    ("4.6 d", "textbook-4.6", 1024, 0, 0, 1, 200 / 3, "warps"),
    ("4.7 a", "textbook-4.7", 128, 0, 0, 16, 100, "warps"),
    ("4.7 b, e", "textbook-4.7", 64, 0, 0, 32, 100, "warps"),
    ("4.7 c, d", "textbook-4.7", 32, 0, 0, 64, 100, "warps and blocks"),
    ("4.8 a", "textbook-4.8", 128, 30, 0, 16, 100, "warps"),
    ("4.8 b", "textbook-4.8", 32, 29, 0, 32, 50, "blocks"),
    ("4.8 c", "textbook-4.8", 256, 34, 0, 7, 87.5, "registers"),
    ("4.9", "textbook-4.9", 1024, 0, 0, 0, 0, "warps"),
    ("5.12 a", "pmpp-5.12", 64, 27, 4096, 24, 75, "shared memory"),
    ("5.12 b", "pmpp-5.12", 256, 31, 8192, 8, 100, "warps and registers"),
    ("text of 4.7", "a100, h100", 32, 0, 0, 32, 50, "blocks"),
    ("text of 4.7", "a100, h100", 768, 0, 0, 2, 75, "warps"),
    ("text of 4.7", "a100, h100", 512, 31, 0, 4, 100, "warps and registers"),
    ("text of 4.7", "a100, h100", 512, 33, 0, 3, 75, "registers"),
    ("text of 4.7", "a100, h100", 256, 64, 0, 4, 50, "registers"),
    ("edition 5, 15.7", "h100", 256, 255, 0, 1, 12.5, "registers"),
]


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the page, without backquotes."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"^\|(.*)\|$", section, flags=re.M)[2:]
    return [[cell.replace("`", "").strip() for cell in line.split("|")] for line in lines]


@pytest.mark.parametrize("exercise", OCCUPANCY, ids=lambda row: f"{row[0]} {row[2]} {row[3]}")
def test_occupancy_is_the_answer(
    exercise: tuple[str, str, int, int, int, int, float, str],
) -> None:
    _, names, threads, registers, shared, blocks, percent, limit = exercise
    for name in names.split(", "):
        o = occupancy(find(name), threads=threads, registers=registers, shared=shared)
        assert (o.blocks_per_sm, " and ".join(o.limiters)) == (blocks, limit)
        assert 100 * o.occupancy == pytest.approx(percent)


def test_page_has_the_exercises_with_their_answers() -> None:
    assert rows("Occupancy") == [
        [
            *(exercise, names, str(threads), str(registers or ""), str(shared or "")),
            *(str(blocks), f"{percent:.3g} %", limit if blocks else "does not fit"),
        ]
        for exercise, names, threads, registers, shared, blocks, percent, limit in OCCUPANCY
    ]


@pytest.mark.parametrize(
    ("threads", "blocks", "percent"),
    [(128, 8, 50), (64, 16, 50), (32, 32, 50), (32, 64, 100), (64, 32, 100)],
)
def test_exercise_4_7_takes_the_blocks(threads: int, blocks: int, percent: float) -> None:
    o = occupancy(TEXTBOOK["textbook-4.7"], threads=threads, registers=0, shared=0)
    assert blocks <= o.blocks_per_sm
    assert 100 * o.occupancy * blocks / o.blocks_per_sm == percent


def book(card: Device) -> Device:
    """The card by the book's arithmetic: no units, and nothing reserved."""
    return replace(card, granularity=32, reserved_shared_per_block=0)


@pytest.mark.parametrize(
    ("card", "registers", "shared", "by_division", "on_the_card"),
    [
        (V100, 34, 0, (7, 0.875), (6, 0.75)),
        (V100, 40, 0, (6, 0.75), (6, 0.75)),
        (H100, 0, 38 * 1024, (6, 0.75), (5, 0.625)),
        (A100, 0, 32 * 1024, (5, 0.625), (4, 0.5)),
    ],
    ids=lambda value: str(getattr(value, "slug", value)),
)
def test_card_allocates_more_than_the_book_divides(
    card: Device,
    registers: int,
    shared: int,
    by_division: tuple[int, float],
    on_the_card: tuple[int, float],
) -> None:
    answers = [
        occupancy(device, threads=256, registers=registers, shared=shared)
        for device in (book(card), card)
    ]
    assert [(o.blocks_per_sm, o.occupancy) for o in answers] == [by_division, on_the_card]


def test_page_has_what_the_cards_hold() -> None:
    for _, kernel, _, answer, _ in rows("Where a card differs")[:3]:
        card, blocks, percent = re.findall(r"(\w+): (\d) blocks, ([\d.]+) %", answer)[0]
        amount = int(re.findall(r"256 threads, (\d+)", kernel)[0])
        taken = {"registers": 0, "shared": 1024 * amount}
        if kernel.endswith("registers"):
            taken = {"registers": amount, "shared": 0}
        o = occupancy(find(card), threads=256, **taken)
        assert (str(o.blocks_per_sm), f"{100 * o.occupancy:g}") == (blocks, percent), kernel


def test_edition_4_counts_parts_of_blocks() -> None:
    """164 KB / 132 bytes a thread, of which 4 belong to what CUDA reserves."""
    bytes_a_thread = (32 * 1024 + A100.reserved_shared_per_block) // 256
    threads = A100.shared_per_sm // bytes_a_thread
    assert (bytes_a_thread, threads, int(100 * threads / 2048)) == (132, 1272, 62)
    assert 4 < threads / 256 < 5


def test_edition_5_has_114_shared_bytes_a_thread() -> None:
    full = [
        each
        for each in range(200)
        if occupancy(book(H100), threads=512, registers=0, shared=512 * each).occupancy == 1
    ]
    assert max(full) == 114  # 112 on the card: see `test_text_h100_has_112_shared_bytes_a_thread`


# FLOP per byte, device, peak by bandwidth, and the share of the peak that memory allows at most.
BOUNDS = [
    (36 / 28, "textbook-5.9a", 2.0, 9 / 14),
    (36 / 28, "textbook-5.9b", 1.2, 1.0),
    (intensity(), "a100-40", 12.5, 0.02),
    (intensity(), "h100", 20.0, 0.0125),
    (intensity(32, 32), "h100", 20.0, 0.4),
    (intensity(32, 4 * 32), "h100", 20.0, 0.64),
    (intensity(128, 128), "h100", 20.0, 1.0),
]


@pytest.mark.parametrize(("flop_per_byte", "name", "balance", "share"), BOUNDS)
def test_kernel_is_bound_as_the_book_says(
    flop_per_byte: float, name: str, balance: float, share: float
) -> None:
    card = find(name)
    assert card.peak_fp32 / card.memory_bandwidth == pytest.approx(balance, rel=0.005)
    assert attainable(card, flop_per_byte) / card.peak_fp32 == pytest.approx(share, rel=0.005)


def test_page_has_the_bounds() -> None:
    stated = [(row[2], row[3], row[4], row[5].split(":")[0]) for row in rows(BOUND)]
    assert stated == [
        (f"{flop:.3g}", name, f"{balance:.1f}", "arithmetic" if share == 1 else "memory")
        for flop, name, balance, share in BOUNDS
    ]
    untiled = [bandwidth_bound(find(row[3]).memory_bandwidth, 0.25) for row in rows(BOUND)[2:4]]
    peaks = [find(row[3]).peak_fp32 for row in rows(BOUND)[2:4]]
    assert [row[5] for row in rows(BOUND)[2:4]] == [
        f"memory: {flops / 1e9:.0f} GFLOP/s, {flops / peak:.1%} of the peak".replace("%", " %")
        for flops, peak in zip(untiled, peaks, strict=True)
    ]


def test_tiles_of_32_load_a_32nd() -> None:
    assert intensity(32, 32) == 32 * intensity()


def test_tiles_have_the_flop_per_byte_of_the_book() -> None:
    assert [intensity(), intensity(32, 32), intensity(32, 4 * 32)] == [0.25, 8, 12.8]
    assert [intensity(m, m) for m in (32, 128)] == [8, 32]


@pytest.mark.parametrize("key", TEXTBOOK)
def test_textbook_device_is_near_no_card(key: str) -> None:
    assert key.startswith("textbook-")
    cards = [card for card in catalogue().values() if card.granularity is None]
    assert not any(same_architecture(TEXTBOOK[key], card) for card in cards)


def test_textbook_devices_come_last_and_without_an_architecture() -> None:
    assert [*catalogue()][-len(TEXTBOOK) :] == [*TEXTBOOK]
    keys, architectures, *_ = render_catalogue().columns
    bare = [key for key, sm in zip(keys.cells, architectures.cells, strict=True) if not sm]
    assert bare == [*TEXTBOOK]


def test_page_lists_the_devices_with_what_the_book_states() -> None:
    listed = {row[0].split(",")[0]: row[1:] for row in rows("Devices of the exercises")}
    assert [*listed] == [key for key in TEXTBOOK if key != "textbook-d"]
    for key, (threads, blocks, _) in listed.items():
        card = TEXTBOOK[key]
        assert threads in ("not stated", str(card.threads_per_sm)), key
        assert blocks in ("not stated", str(card.blocks_per_sm)), key


def test_page_names_rungs_as_the_ladder_does() -> None:
    named = re.findall(r"`(\d+ [a-z]+)`", PAGE)
    assert {*named} <= {rung.name for rung in RUNGS}
    assert len({*named}) > 10
