"""The launches of `simt`: the packing copy, the GEMM and the reduction of its splits."""

from __future__ import annotations

from math import prod

import pytest
from support.launch_structs import members, replaced
from support.sample_records import H100

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment, Launch, LaunchPlan
from autotune.families.simt import SIMT
from autotune.model import space
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

CONFIG = Config.parse(
    "simt:bm=64,bn=128,wm=32,wn=64,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=0,"
    "order=columns"
)

TILE_BYTES = 4 * 64 * 128


def changed(**values: int | str) -> Config:
    """`CONFIG` with the named values replaced."""
    assert values.keys() <= CONFIG.values.keys()
    return Config.of("simt", {**CONFIG.values, **values})


STAGED = changed(copy="staged", stages=2)

SEPARATE = changed(split_k=4, reduction="separate")

FUSED = changed(split_k=4, reduction="fused")

STREAM = changed(reduction="stream", workers=132)


# A is K-contiguous and the rows of B have an odd length: packing helps both.
ODD = Problem(513, 1025, 600)


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    return SIMT.plan(config, problem, alignment or Alignment.dense(problem))


def compiled(launched: LaunchPlan, *names: str) -> tuple[int, ...]:
    """Values of the named template arguments of the GEMM launch."""
    arguments = launched.main.template.numbers
    return tuple(arguments[name] for name in names)


def kernels(launched: LaunchPlan) -> list[str]:
    return [launch.template.kernel for launch in launched.launches]


def values(launch: Launch) -> list[object]:
    return [argument.value for argument in launch.arguments]


def test_grid_is_tiles_by_splits_by_batch() -> None:
    assert plan(CONFIG, Problem(65, 129, 16)).main.grid == (2 * 2, 1, 1)
    assert plan(SEPARATE, Problem(64, 128, 512, batch=3)).main.grid == (1, 4, 3)
    assert plan(FUSED, Problem(65, 128, 512)).main.grid == (2, 4, 1)


@pytest.mark.parametrize(
    ("tiles", "streamed"),
    [
        (100, 100),  # fewer than two waves: the workers share all tiles
        (263, 263),
        (264, 132),  # two whole waves: one of them, one tile per worker
        (300, 132 + 300 % 132),  # the partial wave and the full wave before it
        (1000, 132 + 1000 % 132),
    ],
)
def test_stream_k_workers_share_only_the_last_tiles(tiles: int, streamed: int) -> None:
    (launch,) = plan(STREAM, Problem(64 * tiles, 128, 512)).launches
    assert members(launch, "SimtSchedule", "group", "streamed", "workers") == [1, streamed, 132]
    assert launch.grid == (132 + tiles - streamed, 1, 1)


def test_stream_k_grid_is_a_whole_number_of_waves() -> None:
    grids = [plan(STREAM, Problem(64 * tiles, 128, 512)).main.grid[0] for tiles in range(1, 999, 7)]
    assert {blocks % 132 for blocks in grids} == {0}


@pytest.mark.parametrize(("slices", "threads"), [(1, 128), (2, 256), (4, 512)])
def test_each_slice_has_a_full_set_of_warps(slices: int, threads: int) -> None:
    assert plan(changed(slices=slices), Problem(64, 128, 16)).main.block == (threads, 1, 1)


@pytest.mark.parametrize(("layout", "padding"), [("nn", 4), ("nt", 8), ("tn", 0), ("tt", 4)])
def test_k_contiguous_operands_pad_their_buffers(layout: str, padding: int) -> None:
    shared = plan(CONFIG, Problem(64, 128, 64, layout=layout)).main.shared
    assert shared == 4 * 3 * 16 * (64 + 128 + padding)


def test_packed_operands_need_no_padding() -> None:
    assert plan(changed(pack="a"), ODD).main.shared == 4 * 3 * 16 * (64 + 128)


