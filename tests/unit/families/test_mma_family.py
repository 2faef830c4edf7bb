"""Launches of `mma`, and its rejections with their reasons and numbers."""

from __future__ import annotations

import pytest
from support.launch_structs import members, replaced
from support.sample_records import H100

from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.mma import MMA
from autotune.families.plan import Alignment, LaunchPlan
from autotune.model import space
from autotune.problem import EPILOGUES, Problem

Values = dict[str, int | str]

CONFIG = Config.parse(
    "mma:compute=bf16,swap=0,bm=128,bn=64,wm=32,wn=32,slices=1,bk=64,copy=async,pack=none,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=1"
)
SLICED: Values = {"bm": 16, "bn": 64, "wm": 16, "slices": 4, "bk": 128, "stages": 2}
TRANSPOSED: Values = {"swap": 1, "bm": 64, "bn": 8, "wm": 32, "wn": 8, "slices": 2}
ODD = Problem(1023, 1025, 1027, "bf16")


def changed(**values: int | str) -> Config:
    """`CONFIG` with some values changed."""
    assert values.keys() <= CONFIG.values.keys()
    return Config.of("mma", {**CONFIG.values, **values})


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    return MMA.plan(config, problem, alignment or Alignment.dense(problem))


def compiled(launched: LaunchPlan, *names: str) -> tuple[int, ...]:
    """Template arguments of the GEMM's launch."""
    arguments = launched.main.template.numbers
    return tuple(arguments[name] for name in names)


def sizes_of(launched: LaunchPlan) -> list[object]:
    """The sizes that the GEMM's launch passes."""
    return [argument.value for argument in launched.main.arguments[2:5]]


def rejection(text: str, changes: Values, device: str = "h100") -> str:
    problem = Problem.parse(text)
    config = changed(**{"compute": problem.compute, **changes})
    return str(space.rejection(config, problem, find(device)))


def test_gates_leave_half_of_the_columns_to_vectors_of_c() -> None:
    gated = Problem(5, 4112, 512, "bf16", "nt", epilogue="swiglu")
    for config, sizes in ((CONFIG, [5, 4112, 512]), (changed(**TRANSPOSED), [4112, 5, 512])):
        launched = plan(config, gated)
        assert sizes_of(launched) == sizes
        assert compiled(launched, "EPILOGUE") == (EPILOGUES.index("swiglu"),)
    assert compiled(plan(CONFIG, gated), "VC") == (8,)
    assert compiled(plan(CONFIG, gated, Alignment(8, 8, 4)), "VC") == (4,)


def test_grid_has_tiles_splits_and_batch() -> None:
    assert plan(CONFIG, Problem(129, 65, 64, "bf16")).main.grid == (2 * 2, 1, 1)
    split = plan(changed(split_k=4), Problem(128, 64, 4096, "bf16", batch=3))
    assert split.main.grid == (1, 4, 3)
    assert (split.workspace, split.counters) == (3 * 4 * 4 * 128 * 64, 3)


@pytest.mark.parametrize(
    ("compute", "output", "arguments"),
    [
        ("tf32", "same", (0, 0, 0, 1)),
        ("tf32x3", "same", (0, 0, 0, 3)),
        ("f16", "same", (1, 1, 1, 1)),
        ("bf16", "f32", (2, 2, 0, 1)),
    ],
)
def test_types_and_multiply_adds_are_template_arguments(
    compute: str, output: str, arguments: tuple[int, int, int, int]
) -> None:
    problem = Problem(128, 64, 64, compute, output=output)
    launched = plan(changed(compute=compute, bk=32), problem)
    assert compiled(launched, "TYPE_A", "TYPE_B", "OUTPUT", "PRODUCTS") == arguments


