"""The launches that quantise a matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune import settings
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import ELEMENT_TYPES

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