@pytest.mark.parametrize(
    ("slices", "chunks", "buffers", "tiles"),
    [
        (2, 1, 1, 0),  # one partial tile fits in the buffers
        (4, 1, 0, 3),  # three partial tiles are larger than the buffers
        (1, 2, 1, 1),  # sums of finished chunks are kept beside the buffers
        (2, 4, 1, 2),  # one such tile per slice
        (4, 2, 0, 3 + 4),
    ],
)
def test_shared_memory_of_slices_and_chunks(
    slices: int, chunks: int, buffers: int, tiles: int
) -> None:
    problem = Problem(64, 128, 8192, layout="tn")
    shared = plan(changed(slices=slices, chunks=chunks), problem).main.shared
    assert shared == buffers * 4 * 3 * 16 * (64 + 128) + tiles * TILE_BYTES


def test_bounds_are_checked_only_if_tiles_overhang() -> None:
    shapes = [(64, 128, 16), (65, 128, 16), (64, 129, 16), (64, 128, 17)]
    checks = [compiled(plan(CONFIG, Problem(*shape)), "CHECK") for shape in shapes]
    assert checks == [(0,), (1,), (1,), (1,)]


@pytest.mark.parametrize(
    ("layout", "widths"), [("nn", (1, 4)), ("nt", (1, 1)), ("tn", (4, 4)), ("tt", (4, 1))]
)
def test_cp_async_transposes_float_by_float(layout: str, widths: tuple[int, int]) -> None:
    assert compiled(plan(CONFIG, Problem(64, 128, 64, layout=layout)), "VA", "VB") == widths


def test_staged_copies_use_each_operands_widest_vectors() -> None:
    launched = plan(STAGED, Problem(64, 128, 64), Alignment(a=4, b=2, c=1))
    assert compiled(launched, "VA", "VB", "VC") == (4, 2, 1)


def test_vectors_never_cross_the_end_of_a_row() -> None:
    launched = plan(CONFIG, Problem(64, 126, 64), Alignment(4, 4, 4))
    assert compiled(launched, "VB", "VC") == (2, 2)


def test_unsplit_gemm_is_one_launch_without_workspace() -> None:
    launched = plan(CONFIG, Problem(64, 128, 64))
    assert kernels(launched) == ["simt"]
    assert (launched.workspace, launched.counters, launched.product) == (0, 0, 0)


@pytest.mark.parametrize("batch", [1, 3])
def test_separate_reduction_keeps_one_aligned_c_per_split(batch: int) -> None:
    launched = plan(SEPARATE, Problem(64, 126, 512, batch=batch))
    assert kernels(launched) == ["simt", "split_k"]
    assert (launched.workspace, launched.counters) == (batch * 4 * 64 * 128 * 4, 0)


@pytest.mark.parametrize("batch", [1, 3])
def test_fused_reduction_keeps_whole_tiles_and_counts_them(batch: int) -> None:
    launched = plan(FUSED, Problem(65, 126, 512, batch=batch))
    assert kernels(launched) == ["simt"]
    assert (launched.workspace, launched.counters) == (batch * 2 * 4 * TILE_BYTES, batch * 2)


def test_stream_k_worker_keeps_two_partial_tiles_at_most() -> None:
    launched = plan(STREAM, Problem(64 * 300, 128, 512))
    assert kernels(launched) == ["simt"]
    assert (launched.workspace, launched.counters) == (132 * 2 * TILE_BYTES, 300)


@pytest.mark.parametrize(
    ("splits", "alignment", "columns", "rows", "width"),
    [(2, 4, 128, 2, 4), (3, 4, 128, 2, 4), (8, 2, 32, 8, 2), (128, 1, 32, 8, 1)],
)
def test_reduction_launch_has_a_thread_per_vector(
    splits: int, alignment: int, columns: int, rows: int, width: int
) -> None:
    config = changed(split_k=splits, reduction="separate")
    problem = Problem(70, 132, 8192, batch=5)
    _, reduction = plan(config, problem, Alignment(4, 4, alignment)).launches
    vectors = 70 * 132 // width
    assert reduction.grid == (ceil_div(vectors, columns), 1, 5)
    assert reduction.block == (columns, rows, 1)
    assert reduction.shared == 4 * columns * rows * width
    assert dict(reduction.template.arguments)["VECTOR"] == width


