"""The configurations that `wgmma` rejects, with reasons and numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.device import find
from autotune.families.config import Config
from autotune.families.wgmma import WGMMA, tiles
from autotune.families.wgmma.tiles import CLUSTERS
from autotune.model import space
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

H100 = replace(find("h100"), clusters=(66, 33, 16))
"""A card whose clusters leave few SMs idle."""
CONFIG = Config.parse(
    "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=1x1,split_k=1,reduction=none,workers=132,"
    "store=staged,stages=3,group=1"
)
WIDE, DEEP = "4096x4096x4096:bf16", "256x512x8192:bf16"
# N is 32 times 160; B is K-contiguous.
FIFTHS = "4096x5120x4096:bf16:nt"
NEAR = "1024x1024x1024:tf32x3"
Values = dict[str, int | str]
# B of layout nn is not K-contiguous, so C is computed transposed.
SPLIT: Values = {
    **{"swap": 1, "bm": 64, "bn": 128, "bk": 32, "source": "registers", "low": "kernel"},
    **{"promote": 2, "workers": 0, "store": "direct", "stages": 7},
}
SHARED: Values = {
    **{"bm": 64, "bn": 64, "consumers": 1, "workers": 0, "split_k": 4, "reduction": "fused"},
    **{"store": "staged", "stages": 13},
}
ALTERNATING: Values = {"bm": 128, "bn": 128, "schedule": "pingpong", "stages": 6}
RESIDENT: Values = {"bm": 64, "bn": 64, "consumers": 1, "min_blocks": 3, "workers": 396}


def rejection(values: Values, text: str, device: str = "") -> str:
    assert values.keys() <= CONFIG.values.keys()
    config = Config.of("wgmma", {**CONFIG.values, **values})
    return str(space.rejection(config, Problem.parse(text), find(device) if device else H100))


@pytest.mark.parametrize("name", ["a100", "rtx-4090", "b200", "rtx 5090"])
def test_wgmma_needs_hopper(name: str) -> None:
    device = find(name)
    candidates = space.feasible(Problem.parse(WIDE), device, "wgmma")
    assert (candidates.configs, set(candidates.rejected)) == ((), {"architecture"})
    major, minor = device.compute_capability
    message = f"wgmma is of compute capability 9.0 alone; {device.name} has {major}.{minor}"
    assert rejection({"workers": 0}, WIDE, name) == f"architecture: {message}"


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        ({}, WIDE, "None"),
        (
            {"bm": 256, "bn": 256},
            WIDE,
            "registers: 256 accumulators make about 304 registers; a consumer has 224",
        ),
        ({"bm": 256, "bn": 128}, WIDE, "None"),
        *(
            (
                {"bm": 256, "bn": 160},
                f"{FIFTHS}:{epilogue}",
                "registers: 160 accumulators make about 232 registers; a consumer has 224",
            )
            for epilogue in ("bias_gelu", "gelu_tanh", "bias_silu")
        ),
        ({"bm": 256, "bn": 160}, FIFTHS, "None"),
        ({"bm": 192, "bn": 192, "consumers": 3}, f"{WIDE}:bias_gelu", "None"),
        (
            {"swap": 1, "bm": 176, "bn": 128, "schedule": "pingpong", "store": "staged"},
            WIDE,
            "registers: staging 128 transposed rows takes about 268 registers; a consumer has 224",
        ),
        (
            {"swap": 1, "bm": 176, "bn": 256, "source": "registers", "bk": 32, "stages": 4},
            "4096x4224x4096:tf32:nn",
            "registers: 176 accumulators make about 232 registers; a consumer has 224",
        ),
        ({"consumers": 3}, WIDE, "consumers: 3 consumers share 128 rows; each has 64 or 128"),
        (
            {"bm": 192, "bn": 224, "consumers": 3},
            FIFTHS,
            "registers: an instruction needs 138 registers; a thread has 128 at the entry",
        ),
        (
            {"bm": 256, "schedule": "pingpong"},
            WIDE,
            "consumers: 2 consumers alternate tiles of 256 rows; 2 with 64 or 128",
        ),
        ({"bm": 128, "schedule": "pingpong", "bn": 128, "stages": 4}, WIDE, "None"),
        (
            {"min_blocks": 3},
            WIDE,
            "residency: there is no kernel of 2 consumers for 3 blocks an SM",
        ),
        (RESIDENT, "1024x2048x256:bf16", "None"),
        (
            RESIDENT,
            "1024x2048x320:bf16",
            "residency: a K of 5 lines hides what several blocks an SM would; 4 at most",
        ),
        (
            {"bn": 128, "consumers": 1},
            WIDE,
            "residency: 1024 tiles, each with the epilogue of an SM's only consumer",
        ),
        (
            {"bm": 64, "bn": 64, "consumers": 1},
            WIDE,
            "small tiles: 4096 tiles of 64x64; larger ones keep 132 SMs busy",
        ),
        ({"bm": 256}, "128x4096x64:bf16", "larger than the matrix: 256 rows for 128"),
        ({"swap": 1}, "4096x8x4096:bf16:nt", "value: swap=1 is none of 0"),
        ({"swap": 1}, f"{WIDE}:nt", "None"),
        # A is K-contiguous, B is not: whole spans of B are loaded, whatever a tile uses of them.
        ({"swap": 1, "bm": 232, "bn": 128}, WIDE, "None"),
        ({"bn": 232}, WIDE, "value: bn=232 is none of 64, 128, 192, 256"),
        ({"swap": 1, "bm": 224, "bn": 128}, "5120x4096x4096:bf16", "None"),
        ({"bm": 88, "bn": 256}, WIDE, "tile: no kernel has tile_m=88 with tile_n=256; swap=0"),
        ({"bk": 128}, WIDE, "block of K: 2 stages of 128 fit; 5 at least"),
        (
            {"bk": 128},
            "4096x4096x448:bf16",
            "block of K: K=448 has less than 4 k-iterations of 128",
        ),
        (
            {**SPLIT, "bm": 256, "consumers": 2, "promote": 0},
            "2048x2048x256:tf32x3",
            "stages: 2 of 81920 bytes fit; 3 at least",
        ),
        ({"stages": 4}, WIDE, "None"),
        ({"stages": 5}, WIDE, "stages: 5 buffers of 49152 bytes; 4 fit"),
    ],
)
def test_tile_and_warpgroup_rules_reject_with_numbers(
    values: Values, text: str, reason: str
) -> None:
    assert rejection(values, text) == reason


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        (SPLIT, NEAR, "None"),
        ({**SPLIT, "source": "shared"}, NEAR, "source: operands are split in registers"),
        ({**SPLIT, "low": "none"}, NEAR, "low part: tf32x3 has 3 products"),
        (
            {**SPLIT, "low": "pass"},
            "1024x256x4096:tf32x3",
            "low part: a copy of a would be read for 256 rows; 1024 at least",
        ),
        (
            {**SPLIT, "low": "kernel"},
            "1023x1024x1023:tf32x3",
            "low part: a is packed anyway, which may as well split it",
        ),
        (
            {**SPLIT, "promote": 0},
            NEAR,
            "promotion: sums of K=1024 terms are truncated too often; 256 at most",
        ),
        (
            {**SPLIT, "bk": 64, "promote": 4},
            NEAR,
            "promotion: sums of K=1024 terms are promoted after 256; 128 at most, below K",
        ),
        ({**SPLIT, "bn": 192, "consumers": 3, "stages": 5}, "1024x1536x1024:tf32x3", "None"),
        (
            {**SPLIT, "store": "staged"},
            NEAR,
            "store: 32-bit results fill whole sectors without staging",
        ),
    ],
)
def test_register_operand_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


@pytest.mark.parametrize(
    ("layout", "swaps", "sources"),
    [
        (
            "nn",
            {1},
            {"registers", "shared"},
        ),  # B is the first operand: through registers, or transposed by packing
        ("nt", {0}, {"shared"}),
        ("tn", {0}, {"registers", "shared"}),
        ("tt", {0}, {"registers", "shared"}),
    ],
)
def test_tf32_b_operand_is_k_contiguous(layout: str, swaps: set[int], sources: set[str]) -> None:
    problem = Problem(4096, 4096, 4096, "tf32", layout)
    configs = space.feasible(problem, H100, "wgmma").configs
    assert {config.values["swap"] for config in configs} == swaps
    assert {config.values["source"] for config in configs} == sources


@pytest.mark.parametrize(
    ("shape", "swaps"),
    [
        *(("8x4096x4096", {1}), ("32x4096x4096", {1}), ("33x4096x4096", {0, 1})),
        *(("4096x8x4096", {0}), ("4096x32x4096", {0}), ("4096x33x4096", {0, 1})),
        *(("64x4096x4096", {0, 1}), ("512x512x512", {0, 1})),
    ],
)
def test_short_side_becomes_tile_n(shape: str, swaps: set[int]) -> None:
    problem = Problem.parse(f"{shape}:f16:nt")
    configs = space.feasible(problem, H100, "wgmma").configs
    assert {config.values["swap"] for config in configs} == swaps


@pytest.mark.parametrize("swap", [0, 1])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_fine_tile_n_needs_a_k_contiguous_b_operand(layout: str, swap: int) -> None:
    # tile_n runs over B's columns, or with swap=1 over A's rows. Of operands that are not
    # K-contiguous whole spans of 64 are loaded.
    configs = space.feasible(Problem(3000, 3000, 4096, "bf16", layout), H100, "wgmma").configs
    side, fine = ("bm", layout[0] == "n") if swap else ("bn", layout[1] == "t")
    sizes = {config.integer(side) for config in configs if config.values["swap"] == swap}
    assert (sizes == {64, 128, 192, 256}) == (not fine)


@pytest.mark.parametrize("n", [257, 1000, 3000, 4096, 5120])
def test_tile_n_cuts_a_long_side_into_equal_parts(n: int) -> None:
    sizes = tiles.tile_columns(Problem(4096, n, 4096, "bf16", "nt"), H100, 0)
    equal = {round_up(ceil_div(n, parts), 8) for parts in range(1, n // 32 + 1)}
    assert set(sizes) <= equal | set(tiles.COARSE)
    assert set(sizes) - set(tiles.COARSE)
    assert 32 <= min(sizes) <= max(sizes) <= 256
    # The 6 fastest with each of 4 values of tile_m.
    assert 6 <= len(sizes) <= 24


def test_short_side_is_covered_exactly() -> None:
    domain = WGMMA.domain(Problem(40, 4096, 4096, "bf16"), H100)
    assert set(domain["bm"]) == {64, 128, 192, 256} | {40, 24}


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        (SHARED, DEEP, "None"),
        (
            {**SHARED, "reduction": "none"},
            DEEP,
            "reduction: split_k=4, cluster=1x1 with reduction=none",
        ),
        (
            {**SHARED, "bn": 8, "store": "direct", "split_k": 48},
            "64x64x8192:bf16",
            "split-K: 128 k-iterations do not go into 48 splits of 4 or more",
        ),
        (
            {**SHARED, "split_k": 8},
            DEEP,
            "split-K: 32 tiles fill 132 SMs as well with less than 8 splits",
        ),
        (
            {**SHARED, "split_k": 64, "source": "streamed"},
            "64x64x1000000:bf16",
            "reduction: the last block of a tile would read 1048576 bytes; 524288 at most",
        ),
        (
            {**SHARED, "split_k": 2},
            "64x64x65536:bf16",
            "time: about 9.31 of the best tiles' time; 1.4 at most",
        ),
        ({}, "2048x2304x4096:bf16", "time: about 1.73 of the best tiles' time; 1.4 at most"),
        (
            {"workers": 0},
            WIDE,
            "workers: 512 blocks one after the other, and each fills its buffers again",
        ),
        ({"workers": 264}, WIDE, "workers: 264 workers; 132 blocks are resident"),
        ({}, "2048x2048x4096:bf16", "workers: 128 work units; 132 workers need over 132"),
        # Pingpong hides the stores of alternate tiles: 198 units at least.
        (ALTERNATING, "1536x1920x512:bf16", "workers: 180 work units; 132 workers need over 198"),
        (ALTERNATING, "2048x1664x512:bf16", "None"),
        (
            {**ALTERNATING, "workers": 0},
            "2048x1664x512:bf16",
            "workers: pingpong consumers alternate the tiles of resident workers",
        ),
        ({"reduction": "stream"}, f"{WIDE}:batch=2", "stream-K: not with batch=2, cluster=1x1"),
        (
            {"reduction": "stream", "cluster": "2x2"},
            "4352x4096x4096:bf16",
            "stream-K: not with batch=1, cluster=2x2",
        ),
        (
            {**ALTERNATING, "reduction": "stream"},
            "4352x4096x4096:bf16",
            "stream-K: not with schedule=pingpong",
        ),
        ({"reduction": "stream"}, WIDE, "stream-K: 512 tiles keep 132 SMs busy as they are"),
        ({"reduction": "stream"}, "4352x4096x4096:bf16", "None"),
        ({"reduction": "stream", "cluster": "2x1"}, "4352x4096x4096:bf16", "None"),
        ({"reduction": "stream", "cluster": "1x2"}, "4352x4096x4096:bf16", "None"),
        ({"group": 8}, WIDE, "None"),
        ({"group": 4}, WIDE, "group: groups of 512 rows of C; 768 to 2048 suit L2"),
        # The rows of a group are those of its clusters.
        ({"group": 4, "cluster": "2x1"}, WIDE, "None"),
        (
            {"group": 16, "cluster": "2x1"},
            WIDE,
            "group: groups of 4096 rows of C; 768 to 2048 suit L2",
        ),
        ({"group": 2}, "1920x4096x2048:bf16", "None"),
        (
            {"group": 8},
            "1920x4096x2048:bf16",
            "group: 240 tiles are few for 132 SMs; groups of 2 are tried, in clusters of 2",
        ),
        (
            {"group": 2, "cluster": "2x2"},
            "1920x4096x2048:bf16",
            "group: 240 tiles are few for 132 SMs; groups of 2 are tried, in clusters of 2",
        ),
        ({"group": 16}, "1920x4096x2048:bf16", "group: 15x16 tiles have no groups of 16 rows"),
    ],
)
def test_k_sharing_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


# 128 x 256 of C read 48 bytes a cycle from L2 to keep the tensor cores busy.
@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        ({"cluster": "2x1"}, WIDE, "None"),
        ({"cluster": "1x2"}, WIDE, "None"),
        ({"cluster": "2x2", "workers": 132}, WIDE, "None"),
        ({"cluster": "1x4"}, WIDE, "clusters: blocks of 128x256 would share the smaller operand"),
        (
            {"cluster": "4x1"},
            WIDE,
            "clusters: 32 bytes a cycle from L2 suffice with smaller clusters",
        ),
        (
            {"cluster": "2x4"},
            WIDE,
            "clusters: 24 bytes a cycle from L2 suffice with smaller clusters",
        ),
        (
            {"cluster": "2x1", "workers": 0},
            "1152x2048x4096:bf16",
            "clusters: 9x8 tiles leave clusters of 2x1 partly empty",
        ),
        (
            {"cluster": "2x1", "bn": 72},
            "2048x2048x1024:bf16:nt",
            "clusters: 72 rows of b have no 2 parts of whole swizzled spans",
        ),
        ({"cluster": "2x1", "workers": 0, "stages": 4}, "1024x4096x4096:bf16", "None"),
        (
            {"cluster": "2x1", "workers": 264, "min_blocks": 2, "bn": 64, "consumers": 1},
            "4096x1024x256:bf16",
            "clusters: clusters of 2 with one block an SM alone",
        ),
        (
            {**SHARED, "cluster": "4x2"},
            DEEP,
            "split-K: clusters of 4x2 with splits of K wait for too many blocks",
        ),
    ],
)
def test_cluster_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("", "None"),
        ("h100", "clusters: clusters of 4 reach 120 of 132 SMs and need 2 waves"),
        ("h200", "clusters: clusters of 4 reach 120 of 132 SMs and need 2 waves"),
    ],
)
def test_clusters_need_no_more_waves_than_blocks(device: str, reason: str) -> None:
    # 128 tiles: a wave of blocks.
    values: Values = {"cluster": "2x2", "workers": 0, "stages": 4}
    assert rejection(values, "1024x4096x4096:bf16", device) == reason


# 32 tiles; a cluster computes the 4 splits of each and adds them up.
INSIDE: Values = {**SHARED, "cluster": "1x1x4", "reduction": "none"}


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        (INSIDE, DEEP, "None"),
        ({**INSIDE, "cluster": "1x1x2", "reduction": "fused"}, DEEP, "None"),
        (
            {**INSIDE, "cluster": "1x1x2"},
            DEEP,
            "reduction: split_k=4, cluster=1x1x2 with reduction=none",
        ),
        (
            {**INSIDE, "reduction": "fused"},
            DEEP,
            "reduction: split_k=4, cluster=1x1x4 with reduction=fused",
        ),
        ({**INSIDE, "cluster": "2x1x4"}, DEEP, "None"),
        ({**INSIDE, "cluster": "1x2x2", "reduction": "fused"}, DEEP, "None"),
        ({**INSIDE, "split_k": 1}, DEEP, "split-K: no splits of K for cluster=1x1x4"),
        ({**INSIDE, "split_k": 3}, DEEP, "split-K: not with cluster=1x1x4, schedule=cooperative"),
        (
            {**INSIDE, "bm": 128, "bn": 128, "consumers": 2, "schedule": "pingpong"},
            "128x512x8192:bf16",
            "split-K: not with cluster=1x1x4, schedule=pingpong",
        ),
        # Splits across clusters: their blocks share operands of a split.
        ({**SHARED, "cluster": "2x1"}, DEEP, "None"),
        ({**SHARED, "cluster": "2x2"}, DEEP, "None"),
        (
            {**SHARED, "cluster": "2x1", "reduction": "none"},
            DEEP,
            "reduction: split_k=4, cluster=2x1 with reduction=none",
        ),
        (
            {**INSIDE, "workers": 132},
            DEEP,
            "workers: the blocks of a split-K cluster compute one tile and exit",
        ),
        (
            {**INSIDE, "bm": 192, "bn": 192, "consumers": 3, "cluster": "1x1x2", "split_k": 2},
            "1536x1344x1024:bf16",
            "registers: adding up in a cluster takes about 176 registers; a consumer has 152",
        ),
        # The reducers of a cluster share the reading of partial sums.
        ({**SHARED, "split_k": 64, "cluster": "1x1x8"}, "64x64x65536:bf16", "None"),
    ],
)
def test_split_k_cluster_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


@pytest.mark.parametrize(("tile_n", "fits"), [(256, True), (248, False)])
def test_cluster_partial_sums_must_fit_the_buffers(tile_n: int, fits: bool) -> None:
    # 8 blocks each reduce an eighth of 256 columns; 248 columns cannot be halved into whole
    # instructions, so one block reduces all of them.
    values: Values = {
        **{"bm": 128, "bn": tile_n, "consumers": 2, "cluster": "1x1x8", "split_k": 8},
        **{"workers": 0, "stages": 4, "store": "direct"},
    }
    config = Config.of("wgmma", {**CONFIG.values, **values})
    problem = Problem.parse(f"1024x{tile_n}x8192:bf16")
    stage = 2 * 64 * (128 + 256)
    message = f"partial sums of {4 * 128 * tile_n * 8} bytes; the buffers have {4 * stage}"
    (rule,) = (rule for rule in WGMMA.rules if rule.reason == "gathering")
    fault = rule.check(WGMMA.decode(config), problem, H100)
    assert fault == (None if fits else message)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("4096x4096x4096:bf16:nn", False),  # every row starts at a cache line
        ("5000x5000x5000:bf16:nn", True),
        ("5000x5000x5000:f16:tt", True),
        ("5000x5000x5000:tf32:nn", True),
        ("5001x5001x5001:bf16:nn", False),  # packed anyway, into whole lines
        ("256x4096x1000:bf16:nn", True),  # A is reused by 4096 columns
        ("4096x256x1000:bf16:nn", False),  # A is reused by 256 columns
        ("4096x256x1000:bf16:nt", True),  # B is reused by 4096 rows
        ("4088x256x1000:bf16:nt", False),
    ],
)
def test_line_packing_is_offered_if_many_rows_reuse_it(text: str, offered: bool) -> None:
    configs = space.feasible(Problem.parse(text), H100, "wgmma").configs
    packs = {config.values["pack"] for config in configs}
    assert ("lines" in packs) == offered
    assert "needed" in packs


def test_line_packing_is_rejected_for_aligned_rows() -> None:
    message = "packing: no operand would gain from a copy in whole lines"
    assert rejection({"pack": "lines"}, WIDE) == message


@pytest.mark.parametrize("clusters", [(66, 33, 0), (0, 0, 0)])
def test_device_without_large_clusters_has_a_space(clusters: tuple[int, int, int]) -> None:
    device = replace(find("h100"), clusters=clusters)
    configs = space.feasible(Problem.parse("4096x4096x4096:bf16"), device, "wgmma").configs
    sizes = {CLUSTERS[str(config.values["cluster"])].blocks for config in configs}
    assert 1 in sizes
    assert 8 not in sizes


def test_stream_k_of_a_little_more_than_a_wave_is_tried() -> None:
    """144 tiles are 1.09 waves of 132 SMs if these share them."""
    assert rejection({"reduction": "stream"}, "1088x4096x8192:bf16") == "None"


GATED = Problem.parse("2048x4096x4096:bf16:nt:swiglu")


@pytest.mark.parametrize(
    ("swap", "tile_n", "fits"), [(0, 136, False), (0, 144, True), (1, 136, True)]
)
def test_tiles_have_whole_pairs_of_columns(swap: int, tile_n: int, fits: bool) -> None:
    assert tiles.has_columns(GATED, swap, tile_n) == fits
    assert tiles.has_columns(replace(GATED, epilogue="none"), swap, tile_n)


@pytest.mark.parametrize(("swap", "cluster", "fits"), [(0, "1x1x4", False), (0, "1x1x2", True)])
def test_parts_of_a_cluster_have_whole_pairs_of_columns(
    swap: int, cluster: str, fits: bool
) -> None:
    config = Config.of("wgmma", {**CONFIG.values, "bn": 96, "cluster": cluster, "swap": swap})
    message = "a block stores 24 columns; pairs of them come in multiples of 16"
    (rule,) = (rule for rule in WGMMA.rules if rule.reason == "gates")
    fault = rule.check(WGMMA.decode(config), GATED, H100)
    assert fault == (None if fits else message)
