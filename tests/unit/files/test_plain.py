"""The rules for texts of files."""

from __future__ import annotations

import pytest

from autotune.files.decoding import (
    Name,
    QualifiedName,
    Text,
    convert,
    is_macro_name,
    is_word,
    visible,
)


def test_control_characters_become_visible() -> None:
    text = "a\x1b[2J\nerror: forged\x07\u202e\udcff é"
    assert visible(text) == r"a\x1b[2J\nerror: forged\x07\u202e\udcff é"


@pytest.mark.parametrize("kind", [Text, Name])
@pytest.mark.parametrize("text", ["a\nb", "a\n", "\x1b[2J", "a\x85", "a\u2028b", "\u202eb"])
def test_line_with_control_characters_is_refused(kind: type[str], text: str) -> None:
    with pytest.raises(ValueError, match="it must be a text of one line without control char"):
        convert(text, kind, "driver")


@pytest.mark.parametrize("text", ["", "*/ x", "a::1", "a b", "a\n", "[bold]x", "a::"])
def test_text_that_is_no_name_in_cpp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it must be a text that is a name in C\+\+"):
        convert(text, QualifiedName, "name")


@pytest.mark.parametrize("text", ["return", "std", "a b", "1a", "a.b", "_A", "__a", "a\n", ""])
def test_macro_cannot_have_the_name(text: str) -> None:
    assert not is_macro_name(text)


def test_parameters_have_names_of_macros() -> None:
    assert all(map(is_macro_name, ("TILE", "block_size_x", "_a")))


@pytest.mark.parametrize("text", ['"x"', "a;b", "{", "#x", "a\\", "a\n", "__has_include(<x>)"])
def test_parameter_cannot_have_the_value(text: str) -> None:
    assert not is_word(text)


def test_parameters_have_types_as_values() -> None:
    assert all(map(is_word, ("float4", "my::type<3> *", "sizeof(float)", "-1.5e3")))
