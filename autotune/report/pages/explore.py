"""The occupancy explorer: an offline page that shows what the resources of a block lead to.

The page looks every limit of an SM up in tables that Python makes and takes the least. Its words
are explained by the rows of `docs/glossary.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib import resources
from itertools import chain
from pathlib import Path

from autotune.device import CLUSTER_SIZES, SMS, Device, Sm, SmLimits, entries
from autotune.families.ladder import RUNGS
from autotune.families.shared.tiling import buffer_bytes
from autotune.families.textbook import REGISTERS
from autotune.model.cost import fitted
from autotune.occupancy import (
    BARRIERS,
    LARGEST_REGISTERS,
    RESOURCES,
    BlockDemand,
    amounts,
    limit_tables,
    rules_of,
)
from autotune.problem.integers import ceil_div
from autotune.problem.precision import PRECISIONS
from autotune.report.pages.page import Section, asset, document, percent

START = BlockDemand(threads=256, registers=64, shared=16384)
"""The block that the page starts with."""

NUMBERS = {
    "threads": (1, 1024, START.threads),
    "registers": (0, LARGEST_REGISTERS, START.registers),
    "shared": (0, 0, START.shared),
    "barriers": (0, BARRIERS, START.barriers),
    "tile_m": (1, 512, 128),
    "tile_n": (1, 512, 128),
    "tile_k": (1, 512, 8),
    "stages": (1, 16, 1),
    "tile_threads": (1, 1024, 256),
    "other": (0, LARGEST_REGISTERS, 64),
}
"""Least, most and first value of each number of the page; the device states the most of `shared`.
`other` are the registers of a thread besides its sums."""

TILE_WIDTHS = (8, 16, 24, 32)
"""Widths of the square tiled kernel in the table of tiles."""

KERNELS = ("registers", "fragments", "ring", "roles")
"""Rungs of the ladder in that table."""

_PARTS = ("intro", "block", "tile", "card")


def explorer(own: SmLimits | None = None) -> str:
    """The text of the page, with all devices of the catalogue and all compute capabilities.

    Args:
        own: the device to start with; it is added if the catalogue lacks it.

    Raises:
        DeviceError: if the occupancy rules of `own` are unknown.
        ValueError: if the glossary lacks a term of the page.
    """
    cards = _cards(own)
    parts = dict(zip(_PARTS, asset("explore.html").split("<hr>\n"), strict=True))
    data = {
        "start": next((key for key, card in cards.items() if card == own), "h100-sxm"),
        "tables": _tables(cards),
        "cards": {key: _card(card) for key, card in cards.items()},
        "precisions": {row.name: [row.label, row.operand.bytes] for row in PRECISIONS.values()},
        "numbers": NUMBERS,
        "clusters": CLUSTER_SIZES,
        "l2": fitted().l2,
        "presets": _presets(),
        "terms": _terms("".join(parts.values())),
    }
    return document(
        "Occupancy explorer",
        [
            Section("block", "A block", parts["block"]),
            Section("tile", "A GEMM tile", parts["tile"]),
            Section("card", "The card", parts["card"]),
        ],
        head=parts["intro"],
        data=data,
        script="".join(map(asset, ("explore_model.js", "chart.js", "explore.js"))),
        footer="<p>Resident blocks as NVIDIA's <code>cuda_occupancy.h</code> computes them. "
        "Made by <code>autotune explore</code>. This file loads nothing from elsewhere.</p>",
        style=asset("explore.css"),
        plots=False,
    )


def _cards(own: SmLimits | None) -> dict[str, SmLimits]:
    listed: dict[str, SmLimits] = {key: entry.device for key, entry in entries().items()}
    listed |= {sm.name: sm for sm in SMS.values()}
    new = own is not None and own not in listed.values()
    return {own.name: own, **listed} if own is not None and new else listed


def _limits_key(card: SmLimits) -> str:
    """A text that is equal for devices whose SMs have the same limits."""
    values = [getattr(card, field.name) for field in fields(Sm)]
    return " ".join(map(str, [*values, card.granularity]))


def _tables(cards: Mapping[str, SmLimits]) -> dict[str, object]:
    kinds = {_limits_key(card): card for card in cards.values()}
    result: dict[str, object] = {}
    for key, card in kinds.items():
        tables = limit_tables(card)
        texts = [percent(share) for share in tables.shares]
        steps = {name: amounts(card, name) for name in RESOURCES}
        # Each carve-out has steps of its own.
        steps["shared"] = tuple(sorted({*steps["shared"], *chain(*tables.shared)} - {-1}))
        result[key] = {**asdict(tables), "texts": texts, "amounts": steps}
    return result


def _card(card: SmLimits) -> dict[str, object]:
    """The data of a device for the page; an SM alone has neither clusters nor a roofline."""
    described: dict[str, object] = {
        "name": card.name,
        "tables": _limits_key(card),
        "limits": {"granularity": card.granularity, **asdict(rules_of(card)), **asdict(card)},
    }
    if not isinstance(card, Device):
        return described
    clusters = {}
    for size in CLUSTER_SIZES:
        count = card.resident_clusters(size)
        clusters[size] = {
            "counts": [blocks * count for blocks in range(card.blocks_per_sm + 1)],
            "idle": card.sms - count * size,
        }
    return described | {
        "sms": card.sms,
        "clusters": clusters,
        "predicted": not card.knows_clusters,
        "peaks": {compute: card.peak(compute) for compute in PRECISIONS},
        "bandwidth": card.memory_bandwidth,
        "tensor": [compute for compute in PRECISIONS if card.tensor_rate(compute)],
    }


def _presets() -> list[dict[str, object]]:
    """Tiles of the tiled kernel and of some rungs of the ladder."""
    rows: list[dict[str, object]] = [
        {
            "name": f"TILE_WIDTH {width}",
            **dict.fromkeys(("tile_m", "tile_n", "tile_k"), width),
            "stages": 1,
            "tile_threads": width**2,
            "other": REGISTERS - 1,
            "compute": "f32",
        }
        for width in TILE_WIDTHS
    ]
    for rung in RUNGS:
        if rung.kernel not in KERNELS:
            continue
        m, n, k = rung.tile
        stage = buffer_bytes(m, n, k, PRECISIONS[rung.compute].operand.bytes)
        threads = rung.threads[0] * rung.threads[1]
        rows.append(
            {
                "name": f"rung {rung.name}",
                **{"tile_m": m, "tile_n": n, "tile_k": k, "stages": rung.shared // stage},
                "tile_threads": threads,
                "other": rung.registers - ceil_div(m * n, threads),
                "compute": rung.compute,
            }
        )
    return rows


def _terms(text: str) -> dict[str, str]:
    """The meanings of the terms that a text marks by `data-term`, from the glossary."""
    beside = resources.files("autotune.report.pages") / "glossary.md"
    place = beside if beside.is_file() else Path(__file__).parents[3] / "docs" / "glossary.md"
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", place.read_text("utf-8"), re.MULTILINE)
    meanings = {word: meaning for words, meaning in rows for word in words.split(", ")}
    wanted = sorted({*re.findall(r'data-term="([^"]+)"', text)})
    if missing := [word for word in wanted if word not in meanings]:
        raise ValueError(f"docs/glossary.md has no row for {', '.join(missing)}; add one")
    return {word: re.sub(r"[`*]", "", meanings[word]) for word in wanted}
