"""The catalogue as it is written, and what it says of clusters by compute capability and SMs.

The SMs of a cluster lie in one GPC (CUDA C++ Programming Guide, thread block clusters), and cards
of one model have their disabled SMs in different GPCs, so that only the driver knows how many
clusters are resident at once (`autotune.driver.clusters` asks it). What is known here stands in for
its answer: what the driver of such cards said, else what the worst card of the model holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

Clusters: TypeAlias = tuple[int, int, int]

CLUSTER_SIZES = (2, 4, 8)
"""Blocks of the clusters whose number is known; 8 is the largest portable size."""

_GPCS = {9: 8, 10: 8}
"""GPCs of the largest die, by the major compute capability: NVIDIA H100 Tensor Core GPU
Architecture Whitepaper (GH100); GB100 is taken to have as many."""
_MOST_GPCS = 12
"""GPCs of GB202 (NVIDIA RTX Blackwell GPU Architecture Whitepaper); others have no more."""


@cache
def listed() -> Mapping[str, Any]:
    """`data/devices.json`: the `sources` by key, and the `devices` with pairs of value and source.

    A card with clusters names the `clusters` that drivers of its model stated, or its `gpcs`.
    """
    data = resources.files("autotune") / "data" / "devices.json"
    content: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    return content


def has_clusters(capability: tuple[int, int]) -> bool:
    """Whether blocks can form clusters: from compute capability 9.0 on."""
    return capability >= (9, 0)


@cache
def expected_clusters(capability: tuple[int, int], sms: int) -> Clusters:
    """Resident clusters of 2, 4 and 8 blocks, one block an SM, of a card that no driver described.

    A listed card with as many SMs gives them, else `least_clusters`.
    """
    cards = [
        card
        for card in listed()["devices"].values()
        if (tuple(card["compute_capability"]), card["sms"][0]) == (capability, sms)
    ]
    for card in cards:
        if "clusters" in card:
            two, four, eight = card["clusters"][0]
            return two, four, eight
    gpcs = [card["gpcs"][0] for card in cards if "gpcs" in card]
    return least_clusters(sms, max(gpcs, default=_GPCS.get(capability[0], _MOST_GPCS)))


def least_clusters(sms: int, gpcs: int) -> Clusters:
    """Clusters of 2, 4 and 8 blocks on the worst card with so many SMs in so many GPCs.

    A GPC has an even number of SMs, two a TPC, so that clusters of s blocks leave at most s - 2 of
    them idle: n SMs in g GPCs hold at least (n - g (s - 2)) / s clusters, rounded up.
    """
    two, four, eight = (
        max(0, min(sms // size, -((gpcs * (size - 2) - sms) // size))) for size in CLUSTER_SIZES
    )
    return two, four, eight
