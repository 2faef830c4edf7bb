"""The table of operands, and what follows from it."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources

import pytest
from support.paths import ROOT

from autotune.problem import Problem
from autotune.problem.call import (
    BY_NAME,
    FURTHER,
    MATRICES,
    OPERANDS,
    WORDS,
    Call,
    FurtherArrays,
    LaunchWords,
)

PLAIN = Problem(48, 32, 64, "bf16", batch=3)
SCALED = Problem(48, 32, 256, "f8", "nt", scale="block", output="e4m3", epilogue="bias")


def test_keywords_are_those_of_the_table() -> None:
    arguments = [operand.argument for operand in FURTHER]
    assert [*FurtherArrays.__annotations__] == arguments
    pitches = [matrix.pitch for matrix in MATRICES]
    strides = [matrix.stride for matrix in MATRICES]
    assert [*LaunchWords.__annotations__] == [*pitches, *strides, *arguments]


def test_fields_of_the_c_library_are_those_of_the_table() -> None:
    header = resources.files("autotune.export") / "templates" / "gemm.h"
    product = re.search(
        r"typedef struct(?: gemm_product)? \{(.*?)\} gemm_product;", header.read_text(), re.DOTALL
    )
    assert product is not None
    fields = set(re.findall(r"\b\w+\b", re.sub(r"/\*.*?\*/", "", product[1], flags=re.DOTALL)))
    named = {operand.field for operand in OPERANDS}
    steps = {word for matrix in MATRICES for word in (matrix.pitch, matrix.stride)}
    assert (named | steps) - fields == set()


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (PLAIN, "a b c"),
        (replace(PLAIN, epilogue="bias_residual"), "a b c bias residual"),
        (replace(PLAIN, epilogue="swiglu"), "a b c"),
        (SCALED, "a b c bias scale_a scale_b scale_c amax"),
    ],
)
def test_problem_has_the_operands_that_it_needs(problem: Problem, names: str) -> None:
    assert [operand.name for operand in OPERANDS if operand.present(problem)] == names.split()


def test_elements_and_counts_are_those_of_the_problem() -> None:
    assert {
        operand.name: (operand.element(SCALED).name, operand.count(SCALED))
        for operand in FURTHER
        if operand.present(SCALED)
    } == {
        "bias": ("bf16", 32),
        "scale_a": ("f32", 2 * 48),
        "scale_b": ("f32", 2),
        "scale_c": ("f32", 1),
        "amax": ("f32", 1),
    }
    assert [operand.element(SCALED).name for operand in OPERANDS[:3]] == ["e4m3"] * 3


def test_words_of_a_call_are_zero_where_nothing_is_given() -> None:
    call = Call({"a": 256, "residual": 512}, {"a": 64, "residual": 40}, {"a": 4096}, 2.0)
    words = call.words()
    assert [*words] == [*WORDS]
    assert {name: value for name, value in words.items() if value} == {
        "a": 256,
        "residual": 512,
        "lda": 64,
        "ldr": 40,
        "stride_a": 4096,
        "alpha": 2.0,
    }


def test_names_in_messages_are_those_of_the_arguments() -> None:
    assert (BY_NAME["c"].argument, BY_NAME["scale_c"].argument) == ("out", "scale_result")
    assert (BY_NAME["scale_c"].field, BY_NAME["c"].field) == ("scale_result", "c")


def test_documents_explain_each_word_of_launch_plans() -> None:
    text = (ROOT / "docs" / "export.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    explained = {word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert set(WORDS) - explained == set()
