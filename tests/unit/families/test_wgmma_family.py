"""The launches of `wgmma`: tensor maps, packing, resources of a block, K sharing."""

from __future__ import annotations

import re
from functools import partial
from itertools import product
from math import gcd
from typing import Any

import pytest
from support.launch_structs import members
from support.sample_records import H100

from autotune import settings
from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Struct, TensorMap
from autotune.families.shared.arguments import call_struct, divisor, struct
from autotune.families.wgmma import WGMMA
from autotune.families.wgmma.parameters import RESIDENT
from autotune.families.wgmma.tiles import CLUSTERS
from autotune.model import space
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up
from autotune.tuning.pipeline import SPILL_LIMIT

CONFIG = Config.parse(
    "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=1x1,split_k=1,reduction=none,workers=0,"
    "store=staged,stages=3,group=1"
)
BF16 = Problem(4096, 4096, 4096, "bf16")
TF32 = Problem(4096, 4096, 4096, "tf32")
NEAR = Problem(4096, 4096, 4096, "tf32x3")
ODD = Problem(513, 1025, 601, "bf16")
EIGHT_BITS = Problem(4096, 4096, 4096, "f8", "nt")
BLOCKS = Problem(4096, 4096, 4096, "f8", "nt", scale="block")
TILE_BYTES = 4 * 128 * 256
SHAPES = [
    Problem(128, 128, 128, "bf16"),
    Problem(4097, 4095, 4093, "f16", "tt"),
    Problem(1024, 1024, 1024, "tf32"),
    Problem(37, 53, 71, "tf32", "tn"),
    Problem(8, 4096, 4096, "tf32x3"),
    Problem(64, 64, 65536, "tf32x3", "tn"),
    Problem(4096, 8, 512, "bf16", "nt", output="f32"),
    Problem(300, 200, 1000, "f16", "tn", batch=7),
]


def changed(**values: int | str) -> Config:
    """`CONFIG` with the named values replaced."""
    assert values.keys() <= CONFIG.values.keys()
    return Config.of("wgmma", {**CONFIG.values, **values})


# B of layout nn is not K-contiguous: it is the first operand, through registers.
TRANSPOSED = changed(swap=1, bm=256, bn=128, source="registers", bk=32, store="direct")
SPLIT = changed(
    swap=1, bm=96, bn=128, source="registers", low="kernel", bk=32, promote=2, store="direct"
)


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    return WGMMA.plan(config, problem, alignment or Alignment.dense(problem))


def compiled(launched: LaunchPlan, *names: str) -> tuple[int, ...]:
    """Values of the named template arguments of the GEMM launch, as integers."""
    arguments = launched.main.template.numbers
    return tuple(arguments[name] for name in names)


def maps(launch: Launch) -> list[TensorMap]:
    values = (argument.value for argument in launch.arguments)
    return [value for value in values if isinstance(value, TensorMap)]


def strides(launched: LaunchPlan) -> list[Any]:
    """The strides of A and B that the kernel takes."""
    return members(launched.main, "Call", "stride_a", "stride_b")


def schedule(launched: LaunchPlan, *names: str) -> tuple[Any, ...]:
    """Values of the named members of the schedule; of a divisor the number that it divides by."""
    return tuple(
        value["value"].value if isinstance(value, Struct) else value
        for value in members(launched.main, "WgmmaSchedule", *names)
    )


def sample(problem: Problem, most: int = 60) -> list[Config]:
    """Legal configurations, spread evenly over the space."""
    return list(space.spread(space.feasible(problem, H100, "wgmma").configs, most))


def alignments(problem: Problem) -> list[Alignment]:
    """Every alignment that a caller's arrays may have."""
    of_a_and_b = [1 << i for i in range(5) if problem.element_bytes << i <= 16]
    of_c = [1 << i for i in range(5) if problem.output_bytes << i <= 16]
    return [Alignment(*widths) for widths in product(of_a_and_b, of_a_and_b, of_c)]


def test_kernel_arguments_are_maps_then_structs_then_numbers() -> None:
    launched = plan(CONFIG, BF16)
    (launch,) = launched.launches
    assert [argument.type for argument in launch.arguments[:4]] == ["tensor_map"] * 4
    assert launch.arguments[4] == call_struct()
    assert [argument.value for argument in launch.arguments[6:]] == [*[4096] * 3, "alpha", "beta"]
    # 32 x 16 tiles of 64 k-iterations, in groups of a row.
    assert launch.arguments[5] == struct(
        "WgmmaSchedule",
        start_partials=Argument("i64", 0),
        tiles=divisor(512),
        shares=divisor(1),
        group_tiles=divisor(16),
        group=divisor(1),
        last_group=divisor(1),
        rows=Argument("i32", 32),
        columns=Argument("i32", 16),
        steps=Argument("i32", 64),
        batch=Argument("i32", 1),
        streamed=Argument("i32", 0),
        part_steps=Argument("i32", 64),
        longer_parts=Argument("i32", 0),
    )
    assert (launched.workspace, launched.counters, launched.product) == (0, 0, 0)


