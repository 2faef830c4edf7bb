"""The packing launch: the layout of packed copies, the kernel's arguments, the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune import settings
from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families.plan import Launch, Template
from autotune.families.shared import packing
from autotune.families.shared.packing import Copy
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.integers import ceil_div

ODD = Problem(513, 1025, 600)
WIDE = Problem(513, 1025, 600, "bf16", batch=3)
FLAGS = ("COPY", "TRANSPOSED", "LOW")


def arguments_of(launch: Launch, operand: str) -> list[object]:
    """The kernel's arguments of an operand after its pointer, pitch and stride."""
    first = 0 if operand == "a" else 10
    return [argument.value for argument in launch.arguments[first + 3 : first + 10]]


def flags(launch: Launch, operand: str) -> tuple[int, ...]:
    arguments = launch.template.numbers
    return tuple(arguments[f"{flag}_{operand.upper()}"] for flag in FLAGS)


@pytest.mark.parametrize(
    ("layout", "operand", "stored"),
    [
        ("nn", "a", (513, 600)),
        ("tn", "a", (600, 513)),
        ("nn", "b", (600, 1025)),
        ("nt", "b", (1025, 600)),
    ],
)
def test_copy_has_the_stored_rows_of_the_operand(
    layout: str, operand: str, stored: tuple[int, int]
) -> None:
    copy = packing.copy(replace(ODD, layout=layout), operand)
    assert (copy.rows, copy.columns) == (copy.stored_rows, copy.stored_columns) == stored


def test_transposed_copy_swaps_rows_and_columns() -> None:
    copy = packing.copy(ODD, "a", transposed=True)
    assert (copy.stored_rows, copy.stored_columns, copy.pitch) == (600, 513, 516)


@pytest.mark.parametrize(
    ("columns", "element_bytes", "pitch"), [(1, 4, 4), (4, 4, 4), (5, 4, 8), (8, 2, 8), (9, 2, 16)]
)
def test_rows_are_padded_to_16_bytes(columns: int, element_bytes: int, pitch: int) -> None:
    assert packing.pitch(columns, element_bytes) == pitch


@pytest.mark.parametrize(
    ("columns", "element_bytes", "pitch"),
    [(1, 4, 32), (32, 4, 32), (33, 4, 64), (601, 2, 640), (1024, 2, 1024)],
)
def test_rows_can_be_padded_to_cache_lines(columns: int, element_bytes: int, pitch: int) -> None:
    assert packing.pitch(columns, element_bytes, line=128) == pitch


def test_copy_in_whole_lines_copies_its_padding() -> None:
    copy = packing.copy(WIDE, "b", line=128)
    assert (copy.stored_columns, copy.pitch, copy.stride) == (1025, 1088, 600 * 1088)
    assert copy.bytes == 3 * 2 * 600 * 1088
    vectors = copy.pitch * 2 // 16
    # 38 blocks copy 16 rows each, 32 vectors at a time.
    assert arguments_of(packing.launch([copy]), "b")[2:] == [
        1088,
        0,
        copy.bytes,
        5,
        38 * ceil_div(vectors, 32),
    ]


def test_transposed_planes_have_whole_lines() -> None:
    copy = packing.copy(ODD, "b", transposed=True, low=True, start=128, line=128)
    assert (copy.stored_rows, copy.pitch) == (1025, 608)  # 600 floats
    assert copy.low_start == 128 + 4 * 1025 * 608


def test_matrices_and_planes_are_contiguous() -> None:
    copy = packing.copy(replace(ODD, batch=3), "b", low=True, start=64)
    assert copy.stride == 600 * 1028
    assert copy.low_start == 64 + 3 * 4 * 600 * 1028
    assert copy.bytes == 2 * 3 * 4 * 600 * 1028


def test_copy_ends_where_another_may_start() -> None:
    copy = packing.copy(WIDE, "b")
    assert copy.bytes == 3 * 2 * 600 * 1032
    assert packing.copy(WIDE, "a", start=copy.bytes).start == copy.bytes


def test_16_bit_elements_are_not_transposed() -> None:
    with pytest.raises(ValueError, match="elements of 2 bytes are not transposed"):
        packing.copy(WIDE, "a", transposed=True)


@pytest.mark.parametrize(("compute", "size"), [("bf16", 2), ("i8", 1)])
def test_only_32_bit_elements_are_split(compute: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"only elements of 4 bytes are split, not of {size}"):
        packing.copy(Problem(600, 1031, 600, compute), "a", low=True)