@pytest.mark.parametrize(
    ("compute", "changes", "shared"),
    [
        ("bf16", {}, 3 * 64 * (128 + 64) * 2),
        ("tf32", {"bk": 32}, 3 * 32 * (128 + 64) * 4),
        ("bf16", SLICED, 2 * 128 * (16 + 64) * 2),
        # Three slices store their tiles; two warps store rows of 32 sums, 8 floats apart.
        (
            "bf16",
            {**SLICED, "bm": 32, "wm": 32, "bn": 128, "bk": 32, "store": "staged"},
            4 * (3 * 32 * 128 + 4 * 16 * 40),
        ),
    ],
)
def test_shared_memory_fits_buffers_or_epilogue(compute: str, changes: Values, shared: int) -> None:
    config = changed(compute=compute, **changes)
    problem = Problem(256, 256, 4096, compute)
    assert plan(config, problem).main.shared == MMA.estimate(config, problem).shared == shared


@pytest.mark.parametrize(
    ("compute", "alignment", "widths"),
    [
        ("bf16", (8, 8, 8), (8, 8, 1)),  # cp.async zero-fills the ends of rows of 1027 and 1025
        ("bf16", (4, 2, 1), (4, 2, 1)),
        ("bf16", (1, 1, 1), (1, 1, 1)),
        ("tf32", (4, 2, 1), (4, 2, 1)),
    ],
)
def test_cp_async_uses_the_widest_vectors_of_any_row(
    compute: str, alignment: tuple[int, int, int], widths: tuple[int, int, int]
) -> None:
    config = changed(compute=compute, bk=32)
    launched = plan(config, Problem(1023, 1025, 1027, compute), Alignment(*alignment))
    assert compiled(launched, "VA", "VB", "VC") == widths


def test_vectors_through_registers_divide_the_row() -> None:
    config = changed(compute="f16", copy="staged", stages=2)
    launched = plan(config, Problem(64, 126, 68, "f16"), Alignment(8, 8, 8))
    assert compiled(launched, "ASYNC", "VA", "VB", "VC") == (0, 4, 2, 2)


def test_packed_vectors_through_registers_divide_the_row() -> None:
    config = changed(compute="f16", copy="staged", stages=2, pack="ab")
    launched = plan(config, Problem(1023, 1025, 1028, "f16"))
    assert compiled(launched, "VA", "VB") == (4, 1)


