"""The launch that copies operands: where copies lie, what the kernel is told, how much it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.compiler import Program, compile
from autotune.families.plan import Launch, Template
from autotune.families.shared import packing
from autotune.families.shared.packing import Copy
from autotune.problem import Problem

ODD = Problem(513, 1025, 600)
WIDE = Problem(513, 1025, 600, "bf16", batch=3)
FLAGS = ("COPY", "TRANSPOSED", "LOW")


def told(launch: Launch, operand: str) -> list[object]:
    """What the kernel is told of an operand, without the operand itself."""
    first = 0 if operand == "a" else 10
    return [one.value for one in launch.arguments[first + 3 : first + 10]]


def flags(launch: Launch, operand: str) -> tuple[int, ...]:
    arguments = dict(launch.template.arguments)
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
def test_a_copy_has_the_rows_of_the_operand_as_it_is_stored(
    layout: str, operand: str, stored: tuple[int, int]
) -> None:
    one = packing.copy(replace(ODD, layout=layout), operand)
    assert (one.rows, one.columns) == (one.stored_rows, one.stored_columns) == stored


def test_a_transposed_copy_has_them_as_columns() -> None:
    one = packing.copy(ODD, "a", transposed=True)
    assert (one.stored_rows, one.stored_columns, one.pitch) == (600, 513, 516)


@pytest.mark.parametrize(
    ("columns", "element_bytes", "pitch"), [(1, 4, 4), (4, 4, 4), (5, 4, 8), (8, 2, 8), (9, 2, 16)]
)
def test_rows_are_filled_up_to_16_bytes(columns: int, element_bytes: int, pitch: int) -> None:
    assert packing.pitch(columns, element_bytes) == pitch


@pytest.mark.parametrize(
    ("columns", "element_bytes", "pitch"),
    [(1, 4, 32), (32, 4, 32), (33, 4, 64), (601, 2, 640), (1024, 2, 1024)],
)
def test_rows_are_filled_up_to_whole_lines_if_asked_for(
    columns: int, element_bytes: int, pitch: int
) -> None:
    assert packing.pitch(columns, element_bytes, line=128) == pitch


def test_a_copy_in_whole_lines_is_larger_and_each_of_its_vectors_is_copied() -> None:
    one = packing.copy(WIDE, "b", line=128)
    assert (one.stored_columns, one.pitch, one.stride) == (1025, 1088, 600 * 1088)
    assert one.bytes == 3 * 2 * 600 * 1088
    vectors = one.pitch * 2 // 16
    # 38 blocks take 16 rows each, of 32 vectors at a time.
    assert told(packing.launch([one]), "b")[2:] == [1088, 0, one.bytes, 5, 38 * -(-vectors // 32)]


def test_planes_of_a_transposed_copy_have_whole_lines() -> None:
    one = packing.copy(ODD, "b", transposed=True, low=True, start=128, line=128)
    assert (one.stored_rows, one.pitch) == (1025, 608)  # 600 floats
    assert one.low_start == 128 + 4 * 1025 * 608


def test_matrices_lie_one_after_the_other_and_planes_too() -> None:
    one = packing.copy(replace(ODD, batch=3), "b", low=True, start=64)
    assert one.stride == 600 * 1028
    assert one.low_start == 64 + 3 * 4 * 600 * 1028
    assert one.bytes == 2 * 3 * 4 * 600 * 1028


def test_a_copy_takes_whole_vectors_so_that_another_may_follow() -> None:
    one = packing.copy(WIDE, "b")
    assert one.bytes == 3 * 2 * 600 * 1032
    assert packing.copy(WIDE, "a", start=one.bytes).start == one.bytes


@pytest.mark.parametrize("changed", [{"transposed": True}, {"low": True}])
def test_two_bytes_are_neither_turned_nor_split(changed: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="only elements of 4 bytes"):
        packing.copy(WIDE, "a", **changed)


def test_a_copy_does_not_start_amid_a_vector() -> None:
    with pytest.raises(ValueError, match="multiple of 16, not at 8"):
        packing.copy(ODD, "a", start=8)


@pytest.mark.parametrize("operands", [(), ("a", "a")])
def test_a_launch_is_of_one_copy_of_each_operand(operands: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="of both, not of"):
        packing.launch([packing.copy(ODD, one) for one in operands])


def test_the_kernel_is_told_of_each_operand() -> None:
    a = packing.copy(ODD, "a", transposed=True)
    b = packing.copy(ODD, "b", low=True, start=a.bytes)
    launch = packing.launch([a, b])
    assert told(launch, "a") == [513, 600, 516, 0, a.bytes, 5, 17 * 19]
    assert told(launch, "b") == [600, 1025, 1028, a.bytes, b.low_start, 5, 38 * 9]
    assert flags(launch, "a") == (1, 1, 0)
    assert flags(launch, "b") == (1, 0, 1)
    values = [one.value for one in launch.arguments]
    assert values[:3] + values[10:13] == ["a", "lda", "stride_a", "b", "ldb", "stride_b"]
    assert values[-1] == "workspace"


def test_the_order_of_copies_does_not_matter() -> None:
    copies = [packing.copy(ODD, one) for one in "ab"]
    assert packing.launch(copies) == packing.launch(copies[::-1])


def test_blocks_are_those_of_both_copies_for_each_matrix() -> None:
    a, b = (packing.copy(WIDE, one) for one in "ab")
    launch = packing.launch([a, b])
    assert launch.grid == (33 * 3 + 38 * 5, 1, 3)
    assert launch.block == (256, 1, 1)


def test_an_operand_that_is_not_copied_takes_no_part() -> None:
    launch = packing.launch([packing.copy(ODD, "b")])
    assert flags(launch, "a") == (0, 0, 0)
    assert told(launch, "a")[-1] == 0


@pytest.mark.parametrize(
    ("columns", "lane_bits", "blocks"),
    # A block has 256 threads that each copy a vector of 2 rows.
    [(8, 0, 2), (9, 1, 4), (24, 2, 8), (256, 5, 63), (257, 5, 126)],
)
def test_threads_of_narrow_operands_take_more_rows(
    columns: int, lane_bits: int, blocks: int
) -> None:
    one = Copy("a", 1000, columns, 1, 2)
    assert told(packing.launch([one]), "a")[-2:] == [lane_bits, blocks]


def test_only_what_is_transposed_takes_shared_memory() -> None:
    assert packing.launch([packing.copy(ODD, "b", low=True)]).shared == 0
    assert packing.launch([packing.copy(ODD, "a", transposed=True)]).shared == 4 * 32 * 33


@pytest.mark.parametrize("transposed", [False, True])
def test_no_operand_takes_more_blocks_than_a_grid_has(transposed: bool) -> None:
    largest = 2**31 - 1
    huge = [Copy(one, largest, largest, 1, 4, transposed=transposed) for one in "ab"]
    assert packing.launch(huge).grid == (2**31 - 2, 1, 1)


def instances() -> list[Template]:
    kinds = [(False, False), (True, False), (False, True), (True, True)]
    copies = {
        name: [packing.copy(ODD, name, transposed=turned, low=low) for turned, low in kinds]
        for name in "ab"
    }
    # What is done to one operand changes nothing of what is done to the other.
    pairs = [list(pair) for pair in zip(copies["a"], reversed(copies["b"]), strict=True)]
    alone = [[one] for name in "ab" for one in copies[name]]
    two = [packing.copy(WIDE, name) for name in "ab"]
    every = [*pairs, *alone, two, *([one] for one in two)]
    return [packing.launch(one).template for one in every]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_every_instance_compiles_without_spills(arch: str) -> None:
    templates = instances()
    programs = [compile(template, arch, cache=None) for template in templates]
    failed = [
        (template.expression, one)
        for template, one in zip(templates, programs, strict=True)
        if not isinstance(one, Program) or one.spills or one.local
    ]
    assert failed == []