def test_arguments_match_the_cuda_source() -> None:
    launch = plan(CONFIG, BF16).main
    text = (settings.source_dir() / launch.template.source).read_text(encoding="utf-8")
    kernel = re.search(r"template <class Params>\s*__global__[^{]*?\bwgmma\(([^{]*)\) \{", text)
    assert kernel is not None
    structs = {"Operands<": "struct", "WgmmaSchedule ": "struct"}
    types = {"TensorMap ": "tensor_map", **structs, "int ": "i32"}
    declared = [
        next(kind for word, kind in {**types, "float ": "f32"}.items() if word in parameter)
        for parameter in kernel[1].split(",")
    ]
    assert declared == [argument.type for argument in launch.arguments]
    assert launch.template.specific


def test_operands_are_read_in_place_in_128_byte_boxes() -> None:
    of_a, of_b, unused, of_c = maps(plan(CONFIG, BF16).main)
    in_place = partial(
        TensorMap, offset=0, type="bf16", columns=4096, rows=4096, batch=1, swizzle=128
    )
    # A is K-contiguous: boxes of 64 k by 128 rows. B is not: 64 columns by 64 k.
    assert of_a == in_place("a", pitch="lda", stride="stride_a", box=(64, 128))
    assert of_b == in_place("b", pitch="ldb", stride="stride_b", box=(64, 64))
    assert unused == of_b
    assert of_c == in_place("c", pitch="ldc", stride="stride_c", box=(64, 64))


@pytest.mark.parametrize(
    ("layout", "stored"),
    [
        ("nn", [(600, 513), (1024, 600)]),
        ("nt", [(600, 513), (600, 1024)]),
        ("tn", [(513, 600), (1024, 600)]),
        ("tt", [(513, 600), (600, 1024)]),
    ],
)
def test_tensor_maps_have_the_stored_rows_and_columns(
    layout: str, stored: list[tuple[int, int]]
) -> None:
    problem = Problem(513, 1024, 600, "f16", layout)
    of_a, of_b, *_ = maps(plan(CONFIG, problem, Alignment(8, 8, 8)).main)
    assert [(operand.columns, operand.rows) for operand in (of_a, of_b)] == stored


def test_transposed_gemm_reads_b_as_the_first_operand() -> None:
    launched = plan(TRANSPOSED, TF32)
    first, second, _, of_c = maps(launched.main)
    assert (first.base, second.base, of_c) == ("b", "a", second)
    assert (first.box, second.box, first.type) == ((32, 32), (32, 256), "tf32")
    assert strides(launched) == ["stride_a", "stride_b"]
    names = ("TILE_M", "TILE_N", "A_IN_REGISTERS", "A_ALONG_K", "B_ALONG_K", "TRANSPOSED", "STORE")
    assert compiled(launched, *names) == (128, 256, 1, 0, 1, 1, 0)


@pytest.mark.parametrize(
    ("values", "layout", "box_rows"),
    [
        # A has 128 rows; B has 4 spans of 64 columns, of 64 k each.
        ({}, "nn", [128, 64]),
        # Blocks along M share B: each loads 2 spans, or with 4 blocks one.
        ({"cluster": "2x1"}, "nn", [128, 64]),
        ({"cluster": "4x1"}, "nn", [128, 64]),
        # 3 spans have no halves or quarters of whole spans, but of k.
        ({"cluster": "2x1", "bn": 192}, "nn", [128, 32]),
        ({"cluster": "4x1", "bn": 192}, "nn", [128, 16]),
        # A K-contiguous B is shared by its 256 rows.
        ({"cluster": "2x1"}, "nt", [128, 128]),
        ({"cluster": "4x1"}, "nt", [128, 64]),
        # Blocks along N share A; two lines of K have halves.
        ({"cluster": "1x2"}, "nn", [64, 64]),
        ({"cluster": "1x4"}, "nn", [32, 64]),
        ({"cluster": "1x2", "bk": 128}, "nn", [128, 128]),
        ({"cluster": "1x4", "bk": 128}, "nn", [64, 128]),
        ({"cluster": "2x2"}, "nt", [64, 128]),
        ({"cluster": "4x2"}, "nt", [64, 64]),
        # Those along K have splits of their own.
        ({"cluster": "1x1x8", "split_k": 8}, "nt", [128, 256]),
        ({"cluster": "2x1x2", "split_k": 2}, "nt", [128, 128]),
    ],
)
def test_cluster_blocks_each_load_part_of_a_shared_operand(
    values: dict[str, int | str], layout: str, box_rows: list[int]
) -> None:
    launched = plan(changed(**values), Problem(4096, 4096, 4096, "bf16", layout))
    assert [operand.box[1] for operand in maps(launched.main)[:2]] == box_rows


def check_boxes(rows: int, along_k: int, box_rows: int, sharers: int, problem: Problem) -> None:
    """Checks that the boxes of all sharers of an operand make up a stage of 128 bytes of K."""
    span = 128 // problem.element_bytes
    spans, lines = (1, rows) if along_k else (ceil_div(rows, span), span)
    boxes = spans // gcd(spans, sharers)
    # The swizzle repeats after 8 lines.
    assert box_rows % 8 == 0
    assert boxes * box_rows * sharers == spans * lines


