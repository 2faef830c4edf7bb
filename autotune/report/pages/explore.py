"""The occupancy explorer: an offline page that shows what the resources of a block lead to.

The page looks every limit up in tables that Python makes and takes the least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import chain

from autotune import roofline
from autotune.device import CLUSTER_SIZES, SMS, Device, Sm, SmLimits, entries
from autotune.occupancy import (
    BARRIERS,
    LARGEST_REGISTERS,
    RESOURCES,
    STAIRS,
    BlockDemand,
    amounts,
    limit_tables,
)
from autotune.problem.precision import PRECISIONS
from autotune.report.pages.page import Section, asset, document, escape, percent

SIDES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 256)
"""Sides of a block's tile of C that the roofline offers."""

START = BlockDemand(threads=256, registers=64, shared=16384)
"""The block that the page starts with."""

_ELEMENT_BYTES = sorted({row.operand.bytes for row in PRECISIONS.values()})

_SLIDERS = (
    ("threads", "Threads a block", 1, 1024, 32),
    ("registers", "Registers a thread", 0, LARGEST_REGISTERS, 1),
    ("shared", "Shared memory a block, in bytes", 0, 49152, 128),
    ("barriers", "Named barriers a block", 0, BARRIERS, 1),
)
"""Sliders: field of `BlockDemand`, label, least, most, step of the slider, whose least value is a
multiple of its step."""


def explorer(own: SmLimits | None = None) -> str:
    """The text of the page, with all devices of the catalogue and all compute capabilities.

    Args:
        own: the device to start with; it is added if the catalogue lacks it.

    Raises:
        MissingError: if plotly is not installed or is too old.
        DeviceError: if the occupancy rules of `own` are unknown.
    """
    cards = _cards(own)
    first = next((key for key, card in cards.items() if card == own), "h100-sxm")
    data = {
        "tables": _tables(cards),
        "cards": {key: _card(card) for key, card in cards.items()},
        "intensities": {
            size: [[roofline.intensity(m, n, element_bytes=size) for n in SIDES] for m in SIDES]
            for size in _ELEMENT_BYTES
        },
        "precisions": {row.name: [row.label, row.operand.bytes] for row in PRECISIONS.values()},
        "sides": SIDES,
        "stairs": STAIRS,
    }
    return document(
        "Occupancy explorer",
        [
            Section("block", "A block of the kernel", _controls(cards, first)),
            Section("resident", "What an SM holds", _RESULTS),
            Section("curves", "What each resource costs", _CURVES),
            Section("roofline", "What the tile of a block allows", _tile_controls() + _ROOFLINE),
        ],
        head=_HEAD,
        data=data,
        script=asset("explore.js"),
        footer="<p>Resident blocks as NVIDIA's <code>cuda_occupancy.h</code> computes them. "
        "Made by <code>autotune explore</code>.</p>",
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
        result[key] = {
            **asdict(tables),
            "texts": texts,
            "largest": card.shared_per_block_optin,
            "amounts": steps,
        }
    return result


def _card(card: SmLimits) -> dict[str, object]:
    """The data of a device for the page; an SM alone has neither clusters nor a roofline."""
    described: dict[str, object] = {"name": card.name, "tables": _limits_key(card)}
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
    }