def test_swap_computes_the_transpose_of_c() -> None:
    problem = Problem(5, 4096, 512, "bf16", layout="nt", epilogue="bias")
    launched = plan(changed(**TRANSPOSED), problem)
    assert launched.main.grid == (4096 // 64, 1, 1)
    # op(B)^T and op(A)^T are B and A as stored, with rows along K.
    assert compiled(launched, "TRANSPOSED", "TRANS_A", "TRANS_B", "VC") == (1, 0, 1, 1)
    assert sizes_of(launched) == [4096, 5, 512]
    assert replaced(launched.main) == {
        **{"a": "b", "lda": "ldb", "stride_a": "stride_b"},
        **{"b": "a", "ldb": "lda", "stride_b": "stride_a"},
    }


@pytest.mark.parametrize(
    ("layout", "transposed"), [("nn", (1, 1)), ("nt", (0, 1)), ("tn", (1, 0)), ("tt", (0, 0))]
)
def test_swap_transposes_the_layouts(layout: str, transposed: tuple[int, int]) -> None:
    launched = plan(changed(**TRANSPOSED), Problem(5, 4096, 512, "bf16", layout=layout))
    assert compiled(launched, "TRANS_A", "TRANS_B") == transposed


def test_one_launch_packs_operands_for_whole_vectors() -> None:
    launched = plan(changed(pack="ab", split_k=2), ODD)
    packed, gemm = launched.launches
    assert (packed.template.kernel, gemm.template.kernel) == ("pack", "mma")
    assert compiled(launched, "VA", "VB", "VC") == (8, 8, 1)
    start_b = 1023 * 1032
    copies = 2 * (start_b + 1027 * 1032)
    assert sizes_of(launched) == [1023, 1025, 1027]
    assert replaced(launched.main) == {
        **{"a": "workspace", "lda": 1032, "stride_a": start_b},
        **{"b": "workspace", "ldb": 1032, "stride_b": 1027 * 1032},
    }
    starts = members(launched.main, "MmaSchedule", "start_a", "start_b", "start_partials")
    assert starts == [0, start_b, copies // 4]
    assert launched.workspace == copies + 2 * 4 * 8 * 17 * 128 * 64


def test_unpacked_operand_is_read_in_place() -> None:
    launched = plan(changed(pack="b"), ODD)
    assert members(launched.main, "Call", "a", "lda", "b", "ldb") == ["a", "lda", "workspace", 1032]


TALL = Problem(65536, 64, 64, "bf16")
COLUMN: Values = {"copy": "ahead", "wn": 64, "group": 4}


def test_a_block_computes_a_column_of_tiles() -> None:
    launched = plan(changed(**COLUMN), Problem(129, 65, 64, "bf16", batch=3))
    assert launched.main.template.kernel == "mma_column"
    assert launched.main.grid == (1 * 2, 1, 3)
    assert plan(changed(**COLUMN), TALL).main.grid == (65536 // 128 // 4, 1, 1)
    assert members(launched.main, "MmaSchedule", "start_a", "start_b", "group") == [0, 0, 4]
    assert launched.main.shared == 2 * 64 * (3 * 128 + 64)


@pytest.mark.parametrize(
    ("n", "output", "changes", "interleaved"),
    [
        (64, "same", {}, (8, 4, 2)),
        (64, "same", {"wn": 16, "wm": 32}, (8, 2, 2)),
        (60, "same", {}, (4, 2, 2)),
        (57, "same", {}, (1, 1, 1)),
        (64, "f32", {}, (4, 2, 2)),
        (64, "same", {"store": "staged"}, (8, 1, 8)),
        (64, "same", {"copy": "async"}, (8, 1, 8)),
    ],
)
def test_columns_interleave_to_store_whole_vectors(
    n: int, output: str, changes: Values, interleaved: tuple[int, int, int]
) -> None:
    launched = plan(changed(**{**COLUMN, **changes}), Problem(4096, n, 64, "bf16", output=output))
    assert compiled(launched, "VC", "INTERLEAVED", "VB") == interleaved


def test_interleaved_rows_along_k_are_copied_whole() -> None:
    launched = plan(changed(**COLUMN), Problem(4096, 64, 64, "bf16", layout="nt"))
    assert compiled(launched, "INTERLEAVED", "VB") == (4, 8)


def test_work_of_a_column_loads_b_once() -> None:
    column, single = MMA.work(changed(**COLUMN), TALL), MMA.work(changed(), TALL)
    assert column.blocks * column.iterations == single.blocks * single.iterations
    assert column.iterations * column.bytes == 2 * 64 * (4 * 128 + 64)


def test_work_counts_every_tensor_core_product() -> None:
    problem = Problem(1024, 1024, 1024, "tf32x3")
    config = changed(compute="tf32x3", bk=32)
    work = MMA.work(config, problem)
    assert work.blocks * work.iterations * work.tensor == 3 * 1024**3


def test_work_of_a_swap_has_rows_and_columns_of_c() -> None:
    assert MMA.work(changed(**TRANSPOSED), Problem(5, 4096, 512, "bf16")).tile == (8, 64)


@pytest.mark.parametrize("compute", ["tf32", "tf32x3", "bf16"])
@pytest.mark.parametrize("device", ["h100", "a100"])
@pytest.mark.parametrize(
    "shape",
    [
        "4096x4096x4096",
        "16x4096x4096",
        "37x53x71",
        "1023x1025x1027",
        "1x1x1",
        "1x65537x3",
        "64x64x65536",
    ],
)
def test_every_shape_has_at_most_6000_candidates(shape: str, device: str, compute: str) -> None:
    problem = Problem.parse(shape, compute=compute)
    assert 0 < len(space.feasible(problem, find(device), "mma").configs) <= 6000


@pytest.mark.parametrize("problem", ["64x4096x4096:tf32x3:tt", "513x1025x2048:bf16"])
def test_estimate_matches_the_launch(problem: str) -> None:
    parsed = Problem.parse(problem)
    for config in space.spread(space.feasible(parsed, H100, "mma").configs, 200):
        launched, estimate = registry.plan(config, parsed), MMA.estimate(config, parsed)
        assert launched.main.threads == estimate.threads
        assert launched.main.shared == estimate.shared <= H100.shared_per_block_optin


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("1024x1024x512:bf16", {}, "None"),
        (
            "512x512x512:bf16",
            TRANSPOSED,
            "swap: 512x512 has no 8 rows that would be the narrow side of a product",
        ),
        ("48x512x512:bf16", {}, "larger than the matrix: bm=128 is at least twice M=48"),
        ("8x16x512:bf16", TRANSPOSED, "larger than the matrix: bm=64 is at least twice N=16"),
        (
            "512x512x512:bf16",
            {"bn": 8, "wn": 8},
            "larger than the matrix: bn=8 is for N of 8 at most, not 512",
        ),
        (
            "8192x8192x64:bf16",
            {"split_k": 2},
            "small tiles: 8192 tiles for 132 SMs with bn=64; larger tiles read less",
        ),
        ("512x512x512:bf16", {"bm": 16}, "divisibility: wm=32 does not divide bm=16"),
        (
            "512x512x512:bf16",
            {"wm": 16, "wn": 64, "bm": 64},
            "warp shape: 16x64 loads 80 rows for 1024 products; sides of 2 to 1 load less",
        ),
        ("512x512x512:bf16", {"slices": 2}, "warps: 16 a block; 4 to 8 are tried"),
        (
            "512x512x512:bf16",
            {"slices": 2, "bk": 32, "wm": 64},
            "steps: bk=32 has 1 for each of 2 slices; 2 to 4 are tried",
        ),
        ("512x512x512:bf16", {"bk": 16}, "steps: bk=16 has 32 bytes; 64, 128, 256 are tried"),
        ("512x512x30:bf16", {}, "steps: bk=64 is at least twice K=30"),
        ("512x512x512:bf16", {"split_k": 16}, "split-K: 8 tiles of bk=64 do not go into 16 splits"),
        (
            "256x128x8192:bf16",
            {"split_k": 32},
            "split-K: the last block of a tile would read 1048576 bytes; 524288 at most",
        ),
        (
            "256x256x512:bf16",
            {"bn": 128, "wn": 64},
            "idle SMs: 4 blocks of 128x128 leave most of 132 SMs idle",
        ),
        (
            "64x512x4096:bf16",
            {"bm": 64, "wm": 16},
            "idle SMs: 8 blocks with 4096 of K each leave most of 132 SMs idle",
        ),
        ("1024x1024x512:bf16", {"pack": "ab"}, "pack: no operand would gain from a copy"),
        ("1024x1025x512:bf16", {"pack": "b"}, "None"),
        (
            "1024x1024x512:bf16",
            {"group": 8},
            "group: 128 tiles are few for 132 SMs; their order is free",
        ),
        (
            "1024x512x4096:bf16",
            {"split_k": 4, "store": "staged"},
            "store: blocks that add up splits wait for their loads",
        ),
        (
            "1024x1024x512:tf32",
            {"store": "staged", "bk": 32},
            "store: threads hold 8 neighbours of a row as it is",
        ),
        ("1024x1024x512:tf32:nt", {"store": "staged", "bk": 32}, "None"),
        (
            "1023x1023x511:bf16",
            {},
            "copy: stages=3; operands that come through registers fill one buffer ahead",
        ),
        ("511x511x511:bf16", {"pack": "none", "stages": 2, "bm": 64}, "None"),
        (
            "1024x1024x512:bf16",
            {"stages": 5},
            "stages: copies of 128+64 rows run 512 bytes ahead; 384 are enough",
        ),
        (
            "1024x1024x4096:bf16",
            {"promote": 2},
            "promotion: sums of 4096 products in bf16 need none",
        ),
        ("1024x1024x4096:tf32x3", {"bk": 32, "promote": 4}, "None"),
        (
            "1024x1024x4096:tf32x3",
            {"bk": 32, "promote": 2},
            "promotion: after 64 steps of K; 128 are tried",
        ),
        (
            "2048x2048x4096:tf32x3",
            {"bk": 32, "promote": 4, "wm": 64, "wn": 64, "bn": 128},
            "register estimate: about 382 a thread; 1 blocks of 128 threads leave 255",
        ),
        (
            "1024x1024x512:bf16",
            {"min_blocks": 2},
            "launch bounds: 2 blocks leave 128 registers; about 102 are taken anyway",
        ),
        ("65536x64x64:bf16", COLUMN, "None"),
        ("65536x64x64:bf16", {**COLUMN, "bm": 64, "wm": 16}, "None"),
        ("65536x31x64:bf16", {**COLUMN, "bn": 32, "wn": 32, "store": "staged"}, "None"),
        (
            "65536x64x64:bf16",
            {"group": 2},
            "group: group=2; (1, 4, 8) are tried for tiles of blocks of their own",
        ),
        (
            "65536x64x64:bf16",
            {**COLUMN, "group": 1},
            "group: a column of one tile has no next tile",
        ),
        (
            "65536x64x64:bf16",
            {**COLUMN, "group": 8},
            "group: 64 columns of 8 tiles fill 132 SMs unevenly",
        ),
        ("1024x8192x64:bf16", {**COLUMN, "group": 16}, "group: group=16 of 8 rows of tiles"),
        (
            "65536x64x64:bf16",
            {**COLUMN, "store": "staged"},
            "store: threads hold whole vectors of a row as it is",
        ),
        ("65536x64x65:bf16", {**COLUMN, "bk": 128}, "stages: stages=3 of a column; (2,) are tried"),
        ("65536x64x66:bf16", COLUMN, "column: bk=64 is not the least that holds K=66"),
        (
            "65536x64x64:bf16",
            {**COLUMN, "pack": "b"},
            "column: a copy of an operand would take as long as the product",
        ),
        (
            "65536x64x64:bf16",
            {**COLUMN, "wn": 16, "wm": 64},
            "column: 128x64 in parts of 16 columns stores parts of short rows",
        ),
        (
            "65536x64x64:bf16",
            {**COLUMN, "slices": 2, "wm": 64},
            "column: a column of tiles is one of C, in one slice",
        ),
        ("4096x4096x129:bf16", COLUMN, "value: copy=ahead is none of async"),
        (
            "65536x64x64:bf16:swiglu",
            COLUMN,
            "gates: a block that computes a column of tiles has no pairs of columns",
        ),
        (
            "512x512x512:bf16:swiglu",
            {"bn": 16, "wm": 16, "wn": 8},
            "gates: wn=8 has no pairs of 8 columns",
        ),
    ],
)
def test_rejections_name_reason_and_numbers(text: str, changes: Values, reason: str) -> None:
    assert rejection(text, changes) == reason


def test_min_blocks_2_needs_large_fragments() -> None:
    wide: Values = {"bn": 128, "wm": 64, "min_blocks": 2, "bk": 32, "stages": 4}
    assert rejection("2048x2048x2048:bf16", wide) == "None"


@pytest.mark.parametrize(
    ("device", "compute", "reason"),
    [
        ("t4", "f16", "None"),
        ("t4", "bf16", "architecture: bf16 needs compute capability 8.0; Tesla T4 has 7.5"),
        ("v100", "f16", "architecture: f16 needs compute capability 7.5"),
        ("t4", "i8", "architecture: i8 needs compute capability 8.0"),
    ],
)
def test_tensor_cores_must_support_the_type(device: str, compute: str, reason: str) -> None:
    message = rejection(f"512x512x512:{compute}", {"copy": "staged", "stages": 2}, device)
    assert message.startswith(reason)


def test_packing_needs_cp_async() -> None:
    staged: Values = {"copy": "staged", "stages": 2, "pack": "ab"}
    message = "pack: registers take vectors that end with their row, wherever it starts"
    assert rejection("1023x1025x1027:f16", staged, "t4") == message


@pytest.mark.parametrize("device", ["t4", "a100", "rtx 4090"])
@pytest.mark.parametrize(
    "text",
    [
        *("1x1x1", "1x1x65537", "1x5x65537", "2x2x100000", "5x3x2:batch=65535", "1x1x1048576"),
        *("1048576x3x17", "3x1048576x1", "37x53x71:tt", "257x255x8:batch=50"),
    ],
)
def test_every_problem_has_a_configuration(text: str, device: str) -> None:
    problem = Problem.parse(text, compute="f16")
    assert space.feasible(problem, find(device), "mma").configs