def test_bytes_are_transposed_in_tiles_of_128() -> None:
    copy = packing.copy(Problem(300, 200, 500, "i8", "tn"), "a", transposed=True)
    assert (copy.stored_rows, copy.stored_columns, copy.pitch) == (300, 500, 512)
    launch = packing.launch([copy])
    assert launch.shared == 128 * 33 * 4
    assert launch.grid == (4 * 3, 1, 1)


def test_copy_starts_at_a_whole_vector() -> None:
    with pytest.raises(ValueError, match="multiple of 16, not at 8"):
        packing.copy(ODD, "a", start=8)


@pytest.mark.parametrize("operands", [(), ("a", "a")])
def test_launch_packs_each_operand_once(operands: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="of both, not of"):
        packing.launch([packing.copy(ODD, operand) for operand in operands])


def test_kernel_gets_the_arguments_of_both_operands() -> None:
    a = packing.copy(ODD, "a", transposed=True)
    b = packing.copy(ODD, "b", low=True, start=a.bytes)
    launch = packing.launch([a, b])
    assert arguments_of(launch, "a") == [513, 600, 516, 0, a.bytes, 5, 17 * 19]
    assert arguments_of(launch, "b") == [600, 1025, 1028, a.bytes, b.low_start, 5, 38 * 9]
    assert flags(launch, "a") == (1, 1, 0)
    assert flags(launch, "b") == (1, 0, 1)
    values = [argument.value for argument in launch.arguments]
    assert values[:3] + values[10:13] == ["a", "lda", "stride_a", "b", "ldb", "stride_b"]
    assert values[-1] == "workspace"


def test_order_of_copies_does_not_matter() -> None:
    copies = [packing.copy(ODD, operand) for operand in "ab"]
    assert packing.launch(copies) == packing.launch(copies[::-1])


def test_grid_has_blocks_for_both_copies() -> None:
    a, b = (packing.copy(WIDE, operand) for operand in "ab")
    launch = packing.launch([a, b])
    assert launch.grid == (33 * 3 + 38 * 5, 1, 3)
    assert launch.block == (256, 1, 1)


def test_unpacked_operand_has_no_blocks() -> None:
    launch = packing.launch([packing.copy(ODD, "b")])
    assert flags(launch, "a") == (0, 0, 0)
    assert arguments_of(launch, "a")[-1] == 0


@pytest.mark.parametrize(
    ("columns", "lane_bits", "blocks"),
    # A block has 256 threads; each copies one vector of 2 rows.
    [(8, 0, 2), (9, 1, 4), (24, 2, 8), (256, 5, 63), (257, 5, 126)],
)
def test_blocks_of_narrow_operands_take_more_rows(
    columns: int, lane_bits: int, blocks: int
) -> None:
    copy = Copy("a", 1000, columns, 1, 2)
    assert arguments_of(packing.launch([copy]), "a")[-2:] == [lane_bits, blocks]


def test_only_transposed_copies_take_shared_memory() -> None:
    assert packing.launch([packing.copy(ODD, "b", low=True)]).shared == 0
    assert packing.launch([packing.copy(ODD, "a", transposed=True)]).shared == 4 * 32 * 33


@pytest.mark.parametrize("transposed", [False, True])
def test_no_operand_takes_more_blocks_than_a_grid(transposed: bool) -> None:
    largest = 2**31 - 1
    huge = [Copy(operand, largest, largest, 1, 4, transposed=transposed) for operand in "ab"]
    assert packing.launch(huge).grid == (2**31 - 2, 1, 1)


def instances() -> list[Template]:
    kinds = [(False, False), (True, False), (False, True), (True, True)]
    copies = {
        name: [packing.copy(ODD, name, transposed=transposed, low=low) for transposed, low in kinds]
        for name in "ab"
    }
    # The operands are packed independently of each other.
    pairs = [list(pair) for pair in zip(copies["a"], reversed(copies["b"]), strict=True)]
    alone = [[copy] for name in "ab" for copy in copies[name]]
    two = [packing.copy(WIDE, name) for name in "ab"]
    launches = [*pairs, *alone, two, *([copy] for copy in two)]
    return [packing.launch(packed).template for packed in launches]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_every_instance_compiles_without_spills(arch: str) -> None:
    templates = instances()
    programs = [compile(template, arch, cache=None) for template in templates]
    failed = [
        (template.label, program)
        for template, program in zip(templates, programs, strict=True)
        if not isinstance(program, Program) or program.spills or program.local
    ]
    assert failed == []


