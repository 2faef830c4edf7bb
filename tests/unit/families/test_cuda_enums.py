"""The numbers that Python and CUDA share."""

import re

import pytest

from autotune import settings
from autotune.families.shared import cuda_enums
from autotune.problem import ELEMENT_TYPES


def source(name: str) -> str:
    return (settings.source_dir() / name).read_text(encoding="utf-8")


def number(pattern: str, name: str) -> int:
    match = re.search(pattern, source(name))
    assert match is not None, pattern
    return int(match[1])


@pytest.mark.parametrize(
    ("element", "type_"), [("f32", "float"), ("f16", "Half"), ("bf16", "BFloat")]
)
def test_types_have_the_numbers_of_cuda(element: str, type_: str) -> None:
    pattern = rf"struct Number<(\d)> {{\s*using Type = {type_};"
    assert number(pattern, "include/common/number.cuh") == ELEMENT_TYPES[element].number


def test_every_cuda_type_has_a_row() -> None:
    specialised = re.findall(r"struct Number<(\d)>", source("include/common/number.cuh"))
    assert sorted(map(int, specialised)) == sorted(row.number for row in ELEMENT_TYPES.values())


@pytest.mark.parametrize(("activation", "body"), [("relu", "value < 0.0f"), ("gelu", r"\{")])
def test_epilogues_have_the_bits_of_cuda(activation: str, body: str) -> None:
    bits = number(rf"EPILOGUE >> 1 == (\d)\) (?:value = )?{body}", "include/common/epilogue.cuh")
    assert cuda_enums.EPILOGUE.index(activation) == bits << 1
    assert cuda_enums.EPILOGUE.index(f"bias_{activation}") == bits << 1 | 1


def test_cuda_has_the_same_epilogues() -> None:
    assert "if constexpr (EPILOGUE & 1) value += to_float(bias[column])" in source(
        "include/common/epilogue.cuh"
    )
    assert number(r"EPILOGUE < (\d)", "include/common/epilogue.cuh") == len(cuda_enums.EPILOGUE)
    assert cuda_enums.EPILOGUE[:2] == ("none", "bias")


def test_simt_reductions_have_the_order_of_cuda() -> None:
    match = re.search(r"enum Reduction \{(.*?)\};", source("simt.cu"), re.DOTALL)
    assert match is not None
    members = re.findall(r"^\s*([A-Z]+)\b", re.sub(r"//.*", "", match[1]), re.MULTILINE)
    assert [member.lower() for member in members] == list(cuda_enums.REDUCTION)


def test_wgmma_reductions_have_the_numbers_of_cuda() -> None:
    shape = "include/hopper/shape.cuh"
    stream = cuda_enums.WGMMA_REDUCTION.index("stream")
    assert number(r"STREAM = REDUCTION_ == (\d)", shape) == stream
    none = cuda_enums.WGMMA_REDUCTION.index("none")
    assert number(r"SHARED_K = REDUCTION_ != (\d)", shape) == none


def test_stores_have_the_numbers_of_cuda() -> None:
    shape = "include/hopper/shape.cuh"
    assert number(r"STAGED = STORE_ != (\d)", shape) == cuda_enums.STORE.index("direct")
    assert number(r"TMA_STORE = STORE_ == (\d)", shape) == cuda_enums.STORE.index("tma")