@pytest.mark.parametrize(
    "problem",
    [
        *(Problem(1024, 1024, 1024, "bf16", layout) for layout in ("nn", "nt", "tn", "tt")),
        Problem(1024, 1024, 1024, "tf32", "nt"),
        Problem(1024, 1024, 1024, "tf32x3", "nt"),
        Problem(1000, 1400, 3000, "f16", "tt", batch=2),
    ],
    ids=str,
)
def test_legal_clusters_load_whole_swizzled_spans(problem: Problem) -> None:
    line = 128 // problem.element_bytes
    kinds: dict[tuple[object, ...], Config] = {}
    for config in space.feasible(problem, H100, "wgmma").configs:
        names = ("swap", "bm", "bn", "cluster", "source", "low")
        if config.values["bk"] == line:
            kinds[tuple(config.values[name] for name in names)] = config
    assert {config.values["cluster"] for config in kinds.values()} >= {"1x1", "2x1", "1x2"}
    for config in kinds.values():
        launched = plan(config, problem)
        names = ("TILE_M", "TILE_N", "A_ALONG_K", "B_ALONG_K", "CLUSTER_M", "CLUSTER_N")
        tile_m, tile_n, a_along_k, b_along_k, cluster_m, cluster_n = compiled(launched, *names)
        of_a, of_b = maps(launched.main)[:2]
        check_boxes(tile_m, a_along_k, of_a.box[1], cluster_n, problem)
        check_boxes(tile_n, b_along_k, of_b.box[1], cluster_m, problem)


def test_every_form_of_cluster_is_tried_somewhere() -> None:
    problems = (
        *("1024x1024x1024:bf16:nt", "1024x1024x1024:tf32:tn", "256x512x8192:bf16"),
        "64x64x65536:tf32x3",
    )
    tried = {
        config.values["cluster"]
        for text in problems
        for config in space.feasible(Problem.parse(text), H100, "wgmma").configs
    }
    # With splits of K more than two tiles wait for too many blocks.
    assert tried == {name for name, (m, n, k) in CLUSTERS.items() if k == 1 or m * n <= 2}


def test_clusters_have_at_most_8_blocks() -> None:
    for name, shape in CLUSTERS.items():
        assert name == "x".join(map(str, shape if shape.k > 1 else shape[:2]))
        assert shape.blocks <= 8
        assert max(shape.m, shape.n) <= 4
    assert {"1x1", "4x2", "2x4", "1x1x8", "2x1x4", "1x2x4"} <= CLUSTERS.keys()


THOUSAND = Problem(1000, 1000, 4096, "bf16")


@pytest.mark.parametrize(
    ("config", "problem", "grid"),
    [
        (CONFIG, THOUSAND, (8 * 4, 1, 1)),
        (CONFIG, Problem(1000, 1000, 64, "bf16", batch=3), (8 * 4, 1, 3)),
        (changed(split_k=4, reduction="fused"), THOUSAND, (8 * 4, 4, 1)),
        (
            changed(split_k=4, reduction="fused"),
            Problem(1000, 1000, 4096, "bf16", batch=3),
            (8 * 4, 4, 3),
        ),
        (changed(cluster="2x1"), Problem(1100, 1000, 64, "bf16"), (10 * 4, 1, 1)),
        (changed(cluster="1x2"), Problem(1000, 1100, 64, "bf16"), (8 * 6, 1, 1)),
        (changed(cluster="2x2"), Problem(1100, 1100, 64, "bf16"), (10 * 6, 1, 1)),
        (changed(cluster="4x1", split_k=3, reduction="fused"), THOUSAND, (8 * 4, 3, 1)),
        # A cluster's splits lie along x, the others along y.
        (changed(cluster="1x1x4", split_k=4), THOUSAND, (8 * 4 * 4, 1, 1)),
        (changed(cluster="2x1x2", split_k=6, reduction="fused"), THOUSAND, (8 * 4 * 2, 3, 1)),
        # Of 132 workers 128 take 4 of 512 tiles each.
        (changed(workers=132), BF16, (128, 1, 1)),
        (changed(workers=132, cluster="2x1"), BF16, (128, 1, 1)),
        (changed(workers=133, cluster="2x1"), Problem(128 * 134, 256, 64, "bf16"), (68, 1, 1)),
        (changed(workers=132), Problem(1000, 1000, 64, "bf16", batch=3), (96, 1, 1)),
        (changed(workers=132, split_k=4, reduction="fused"), THOUSAND, (128, 1, 1)),
        (changed(workers=132, reduction="stream"), THOUSAND, (132, 1, 1)),
        (changed(workers=132, reduction="stream", cluster="2x1"), THOUSAND, (132, 1, 1)),
    ],
)
def test_grid_is_tiles_by_splits_by_matrices_or_workers(
    config: Config, problem: Problem, grid: tuple[int, int, int]
) -> None:
    launched = plan(config, problem)
    assert launched.main.grid == grid
    assert compiled(launched, "PERSISTENT") == (int(config.integer("workers") > 0),)