def _controls(cards: Mapping[str, SmLimits], first: str) -> str:
    options = {"cards": "", "sms": ""}
    for key, card in cards.items():
        selected = " selected" if key == first else ""
        group = "cards" if isinstance(card, Device) else "sms"
        options[group] += f'<option value="{escape(key)}"{selected}>{escape(card.name)}</option>'
    sliders = "".join(
        f'<div class="slider"><label for="{name}">{label}</label>'
        f'<input type="range" id="{name}" min="{least and step}" max="{most}" step="{step}" '
        f'value="{getattr(START, name)}">'
        f'<input type="number" id="{name}-number" aria-label="{label}, as a number" '
        f'min="{least}" max="{most}" step="1" value="{getattr(START, name)}"></div>'
        for name, label, least, most, step in _SLIDERS
    )
    clusters = "".join(f'<option value="{size}">{size}</option>' for size in CLUSTER_SIZES)
    shares = "".join(f'<option value="{share}">{share}%</option>' for share in range(101))
    return (
        '<div class="controls"><label>Device <select id="device">'
        f'<optgroup label="Cards">{options["cards"]}</optgroup>'
        f'<optgroup label="Compute capabilities">{options["sms"]}</optgroup></select></label>'
        f'<label>Cluster <select id="cluster"><option value="1">none</option>{clusters}</select>'
        '</label><label>Carve-out <select id="carve-out"><option value="">the largest</option>'
        f'{shares}</select></label></div><div class="sliders">{sliders}</div>'
        '<pre class="wrapped"><code id="command"></code></pre>'
    )


def _tile_controls() -> str:
    sides = "".join(
        f"<option{' selected' if side == 128 else ''}>{side}</option>" for side in SIDES
    )
    computes = "".join(
        f'<option value="{row.name}">{row.label}</option>' for row in PRECISIONS.values()
    )
    return (
        '<div class="controls"><label>Precision '
        f'<select id="compute">{computes}</select></label>'
        f'<label>Rows of the tile <select id="rows">{sides}</select></label>'
        f'<label>Columns of the tile <select id="columns">{sides}</select></label></div>'
    )


_HEAD = (
    "<p>Choose what a block of a kernel takes. The page shows how many blocks an SM holds at once, "
    "what limits them, and what one step more or less would change.</p>"
)

_RESULTS = (
    '<div role="status"><dl class="facts">'
    '<div><dt>Blocks an SM</dt><dd id="blocks"></dd></div>'
    '<div><dt>Warps an SM</dt><dd id="warps"></dd></div>'
    '<div><dt>Occupancy</dt><dd id="occupancy"></dd></div>'
    '<div><dt>Limited by</dt><dd id="limiters"></dd></div>'
    '<div><dt>Clusters on the card</dt><dd id="clusters"></dd></div>'
    '<div><dt>SMs left idle</dt><dd id="idle"></dd></div></dl></div>'
    '<div class="scroll" role="region" tabindex="0" aria-label="Limits"><table>'
    "<caption>Blocks that each limit allows, and the most that a block may take to keep them or to "
    'make room for one more</caption><thead><tr><th scope="col">limit</th>'
    '<th scope="col" class="number">blocks</th>'
    '<th scope="col">to keep them</th><th scope="col">for one more</th></tr></thead>'
    '<tbody id="limits"></tbody></table></div>'
)

_CURVES = (
    "<p>Resident warps of an SM as one resource changes and the others stay. The mark is the block "
    'above.</p><div class="columns thirds">'
    + "".join(
        f'<figure><div class="plot short" id="curve-{name}" role="img" '
        f'aria-label="Resident warps of an SM by {words}"></div></figure>'
        for name, words in (
            ("threads", "threads a block"),
            ("registers", "registers a thread"),
            ("shared", "shared memory a block"),
        )
    )
    + "</div>"
)

_ROOFLINE = (
    '<dl class="facts"><div><dt>FLOP per byte of device memory</dt><dd id="intensity"></dd></div>'
    '<div><dt>Attainable</dt><dd id="attainable"></dd></div>'
    '<div><dt>Of the peak</dt><dd id="share"></dd></div></dl>'
    '<figure><div class="plot" id="roof" role="img" '
    'aria-label="FLOP/s by FLOP per byte of device memory, with the tile marked"></div>'
    "<figcaption>For each step along K a block loads a "
    "column of A and a row of B as long as its tile and computes 2 x rows x columns operations. "
    "L2 serves what several blocks read, so a kernel may pass this bound; none passes the "
    "peak.</figcaption></figure>"
)