def test_alpha_beta_apply_once_in_the_reduction_launch() -> None:
    problem = Problem(64, 126, 512, epilogue="bias_relu")
    _, reduction = plan(SEPARATE, problem).launches
    assert reduction.template.values["EPILOGUE"] == "Epilogue::BIAS_RELU"
    assert values(reduction) == [
        *("workspace", 0, 4),
        *("c", "ldc", "stride_c"),
        *(64, 126, 128),
        *("alpha", "beta", "bias"),
    ]


@pytest.mark.parametrize(("pack", "copies"), [("a", (1, 0)), ("b", (0, 1)), ("ab", (1, 1))])
def test_one_launch_packs_operands_before_the_gemm(pack: str, copies: tuple[int, int]) -> None:
    launched = plan(changed(pack=pack), ODD)
    assert kernels(launched) == ["pack", "simt"]
    flags = dict(launched.launches[0].template.arguments)
    assert (flags["COPY_A"], flags["COPY_B"]) == copies
    assert not flags["EARLY"]  # SMs hold several blocks of simt: all start on free SMs
    assert launched.main.template.kernel == "simt"


@pytest.mark.parametrize(
    ("layout", "along_k"), [("nn", (1, 0)), ("nt", (1, 1)), ("tn", (0, 0)), ("tt", (0, 1))]
)
def test_packing_transposes_k_contiguous_operands(layout: str, along_k: tuple[int, int]) -> None:
    problem = Problem(513, 1025, 600, layout=layout)
    flags = dict(plan(changed(pack="ab"), problem).launches[0].template.arguments)
    assert (flags["TRANSPOSED_A"], flags["TRANSPOSED_B"]) == along_k


def test_gemm_reads_the_packed_copies() -> None:
    launched = plan(changed(pack="ab"), ODD, Alignment(1, 1, 1))
    assert compiled(launched, "TRANS_A", "TRANS_B", "VA", "VB", "VC") == (1, 0, 4, 4, 1)
    gemm = launched.main
    assert replaced(gemm) == {
        **{"a": "workspace", "lda": 516, "stride_a": 516 * 600},
        **{"b": "workspace", "ldb": 1028, "stride_b": 1028 * 600},
    }
    starts = members(gemm, "SimtSchedule", "start_a", "start_b", "start_partials")
    assert starts == [0, 516 * 600, (516 + 1028) * 600]
    assert values(gemm)[2:] == [513, 1025, 600, "alpha", "beta"]


def test_unpacked_operand_is_read_in_place() -> None:
    gemm = plan(changed(pack="b"), ODD).main
    assert members(gemm, "Call", "a", "lda", "b", "ldb") == ["a", "lda", "workspace", 1028]


def test_partial_sums_follow_the_copies_of_the_whole_batch() -> None:
    problem = Problem(513, 1025, 600, batch=2)
    launched = plan(changed(pack="ab", split_k=4, reduction="separate"), problem)
    *_, gemm, reduction = launched.launches
    packed = 2 * 600 * (516 + 1028)
    assert members(gemm, "SimtSchedule", "start_a", "start_b") == [0, 2 * 600 * 516]
    assert members(gemm, "SimtSchedule", "start_partials") == [packed]
    assert values(reduction)[1] == packed
    assert launched.workspace == 4 * (packed + 2 * 4 * 513 * 1028)


def test_launch_only_parameters_share_one_program() -> None:
    problem = Problem(4096, 4096, 4096)
    for first, second in (
        (CONFIG, changed(group=8)),
        (FUSED, changed(split_k=2, reduction="fused", group=8)),
        (STREAM, changed(reduction="stream", workers=264)),
    ):
        assert plan(first, problem).main.template == plan(second, problem).main.template


@pytest.mark.parametrize(
    "problem",
    [Problem(1000, 1000, 1000), Problem(513, 1025, 2048, layout="tt"), Problem(16, 32, 70000)],
    ids=str,
)
def test_estimate_is_an_upper_bound_of_the_launch(problem: Problem) -> None:
    configs = space.spread(space.feasible(problem, H100).configs, 300)
    for config in configs:
        launched, estimate = registry.plan(config, problem), SIMT.estimate(config, problem)
        assert launched.main.threads == estimate.threads
        assert launched.main.shared <= estimate.shared <= H100.shared_per_block_optin
        assert all(prod(launch.block) <= H100.threads_per_block for launch in launched.launches)