@pytest.mark.parametrize("cluster", ["1x1", "2x1", "2x2"])
def test_workers_are_the_fewest_that_need_no_more_waves(cluster: str) -> None:
    size = CLUSTERS[cluster].blocks
    sharing = WGMMA.decode(changed(workers=132, cluster=cluster))
    for units in range(1, 700):
        # Clusters of 4 have two tiles along N.
        columns = CLUSTERS[cluster].n
        problem = Problem(128 * units * CLUSTERS[cluster].m, 256 * columns, 64, "bf16")
        launched = sharing.blocks(problem) // size
        waves = ceil_div(units, launched)
        assert launched <= 132 // size
        assert waves == ceil_div(units, 132 // size)
        assert launched == 1 or ceil_div(units, launched - 1) > waves


@pytest.mark.parametrize(("tiles", "streamed"), [(100, 100), (264, 132), (300, 132 + 36)])
def test_stream_k_workers_share_only_the_last_tiles(tiles: int, streamed: int) -> None:
    launched = plan(changed(workers=132, reduction="stream"), Problem(128 * tiles, 256, 64, "bf16"))
    assert schedule(launched, "rows", "columns", "streamed", "shares") == (tiles, 1, streamed, 1)
    assert (launched.workspace, launched.counters) == (132 * 2 * TILE_BYTES, tiles)


@pytest.mark.parametrize(
    ("cluster", "rows", "columns", "streamed"),
    [("2x1", 150, 2, 36 + 66), ("1x2", 300, 1, 36 + 66), ("2x2", 150, 1, 18 + 33)],
)
def test_stream_k_clusters_share_the_k_of_their_tiles(
    cluster: str, rows: int, columns: int, streamed: int
) -> None:
    # 300 rows of 2 tiles; 132 workers are 66 or 33 clusters.
    config = changed(workers=132, reduction="stream", cluster=cluster)
    launched = plan(config, Problem(128 * 300, 512, 64, "bf16"))
    assert schedule(launched, "rows", "columns", "streamed") == (rows, columns, streamed)
    assert launched.main.grid == (132, 1, 1)
    # Two partial tiles of each block; a counter for each tile.
    assert (launched.workspace, launched.counters) == (132 * 2 * TILE_BYTES, 600)


@pytest.mark.parametrize("batch", [1, 3])
def test_split_k_keeps_whole_tiles_and_counts_them(batch: int) -> None:
    problem = Problem(1000, 1000, 4096, "bf16", batch=batch)
    launched = plan(changed(split_k=4, reduction="fused"), problem)
    assert schedule(launched, "rows", "columns", "batch", "shares") == (8, 4, batch, 4)
    assert schedule(launched, "steps", "part_steps", "longer_parts") == (64, 16, 0)
    assert (launched.workspace, launched.counters) == (batch * 4 * 32 * TILE_BYTES, batch * 32)


@pytest.mark.parametrize(
    ("cluster", "rows", "columns", "tiles"),
    [("2x1", 5, 5, 50), ("1x2", 9, 3, 54), ("2x2", 5, 3, 60), ("4x1", 3, 5, 60)],
)
def test_split_k_counts_the_tiles_of_whole_clusters(
    cluster: str, rows: int, columns: int, tiles: int
) -> None:
    # 9 x 5 tiles, padded to whole clusters; 65 k-iterations.
    problem = Problem(1104, 1104, 4104, "bf16", batch=2)
    launched = plan(changed(cluster=cluster, split_k=4, reduction="fused"), problem)
    assert launched.main.grid == (tiles, 4, 2)
    assert schedule(launched, "rows", "columns", "batch", "shares") == (rows, columns, 2, 4)
    assert schedule(launched, "steps", "part_steps", "longer_parts") == (65, 16, 1)
    assert (launched.workspace, launched.counters) == (2 * 4 * tiles * TILE_BYTES, 2 * tiles)


@pytest.mark.parametrize("cluster", ["2x1x2", "1x2x2"])
def test_clusters_of_tiles_and_splits_count_each_part(cluster: str) -> None:
    config = changed(cluster=cluster, split_k=6, reduction="fused")
    launched = plan(config, Problem(512, 512, 4096, "bf16"))
    # 4 x 2 tiles, each with 2 splits in its cluster and 3 such pairs.
    assert launched.main.grid == (8 * 2, 3, 1)
    assert schedule(launched, "shares", "part_steps", "longer_parts") == (3, 10, 4)
    assert (launched.workspace, launched.counters) == (3 * 8 * TILE_BYTES, 2 * 8)


def test_one_launch_packs_operands_tma_cannot_read() -> None:
    packs, gemm = plan(CONFIG, ODD).launches
    assert (packs.template.kernel, gemm.template.kernel) == ("pack", "wgmma")
    of_a, of_b, *_ = maps(gemm)
    # Packing keeps the order of 16-bit operands: 513 rows of 601, 601 of 1025, in lines of 64.
    assert (of_a.base, of_a.columns, of_a.rows, of_a.pitch) == ("workspace", 601, 513, 640)
    assert (of_b.base, of_b.columns, of_b.rows, of_b.pitch) == ("workspace", 1025, 601, 1088)
    assert (of_a.offset, of_b.offset) == (0, 513 * 640 * 2)
    assert (of_a.stride, of_b.stride) == (513 * 640, 601 * 1088)


def test_operand_tma_can_read_is_not_packed() -> None:
    packs, gemm = plan(CONFIG, BF16, Alignment(8, 4, 8)).launches
    assert dict(packs.template.arguments)["COPY_A"] == 0
    of_a, of_b, *_ = maps(gemm)
    assert (of_a.base, of_b.base, of_b.offset) == ("a", "workspace", 0)
    assert strides(plan(CONFIG, BF16, Alignment(8, 4, 8))) == ["stride_a", 4096 * 4096]


def test_32_bit_operands_are_transposed_for_shared_memory() -> None:
    launched = plan(changed(bk=32, store="direct"), TF32)
    packs, gemm = launched.launches
    assert dict(packs.template.arguments)["TRANSPOSED_B"] == 1
    assert [operand.base for operand in maps(gemm)[:2]] == ["a", "workspace"]
    assert compiled(launched, "A_ALONG_K", "B_ALONG_K") == (1, 1)
    assert launched.workspace == 4 * 4096 * 4096


def test_low_part_is_made_by_the_kernel_or_by_packing() -> None:
    kernel, by_pass = (
        plan(Config.of("wgmma", {**SPLIT.values, "low": low}), NEAR) for low in ("kernel", "pass")
    )
    names = ("PRODUCTS", "LOW_PACKED", "PROMOTE", "A_IN_REGISTERS")
    assert compiled(kernel, *names) == (3, 0, 2, 1)
    assert compiled(by_pass, *names) == (3, 1, 2, 1)
    assert len(kernel.launches) == 1
    _, of_high, of_low, _ = maps(by_pass.main)
    plane = 4 * 4096 * 4096
    assert (of_high.base, of_high.offset, of_low.offset) == ("workspace", 0, plane)
    assert (by_pass.workspace, of_low.type) == (2 * plane, "f32")


def test_partial_sums_follow_the_copies_of_the_whole_batch() -> None:
    problem = Problem(100, 100, 4097, "bf16", batch=3)
    config = changed(bn=104, split_k=4, reduction="fused")
    launched = plan(config, problem)
    # Rows of A and B are padded to whole lines of 64 elements.
    copied = round_up(3 * 100 * 4160 * 2, 256) + round_up(3 * 4097 * 128 * 2, 256)
    assert schedule(launched, "start_partials") == (copied // 4,)
    assert launched.workspace == copied + 3 * 4 * 4 * 128 * 104


@pytest.mark.parametrize(
    ("values", "problem", "alignment", "store"),
    [
        ({}, BF16, 8, 2),
        ({}, BF16, 4, 1),  # TMA cannot write rows of this alignment
        ({"bn": 96}, BF16, 8, 1),  # rows of the tile are not whole lines of 128 bytes
        ({"swap": 1, "bm": 96, "bn": 128}, BF16, 8, 2),
        ({"store": "direct"}, BF16, 8, 0),
    ],
)
def test_tma_stores_whole_lines_if_rows_are_aligned(
    values: dict[str, int | str], problem: Problem, alignment: int, store: int
) -> None:
    launched = plan(changed(**values), problem, Alignment(8, 8, alignment))
    assert compiled(launched, "STORE", "VC") == (store, alignment)
    of_c = maps(launched.main)[3]
    assert (of_c.base == "c") == (store == 2)


def test_transposed_tile_is_stored_in_lines_of_all_its_rows() -> None:
    of_c = maps(plan(changed(swap=1, bm=96, bn=128), BF16).main)[3]
    assert of_c.box == (64, 96)


DEEP = Problem(256, 512, 8192, "bf16")


def test_cluster_blocks_split_the_k_of_a_tile() -> None:
    launched = plan(changed(cluster="1x1x4", split_k=4), DEEP)
    names = ("CLUSTER_M", "CLUSTER_N", "CLUSTER_K", "REDUCTION")
    assert compiled(launched, *names) == (1, 1, 4, 0)
    # Four blocks for each of 2 x 2 tiles, which reduce in shared memory: no workspace.
    assert launched.main.grid == (16, 1, 1)
    assert schedule(launched, "rows", "columns", "shares") == (2, 2, 1)
    assert schedule(launched, "steps", "part_steps", "longer_parts") == (128, 32, 0)
    assert (launched.workspace, launched.counters) == (0, 0)
    # Each block loads its own split, not a part for the others.
    assert [operand.box for operand in maps(launched.main)[:2]] == [(64, 128), (64, 64)]


@pytest.mark.parametrize("batch", [1, 3])
def test_clusters_split_k_and_each_reducer_counts_its_part(batch: int) -> None:
    config = changed(cluster="1x1x4", split_k=12, reduction="fused")
    launched = plan(config, Problem(256, 512, 8192, "bf16", batch=batch))
    assert launched.main.grid == (4 * 4, 3, batch)
    assert schedule(launched, "shares", "batch") == (3, batch)
    # 128 k-iterations in 12 parts.
    assert schedule(launched, "part_steps", "longer_parts") == (10, 8)
    # 3 partial sums of whole tiles; each of the 4 blocks stores a part of the tile.
    assert (launched.workspace, launched.counters) == (batch * 4 * 3 * TILE_BYTES, batch * 4 * 4)


@pytest.mark.parametrize(
    ("tile_n", "cluster", "count"),
    [
        *((256, "1x1x8", 8), (96, "1x1x8", 4), (48, "1x1x8", 2), (40, "1x1x8", 1)),
        *((96, "1x1x4", 4), (48, "1x1x4", 2), (40, "1x1x2", 1), (256, "1x1", 1)),
    ],
)
def test_reducers_each_take_whole_instructions(tile_n: int, cluster: str, count: int) -> None:
    assert WGMMA.decode(changed(bn=tile_n, cluster=cluster)).reducers == count


@pytest.mark.parametrize(
    ("cluster", "store", "box"),
    [("1x1x2", 2, (64, 64)), ("1x1x4", 2, (64, 64)), ("1x1x8", 1, None)],
)
def test_tma_stores_a_reducers_part_of_whole_lines(
    cluster: str, store: int, box: tuple[int, int] | None
) -> None:
    # Each of 8 parts of 256 columns has rows of 64 bytes.
    launched = plan(changed(cluster=cluster, split_k=8, reduction="fused"), DEEP)
    of_c = maps(launched.main)[3]
    assert compiled(launched, "STORE") == (store,)
    assert (of_c.box if of_c.base == "c" else None) == box


@pytest.mark.parametrize(("cluster", "rows"), [("1x1", 96), ("1x1x2", 48), ("1x1x8", 24)])
def test_reducers_part_of_a_transposed_tile_has_fewer_rows(cluster: str, rows: int) -> None:
    split_k = CLUSTERS[cluster].k
    launched = plan(changed(swap=1, bm=96, bn=128, cluster=cluster, split_k=split_k), BF16)
    assert compiled(launched, "STORE") == (2,)
    assert maps(launched.main)[3].box == (64, rows)


@pytest.mark.parametrize(
    "problem",
    [DEEP, Problem(64, 64, 65536, "tf32x3", "tn"), Problem(8, 4096, 4096, "f16")],
    ids=str,
)
def test_legal_split_k_clusters_meet_the_kernel_constraints(problem: Problem) -> None:
    configs = [
        config
        for config in space.feasible(problem, H100, "wgmma").configs
        if WGMMA.decode(config).shape.k > 1
    ]
    assert configs
    for config in configs:
        launched = plan(config, problem)
        names = ("TYPE_A", "TILE_M", "TILE_N", "TILE_K", "STAGES", "PRODUCTS", "B_ALONG_K")
        type_, tile_m, tile_n, bk, stages, products, along_k = compiled(launched, *names)
        cluster_m, cluster_n, cluster_k, pingpong = compiled(
            launched, "CLUSTER_M", "CLUSTER_N", "CLUSTER_K", "PINGPONG"
        )
        assert (cluster_m * cluster_n <= 2, pingpong) == (True, 0)
        assert compiled(launched, "PERSISTENT") == (0,)
        assert launched.main.grid[0] % (cluster_m * cluster_n * cluster_k) == 0
        # The partial sums of a part overlay the buffers.
        b_rows = (tile_n if along_k else round_up(tile_n, 64)) + tile_n * (products == 3)
        partial_bytes = cluster_k // WGMMA.decode(config).reducers * tile_m * tile_n * 4
        assert partial_bytes <= stages * bk * (2 if type_ else 4) * (tile_m + b_rows)
        # Every split has a k-iteration; an empty one would wait for ever.
        assert config.integer("split_k") <= ceil_div(problem.k, bk)
        (shares,) = schedule(launched, "shares")
        assert config.integer("split_k") == cluster_k * shares == cluster_k * launched.main.grid[1]


def test_cluster_reduction_needs_no_workspace() -> None:
    alone, inside = (
        WGMMA.work(changed(cluster=cluster, split_k=4, reduction=reduction), DEEP)
        for cluster, reduction in (("1x1", "fused"), ("1x1x4", "none"))
    )
    assert (inside.blocks, inside.iterations) == (alone.blocks, alone.iterations)
    assert (inside.gathers, alone.gathers > 0) == (0, True)
    assert inside.end > alone.end


def test_each_reducer_gathers_its_part_of_the_partial_sums() -> None:
    alone, clusters = (
        WGMMA.work(changed(cluster=cluster, split_k=split, reduction="fused"), DEEP)
        for cluster, split in (("1x1", 4), ("1x1x4", 16))
    )
    assert clusters.gathers == alone.gathers / 4


UNALIGNED = Problem(1000, 1000, 1000, "bf16")


def test_line_packing_aligns_rows_to_cache_lines() -> None:
    in_place, packed = (plan(changed(pack=pack), UNALIGNED) for pack in ("needed", "lines"))
    assert [operand.base for operand in maps(in_place.main)[:2]] == ["a", "b"]
    assert (len(in_place.launches), in_place.workspace) == (1, 0)
    packs, gemm = packed.launches
    of_a, of_b, _, of_c = maps(gemm)
    for operand in (of_a, of_b):
        # Rows of 2000 bytes are padded to 2048; the padding is not multiplied.
        assert (operand.base, operand.columns, operand.rows) == ("workspace", 1000, 1000)
        assert (operand.pitch, operand.stride) == (1024, 1000 * 1024)
    assert [packs.arguments[i].value for i in (5, 15)] == [1024, 1024]
    assert (of_a.offset, of_b.offset) == (0, 1000 * 2048)
    assert (of_c.base, of_c.pitch) == ("c", "ldc")
    assert strides(packed) == [1000 * 1024, 1000 * 1024]
    assert packed.workspace == 2 * 1000 * 2048


def test_line_packing_leaves_aligned_rows_in_place() -> None:
    # Rows of B have 4096 elements, rows of A 1000.
    launched = plan(changed(pack="lines"), Problem(256, 4096, 1000, "bf16"))
    of_a, of_b, *_ = maps(launched.main)
    assert (of_a.base, of_a.pitch) == ("workspace", 1024)
    assert (of_b.base, of_b.pitch, of_b.offset) == ("b", "ldb", 0)
    assert launched.workspace == 256 * 2048


@pytest.mark.parametrize("pack", ["needed", "lines"])
def test_work_includes_the_packing_pass(pack: str) -> None:
    work = WGMMA.work(changed(pack=pack), UNALIGNED)
    copied = 2 * 1000 * 2048 if pack == "lines" else 0
    assert (work.passes, work.moved) == (int(copied > 0), 2 * copied)


@pytest.mark.parametrize("problem", [NEAR, ODD, EIGHT_BITS, BLOCKS], ids=str)
@pytest.mark.parametrize(("consumers", "blocks"), RESIDENT)
def test_consumers_get_the_registers_the_producer_leaves(
    consumers: int, blocks: int, problem: Problem
) -> None:
    params = WGMMA.chosen({"consumers": consumers, "min_blocks": blocks})
    share, entry = params.consumer_registers(problem), params.entry_registers
    pool = entry * (consumers + 1)
    if (consumers, blocks) == (1, 1):
        assert (share, pool) == (255, 2 * 255)  # no registers are moved
        return
    # The kernel's producer keeps 48 if a thread starts with at most 80, else 56; one that only
    # starts copies for 8-bit sums keeps 40.
    kept = 40 if problem == EIGHT_BITS else 48 if entry <= 80 else 56
    assert share % 8 == 0
    assert 0 <= pool - kept - consumers * share < 8 * consumers


def shared(launched: LaunchPlan) -> int:
    """Shared memory of a block in bytes, from the template arguments."""
    names = ("TYPE_A", "OUTPUT", "TILE_M", "TILE_N", "TILE_K", "STAGES", "CONSUMERS")
    type_, output, tile_m, tile_n, bk, stages, consumers = compiled(launched, *names)
    pingpong, products = compiled(launched, "PINGPONG", "PRODUCTS")
    along_k, transposed, store = compiled(launched, "B_ALONG_K", "TRANSPOSED", "STORE")
    row, out = bk * (2 if type_ else 4), 2 if output else 4
    blocks = (tile_m if pingpong else tile_m // consumers) // 64
    # A part is a line of 128 bytes of each row of C that an instruction has; two are staged.
    parts, lines = (blocks, tile_n) if transposed else (blocks * ceil_div(tile_n * out, 128), 64)
    staged = min(2, parts) * lines * 128
    b_rows, low = (tile_n if along_k else round_up(tile_n, 64)), tile_n * (products == 3)
    return 2048 + stages * row * (tile_m + b_rows + low) + consumers * staged * (store > 0)


@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_launches_fit_an_sm(problem: Problem) -> None:
    for config in sample(problem):
        launched, estimate = plan(config, problem), WGMMA.estimate(config, problem)
        resident = config.integer("min_blocks")
        assert launched.main.shared == shared(launched)
        assert launched.main.threads == estimate.threads == 128 * (config.integer("consumers") + 1)
        assert estimate.shared == launched.main.shared <= H100.shared_per_block_optin
        assert resident * (launched.main.shared + 1024) <= H100.shared_per_sm
        blocks = estimate.occupancy(H100).blocks_per_sm
        alone = (config.values["consumers"], resident) == (1, 1)
        assert blocks >= resident if alone else blocks == resident, str(config)


@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_copies_fit_the_workspace_for_every_alignment(problem: Problem) -> None:
    for config, alignment in product(sample(problem, 12), alignments(problem)):
        launched = plan(config, problem, alignment)
        ends = [0]
        for tensor_map in maps(launched.main):
            size, pitch, stride = tensor_map.element_bytes, tensor_map.pitch, tensor_map.stride
            assert tensor_map.box[0] * size == 128
            assert 8 <= tensor_map.box[1] <= 256
            if tensor_map.base != "workspace":
                assert getattr(alignment, tensor_map.base) * size == 16
                continue
            assert isinstance(pitch, int)
            assert isinstance(stride, int)
            assert tensor_map.offset % 16 == pitch * size % 16 == 0
            assert tensor_map.columns <= pitch
            assert tensor_map.rows * pitch <= stride
            ends.append(tensor_map.offset + tensor_map.batch * stride * size)
        (start,) = schedule(launched, "start_partials")
        assert max(ends) <= 4 * start <= launched.workspace
        assert (launched.product == 1) == (len(launched.launches) == 2) == (len(ends) > 1)


@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_work_covers_the_gemm(problem: Problem) -> None:
    multiply_adds = problem.products * problem.flops / 2
    for config in sample(problem):
        work = WGMMA.work(config, problem)
        assert work.blocks * work.iterations * work.tensor >= multiply_adds * 0.999, str(config)


@pytest.mark.parametrize("compute", ["bf16", "tf32", "tf32x3"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "shape",
    [
        *("1x1x1", "128x128x128", "1024x1024x1024", "4096x4096x4096", "8x4096x4096"),
        *("4096x8x4096", "64x64x65536", "37x53x71", "4097x4095x4093", "200000x8x64"),
    ],
)
def test_no_space_is_empty_or_too_large_to_search(shape: str, layout: str, compute: str) -> None:
    problem = Problem.parse(shape, compute=compute, layout=layout)
    # The low part of tf32x3 and its promotion multiply the choices.
    most = 4000 if compute == "tf32x3" else 3000
    assert 1 <= len(space.feasible(problem, H100, "wgmma").configs) <= most


# They differ in K sharing, in the source of the first operand and in how they store.
KINDS = [
    Problem(4096, 4096, 4096, "bf16"),
    Problem(1000, 1000, 4000, "f16", "tn", epilogue="bias_gelu"),
    Problem(8, 4096, 4096, "bf16", output="f32"),
    Problem(1024, 1024, 1024, "tf32"),
    Problem(1024, 1024, 1024, "tf32", "nt"),
    Problem(1024, 1024, 1024, "tf32x3", "tn"),
    DEEP,
]


@pytest.mark.parametrize("problem", KINDS, ids=str)
def test_legal_instances_compile_for_hopper(problem: Problem) -> None:
    for config in sample(problem, 2):
        check_compiled(config, problem)


@pytest.mark.parametrize(
    ("bm", "bn", "consumers", "min_blocks", "cluster"),
    [
        *((192, 160, 3, 1, "1x1x2"), (192, 192, 3, 1, "1x1x4"), (256, 128, 2, 1, "1x1x2")),
        *((128, 112, 1, 2, "1x1x2"), (128, 128, 1, 2, "1x1x8")),
    ],
)
def test_cluster_reduction_fits_the_registers(
    bm: int, bn: int, consumers: int, min_blocks: int, cluster: str
) -> None:
    values = {"bm": bm, "bn": bn, "consumers": consumers, "min_blocks": min_blocks}
    config = changed(**values, stages=5, cluster=cluster, split_k=CLUSTERS[cluster].k)
    params = WGMMA.decode(config)
    assert params.gathering_registers <= params.consumer_registers(DEEP)
    check_compiled(config, DEEP)


@pytest.mark.parametrize("epilogue", ["bias_gelu", "bias_gelu_tanh", "bias_silu"])
@pytest.mark.parametrize(("bm", "bn", "consumers"), [(256, 128, 2), (192, 192, 3)])
def test_activations_fit_the_registers(bm: int, bn: int, consumers: int, epilogue: str) -> None:
    config = changed(bm=bm, bn=bn, consumers=consumers, workers=132, store="staged")
    problem = Problem(4096, 4096, 4096, "bf16", epilogue=epilogue)
    assert space.rejection(config, problem, H100) is None
    check_compiled(config, problem)


def check_compiled(config: Config, problem: Problem) -> None:
    """The kernel compiles with the estimated registers and no more than tolerable spills."""
    program = compile(plan(config, problem).main.template, H100.arch, cache=None)
    assert isinstance(program, Program), f"{config}: {program}"
    if (config.values["consumers"], config.values["min_blocks"]) != (1, 1):
        assert program.registers == WGMMA.estimate(config, problem).registers, str(config)
    assert program.local <= program.spills <= SPILL_LIMIT, str(config)


def test_gates_halve_what_is_stored() -> None:
    gated = Problem(4096, 4096, 4096, "bf16", "nt", epilogue="swiglu")
    *_, of_c = maps(plan(CONFIG, gated).main)
    assert (of_c.base, of_c.columns, of_c.rows, of_c.pitch) == ("c", 2048, 4096, "ldc")
    assert compiled(plan(CONFIG, gated), "STORE", "EPILOGUE") == (2, 12)
    # A line of C is not filled, and C^T has half of its rows.
    narrow, swapped = {"bn": 64}, {"swap": 1, "bm": 64, "bn": 128}
    for changes in (narrow, swapped):
        staged = plan(changed(store="staged", **changes), gated)
        assert compiled(staged, "STORE") == (1,)