# The launches that quantise a matrix


BF16, E4M3, F32 = (ELEMENT_TYPES[name] for name in ("bf16", "e4m3", "f32"))


def quantizing(scale: str, rows: int, columns: int, batch: int = 1, vector: int = 8) -> Quantizing:
    return Quantizing(BF16, E4M3, scale, rows, columns, batch, vector)


@pytest.mark.parametrize(
    ("rows", "columns", "grid", "threads", "each"),
    [
        *((4096, 4096, 4096, 128, 4), (16384, 16384, 16384, 512, 4), (4096, 512, 512, 256, 4)),
        *((16, 4096, 16, 512, 1), (16, 14336, 16, 896, 2), (1, 128, 1, 32, 1)),
        *((16, 32768, 16, 1024, 4), (2048, 53248, 2048, 1024, 4)),
    ],
)
def test_rows_have_the_threads_that_hold_them(
    rows: int, columns: int, grid: int, threads: int, each: int
) -> None:
    (launch,) = quantizing("row", rows, columns).plan().launches
    numbers = launch.template.numbers
    assert (launch.grid, launch.block) == ((grid, 1, 1), (threads, 1, 1))
    assert numbers["EACH"] == each
    assert launch.shared == threads // 8
    reached = numbers["LANES"] * each * 8
    assert reached >= columns or numbers["LANES"] == 1024


def test_few_long_rows_are_searched_by_several_blocks() -> None:
    plan = quantizing("row", 2, 100_000).plan()
    search, quantize = plan.launches
    assert (search.template.kernel, search.grid) == ("largest", (26, 1, 1))
    assert (quantize.grid, plan.main, plan.workspace) == ((26, 1, 1), quantize, 4 * 26)


def test_tensor_is_searched_before_it_is_quantised() -> None:
    plan = quantizing("tensor", 4096, 4096).plan()
    search, quantize = plan.launches
    assert (search.grid, quantize.grid) == ((512, 1, 1), (4096, 1, 1))
    assert plan.workspace == 4 * 512


def test_given_scale_needs_no_search() -> None:
    plan = replace(quantizing("tensor", 4096, 4096), fixed=True).plan()
    assert [launch.template.kernel for launch in plan.launches] == ["quantize"]
    assert plan.workspace == 0


@pytest.mark.parametrize(
    ("vector", "grid"), [(8, (256, 8, 3)), (4, (512, 8, 3)), (2, (512, 8, 3)), (1, (512, 8, 3))]
)
def test_blocks_cover_the_rows_of_each_matrix(vector: int, grid: tuple[int, int, int]) -> None:
    (launch,) = quantizing("block", 4096, 4096, batch=3, vector=vector).plan().launches
    assert launch.grid == grid


def test_scales_lie_as_those_of_a() -> None:
    assert quantizing("tensor", 16, 200).scales == (1,)
    assert quantizing("row", 16, 200, batch=3).scales == (3, 16)
    assert quantizing("block", 16, 200, batch=3).scales == (3, 2, 16)


def test_other_sizes_of_many_rows_take_the_same_kernel() -> None:
    templates = {quantizing("row", rows, 4096).plan().main.template for rows in (1000, 5000)}
    assert len(templates) == 1


def test_impossible_quantisations_are_refused() -> None:
    with pytest.raises(ValueError, match="scale is tensor, row or block, not 'column'"):
        quantizing("column", 16, 128)
    with pytest.raises(ValueError, match="no kernel quantises bf16 to f32"):
        Quantizing(BF16, F32, "row", 16, 128)
    with pytest.raises(
        ValueError, match="only the scale of a tensor is fixed, not the scale of a row"
    ):
        replace(quantizing("row", 16, 128), fixed=True)
    with pytest.raises(ValueError, match="100 columns have no vectors of 8 elements"):
        quantizing("row", 16, 100)
    with pytest.raises(ValueError, match="need a grid of"):
        quantizing("block", 16, 128, batch=70_000)


def test_largest_numbers_are_those_of_the_table() -> None:
    text = (settings.source_dir() / "quantize.cu").read_text()
    for name in ("e4m3", "e5m2", "i8"):
        kind = "signed char" if name == "i8" else name.upper()
        assert f"LARGEST<{kind}> = {ELEMENT_TYPES[name].largest}f;" in text
