"""The configurations that `simt` rejects, with reasons and numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.device import find
from autotune.families.config import Config
from autotune.model import space
from autotune.problem import Problem

H100 = find("h100")
# 64 x 128 tiles, 128 threads with 8 x 8 accumulators each.
CONFIG = Config.parse(
    "simt:bm=64,bn=128,wm=32,wn=64,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=1,"
    "order=columns"
)
DEEP, WIDE = "256x512x8192", "4096x4096x4096"
Values = dict[str, int | str]


def rejection(values: Values, text: str, device: str = "h100") -> str:
    assert values.keys() <= CONFIG.values.keys()
    config = Config.of("simt", {**CONFIG.values, **values})
    return str(space.rejection(config, Problem.parse(text), find(device)))


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        ({}, "32x512x512", "larger than the matrix: bm=64 is at least twice M=32"),
        (
            {"bn": 16, "wn": 16, "tn": 4},
            "64x64x64",
            "larger than the matrix: bn=16 is for less than N=64",
        ),
        ({"wm": 128}, DEEP, "divisibility: wm=128 does not divide bm=64"),
        (
            {"tm": 16, "tn": 4},
            DEEP,
            "thread tile: 16x4 loads 20 values for 64 products; at most 2 to 1",
        ),
        ({"wm": 64, "wn": 32}, DEEP, "None"),
        ({"wm": 64}, DEEP, "warp shape: 64x64 is 8x8 threads of 8x8, not 4x8"),
        ({"slices": 8, "bk": 64}, DEEP, "threads: 1024 a block; 64 to 512 are tried"),
        ({"slices": 2}, WIDE, "slices: 2048 tiles keep 132 SMs busy with one slice each"),
        ({"slices": 4, "bk": 8}, DEEP, "steps: bk=8 has 2 steps for each of 4 slices; 4 to 16"),
        ({"stages": 2}, DEEP, "None"),
        ({"stages": 5}, DEEP, "stages: stages=5 of bk=16 steps, async; (2, 3, 4) are tried"),
        (
            {"stages": 2, "bk": 8},
            DEEP,
            "stages: stages=2 of bk=8 steps, async; (3, 4, 5) are tried",
        ),
        (
            {"copy": "staged", "stages": 2, "wm": 16, "tm": 4, "fence": 0, "order": "rows"},
            DEEP,
            "copy: 4x8 sums leave no time to go through registers",
        ),
        (
            {"wm": 64, "tm": 16, "fragments": 1, "fence": 0},
            DEEP,
            "fragments: 128 sums: fewer have registers for two fragments, more too few warps for "
            "one",
        ),
        ({"fragments": 1}, DEEP, "fence: 8x8 sums with 1 fragments gain nothing from it"),
        ({"order": "rows"}, DEEP, "order: rows of 8x8 sums go along the longer side"),
        (
            {"min_blocks": 2},
            DEEP,
            "launch bounds: 2 blocks of 128 threads leave 255 registers; about 122 are taken",
        ),
    ],
)
def test_tile_and_loop_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        (
            {"split_k": 16, "reduction": "separate"},
            "256x512x600",
            "split-K: 38 k-iterations of 16 do not go into 16 splits of 2 or more",
        ),
        (
            {"split_k": 2, "reduction": "fused"},
            WIDE,
            "split-K: 2048 tiles fill 132 SMs as well with less than 2 splits",
        ),
        ({"split_k": 4}, DEEP, "reduction: split_k=4 with reduction=none"),
        ({"reduction": "fused"}, DEEP, "reduction: split_k=1 with reduction=fused"),
        (
            {"split_k": 32, "reduction": "fused"},
            "64x128x8192",
            "reduction: the last block of a tile would read 1048576 bytes; 524288 at most",
        ),
        ({"split_k": 32, "reduction": "separate"}, "64x128x8192", "None"),
        ({"reduction": "stream"}, DEEP, "stream-K: workers=0 with reduction=stream"),
        ({"workers": 132}, DEEP, "stream-K: workers=132 with reduction=none"),
        (
            {"reduction": "stream", "workers": 132},
            f"{DEEP}:batch=2",
            "stream-K: workers share one matrix; the batch has 2",
        ),
        (
            {"reduction": "stream", "workers": 132},
            "704x1536x8192",
            "stream-K: 132 tiles keep 132 SMs busy as they are",
        ),
        (
            {"reduction": "stream", "workers": 264},
            "256x512x512",
            "stream-K: 16 tiles of 32 k-iterations leave 264 workers less than 4 each",
        ),
        (
            {"reduction": "stream", "workers": 264, "bm": 128, "bn": 256},
            "1024x1024x8192",
            "workers: 2 workers an SM need about 124928 registers of 65536",
        ),
        ({"chunks": 2}, "256x512x2047", "chunks: 2 chunks of 2047 terms; 1024 each at least"),
        ({"chunks": 2}, "256x512x2048", "None"),
        (
            {"chunks": 2, "split_k": 8, "reduction": "fused"},
            DEEP,
            "chunks: 2 chunks of 1024 terms; 1024 each at least",
        ),
        # A is K-contiguous, which cp.async cannot transpose; rows of B run along N and are even.
        ({"pack": "ab"}, WIDE, "pack: a would gain from a copy"),
        ({"pack": "a"}, "64x128x512", "pack: no operand would gain from a copy"),
        ({"pack": "b"}, "1024x1024x512:tt", "None"),
        ({"group": 8}, DEEP, "group: 16 tiles are few for 132 SMs; their order is free"),
        ({"group": 8}, "65536x128x64", "group: 1024x1 tiles have no groups of 8 rows"),
    ],
)
def test_k_sharing_rules_reject_with_numbers(values: Values, text: str, reason: str) -> None:
    assert rejection(values, text) == reason


def test_device_without_cp_async_stages_through_registers() -> None:
    message = "copy: cp.async needs compute capability 8.0; Tesla T4 has 7.5"
    assert rejection({}, DEEP, "t4") == message
    assert rejection({"copy": "staged", "stages": 2}, DEEP, "t4") == "None"


def test_workspace_is_at_most_an_eighth_of_the_memory() -> None:
    small = replace(H100, memory_bytes=2**23)
    config = Config.of("simt", {**CONFIG.values, "split_k": 4, "reduction": "separate"})
    rejected = space.rejection(config, Problem.parse(DEEP), small)
    message = f"needs {4 * 4 * 256 * 512} bytes; 1048576 of {H100.name} are taken at most"
    assert str(rejected) == f"workspace: {message}"


def test_stream_k_leaves_registers_to_spare_in_launch_bounds() -> None:
    card, problem = find("rtx-3090"), Problem(64, 4096, 4096)
    streamed = Config.parse(
        "simt:bm=64,bn=256,wm=32,wn=64,tm=8,tn=8,slices=1,bk=8,copy=async,stages=3,fragments=2,"
        "min_blocks=2,split_k=1,reduction=stream,workers=164,chunks=1,pack=none,group=1,fence=1,"
        "order=snake"
    )
    plain = streamed.of("simt", {**streamed.values, "reduction": "none", "workers": 0})
    rejection = str(space.rejection(streamed, problem, card))
    assert "about 146 a thread; 2 blocks of 256 threads leave 128" in rejection
    assert space.rejection(plain, problem, card) is None
