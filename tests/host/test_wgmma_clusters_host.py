"""The clusters of the wgmma kernel on the CPU, under AddressSanitizer and UBSan, against numpy in
float64. Blocks of a cluster run at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest
from support.host_cuda import Program, check, run
from support.wgmma_samples import REGISTERS, SPLIT, Keywords, Sample, Values, built

from autotune.families.wgmma.tiles import CLUSTERS

SMALL: Values = {"bm": 64, "bn": 32, "consumers": 1}
BETA: Keywords = ({}, {"beta": 0.5})
# Forms of clusters along M and N, each with a layout.
TILES = {
    **{"2x1": "nn", "1x2": "tt", "4x1": "nt", "1x4": "tn"},
    **{"2x2": "nn", "4x2": "tn", "2x4": "nt"},
}
# Forms that share K, alone and beside blocks that share operands.
DEEP = tuple(text for text, cluster in CLUSTERS.items() if cluster.k > 1)


def _blocks(cluster: str) -> int:
    return prod(map(int, cluster.split("x")))


def _samples() -> Iterator[Sample]:
    for cluster, layout in TILES.items():
        # 3 x 3 tiles: clusters that end within the grid, some blocks wholly beyond the edge.
        yield Sample(f"136x72x264:bf16:{layout}", {**SMALL, "cluster": cluster}, BETA)
    for cluster in ("2x1", "1x2", "2x2", "4x2", "2x4"):
        resident = {**SMALL, "cluster": cluster, "workers": _blocks(cluster)}
        yield Sample(f"136x72x200:bf16:{TILES[cluster]}:batch=2", resident)
    for cluster in ("2x1", "2x2"):
        fused = {**SMALL, "cluster": cluster, "reduction": "fused", "split_k": 2}
        yield Sample("136x72x264:bf16:nn", fused)
    for cluster in ("2x1", "1x2"):
        streamed = {**SMALL, "cluster": cluster, "reduction": "stream", "workers": 4}
        yield Sample("264x136x264:bf16:nn", streamed)
    for cluster in DEEP:
        splits = int(cluster.split("x")[2])
        shared = {**SMALL, "cluster": cluster, "split_k": splits}
        yield Sample("72x40x600:bf16:nn", shared, BETA)
    for cluster in ("1x1x2", "2x1x2"):
        shared = {**SMALL, "cluster": cluster, "split_k": 4, "reduction": "fused"}
        yield Sample("72x40x600:bf16:nt", shared)
    yield Sample("136x72x264:bf16:nt", {**SMALL, "cluster": "2x2", "source": "streamed"})
    # SwiGLU of a part of a tile's columns, and of a transposed one.
    gated: Values = {"cluster": "1x1x2", "split_k": 2, "store": "staged"}
    yield Sample("72x160x600:bf16:nt:swiglu", {**gated, "bm": 64, "bn": 160, "consumers": 1})
    yield Sample("24x144x600:f16:nn:swiglu", {**gated, "swap": 1, "bm": 24, "bn": 128})
    # Both warpgroups of a block, ping-pong, staged stores and the other operand paths.
    yield Sample("200x136x264:f16:nn", {"cluster": "1x2", "store": "staged"}, BETA)
    alternating: Values = {"cluster": "2x1", "schedule": "pingpong", "workers": 2, "bm": 64}
    yield Sample("264x136x200:bf16:nt", {**alternating, "store": "staged"}, BETA)
    yield Sample("72x264x200:f16:tn", {"cluster": "2x1", "swap": 1, "bm": 32, "bn": 128})
    yield Sample("136x72x100:tf32:tn", {**REGISTERS, "cluster": "1x2", "bm": 256})
    yield Sample("264x40x132:tf32x3:nt", {**SPLIT, "cluster": "2x1", "bn": 32})
    yield Sample("136x72x132:tf32x3:tn", {**SPLIT, "cluster": "2x2", "low": "pass", "bn": 32})
    yield Sample("136x72x264:tf32x3:nt", {**SPLIT, "cluster": "1x1x2", "split_k": 2})


SAMPLES = tuple(_samples())


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    return built(SAMPLES, host_objects)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_cluster_matches_float64(program: Program, sample: Sample) -> None:
    check(program, sample.cases)


@pytest.mark.parametrize("sample", [item for item in SAMPLES if item.without_product], ids=str)
def test_cluster_with_alpha_0_ignores_nan(program: Program, sample: Sample) -> None:
    check(program, sample.without_product)


@pytest.mark.parametrize("sample", [item for item in SAMPLES if "split_k" in item.config], ids=str)
def test_splits_of_a_cluster_add_up_to_the_same_bits(program: Program, sample: Sample) -> None:
    first, *repeats = run(program, sample.cases[:1] * 3)
    assert [repeat.tobytes() for repeat in repeats] == [first.tobytes()] * 2
