"""Epilogues as values: parts, words, and problems that hold them."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import ProblemError
from autotune.problem import ELEMENTWISE, EPILOGUES, Epilogue, Problem, epilogue_of
from autotune.problem.fields import ACTIVATIONS, NO_EPILOGUE

EVERY = pytest.mark.parametrize("epilogue", EPILOGUES)
SHAPE = 16, 16, 16


def test_words_are_in_the_order_of_the_kernels() -> None:
    assert [str(epilogue) for epilogue in EPILOGUES] == [
        *("none", "bias", "relu", "bias_relu", "gelu", "bias_gelu", "gelu_tanh", "bias_gelu_tanh"),
        *("silu", "bias_silu", "residual", "bias_residual", "swiglu"),
    ]
    assert [number & 1 for number, _ in enumerate(ELEMENTWISE)] == [
        epilogue.bias for epilogue in ELEMENTWISE
    ]


def test_parts_of_each_word() -> None:
    parts = {
        "none": (False, None, False, False),
        "bias_gelu_tanh": (True, "gelu_tanh", False, False),
        "gelu": (False, "gelu", False, False),
        "bias_residual": (True, None, True, False),
        "swiglu": (False, None, False, True),
    }
    for word, expected in parts.items():
        value = Epilogue.parse(word)
        assert (value.bias, value.activation, value.residual, value.gate) == expected


@EVERY
def test_parts_make_the_value_again(epilogue: Epilogue) -> None:
    parts = epilogue.bias, epilogue.activation, epilogue.residual, epilogue.gate
    assert Epilogue(*parts) is epilogue is Epilogue.parse(f"{epilogue}".upper())
    assert pickle.loads(pickle.dumps(epilogue)) is epilogue is copy.deepcopy(epilogue)


@EVERY
def test_text_of_an_epilogue_is_its_word(epilogue: Epilogue) -> None:
    assert type(str(epilogue)) is str
    assert json.loads(json.dumps({"epilogue": epilogue})) == {"epilogue": str(epilogue)}
    assert (hash(epilogue), repr(epilogue)) == (hash(str(epilogue)), repr(str(epilogue)))


@EVERY
def test_epilogue_is_frozen(epilogue: Epilogue) -> None:
    with pytest.raises(AttributeError, match="frozen: cannot set bias"):
        epilogue.bias = True


def test_only_none_is_plain_and_two_kinds_are_not_elementwise() -> None:
    assert [epilogue for epilogue in EPILOGUES if epilogue.plain] == [NO_EPILOGUE]
    others = [str(epilogue) for epilogue in EPILOGUES if not epilogue.elementwise]
    assert others == ["residual", "bias_residual", "swiglu"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"activation": "tanh"}, "unknown activation 'tanh'; give one of relu, gelu, gelu_tanh"),
        ({"activation": "relu", "residual": True}, "without an activation, here relu"),
        ({"activation": "relu", "gate": True}, "swiglu has no activation, here relu"),
        ({"bias": True, "gate": True}, "swiglu comes without a bias"),
        ({"residual": True, "gate": True}, "without an activation, here swiglu"),
    ],
)
def test_parts_that_exclude_each_other_are_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Epilogue(**parts)


@pytest.mark.parametrize("word", ["tanh", "bias_swiglu", "", None, 3, ["bias"]])
def test_unknown_word_is_refused(word: object) -> None:
    with pytest.raises(ProblemError, match=r"unknown epilogue .*; give one of none, bias, relu"):
        Epilogue.parse(word)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_call_has_the_epilogue_of_its_arguments(bias: bool, activation: str | None) -> None:
    assert epilogue_of(bias, activation) is Epilogue(bias, activation)


def test_swiglu_is_the_activation_of_a_call() -> None:
    assert epilogue_of(False, "swiglu") is Epilogue(gate=True)
    with pytest.raises(ProblemError, match="swiglu comes without a bias"):
        epilogue_of(True, "swiglu")


@pytest.mark.parametrize("activation", ["tanh", 3, ["relu"]])
def test_unknown_activation_of_a_call_is_refused(activation: Any) -> None:
    with pytest.raises(ProblemError, match=r"unknown activation .*; give one of relu, gelu"):
        epilogue_of(False, activation)


def test_problem_takes_words_and_holds_values() -> None:
    made = Problem(*SHAPE, "f16", epilogue="Bias_ReLU")
    assert made.epilogue is Epilogue(True, "relu")
    assert made == Problem(*SHAPE, "f16", epilogue=Epilogue(True, "relu"))
    assert replace(made, epilogue="none").epilogue is NO_EPILOGUE
    assert Problem.parse("16x16x16:f16:bias_relu").epilogue is made.epilogue
    assert Problem(*SHAPE).epilogue is NO_EPILOGUE


def test_fields_of_a_problem_are_plain_json() -> None:
    fields = Problem(*SHAPE, "f16", epilogue="bias").fields()
    assert {type(value) for value in fields.values()} == {int, str}
    assert Problem(**fields) == Problem(*SHAPE, "f16", epilogue="bias")
