"""JSON to typed values: every error names the field, its value and what it must be."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from hashlib import sha256

import pytest

from autotune.files.decoding import (
    Name,
    QualifiedName,
    Text,
    convert,
    is_macro_name,
    is_word,
    parse,
    require_schema,
    visible,
)


@dataclass(frozen=True)
class Timing:
    time_us: float
    samples: int = 1
    cold_us: float | None = None

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"samples is {self.samples}; give at least 0")


@dataclass(frozen=True)
class Sample:
    name: str
    capability: tuple[int, int]
    timings: tuple[Timing, ...]
    params: dict[str, int | str]


def fields(**changed: object) -> dict[str, object]:
    sample = {
        "name": "a",
        "capability": [9, 0],
        "timings": [{"time_us": 1.5}],
        "params": {"bm": 64},
    }
    return sample | changed


def test_whole_value_is_converted() -> None:
    assert convert(fields(), Sample, "sample") == Sample("a", (9, 0), (Timing(1.5),), {"bm": 64})


def test_whole_number_may_stand_for_a_float() -> None:
    timing = convert({"time_us": 3}, Timing, "timing")
    assert isinstance(timing.time_us, float)


def test_unknown_fields_are_ignored() -> None:
    assert convert({"time_us": 3, "colour": "green"}, Timing, "timing") == Timing(3.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "sample is []; it must be an object"),
        (None, "sample is None; it must be an object"),
        (fields(name=7), "name is 7; it must be a text"),
        (fields(name=None), "name is None; it must be a text"),
        ({"capability": [9, 0]}, "name is missing"),
        (fields(capability=[9]), "capability is [9]; it must be a list of length 2"),
        (fields(capability=[9, "0"]), "capability[1] is '0'; it must be a whole number"),
        (fields(timings={}), "timings is {}; it must be a list"),
        (fields(timings=[{}]), "timings[0].time_us is missing"),
        (
            fields(timings=[{"time_us": "fast"}]),
            "timings[0].time_us is 'fast'; it must be a number",
        ),
        (
            fields(timings=[{"time_us": 1, "samples": True}]),
            "timings[0].samples is True; it must be a whole number",
        ),
        (
            fields(timings=[{"time_us": 1, "samples": 2.5}]),
            "timings[0].samples is 2.5; it must be a whole number",
        ),
        (
            fields(timings=[{"time_us": 1, "cold_us": "x"}]),
            "timings[0].cold_us is 'x'; it must be a number or null",
        ),
        (
            fields(timings=[{"time_us": 1, "samples": -1}]),
            "timings[0]: samples is -1; give at least 0",
        ),
        (fields(timings=[{"time_us": 10**400}]), "timings[0].time_us: Number out of range"),
        (
            fields(params={"bm": [1]}),
            "params[...] is {'bm': [1]}; it must be a whole number or a text",
        ),
    ],
)
def test_error_names_field_value_and_type(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        convert(data, Sample, "sample")
    assert str(caught.value) == message


def test_long_value_is_shortened() -> None:
    with pytest.raises(ValueError, match=r"name is \[0, 0, .*\.\.\.; it must be a text"):
        convert(fields(name=[0] * 1000), Sample, "sample")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "it is not JSON: Expecting value: line 1 column 1"),
        (b'{"a": 1,\n "b"}', "it is not JSON: Expecting ':' delimiter: line 2 column 5"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b'"\xff"', "it is not JSON"),
        (b'{"a": NaN}', "it is not JSON"),
        (b"[1e999]", "it is not JSON: Number out of range"),
        (b"9" * 5000, "it has a number of more than 64 digits"),
        (b'{"a": -%s}' % (b"9" * 400), "it has a number of more than 64 digits"),
        (b"[" * 100_000, "it nests too deeply"),
        (b"[" * 65 + b"]" * 65, "it nests too deeply: more than 64"),
        (b'{"[]":' * 65 + b"0" + b"}" * 65, "it nests too deeply: more than 64"),
        (b"[" + b"{}," * 500_000 + b"0]", "it has 500001 lists and objects; at most 500000"),
        (b" " * 2**24 + b"0", "it is JSON of 16777217 bytes; at most 16777216 are read"),
    ],
)
def test_text_that_is_not_json_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "value",
    [
        "[" * 200,
        '"' + "[[" * 100 + '\\"' + "]]" * 100 + '"{',
        sha256(b"").hexdigest(),
        "9" * 64,
        {"a" * 70: 2**64 - 1, "\n]": sys.float_info.max},
    ],
)
def test_brackets_and_digits_in_texts_are_allowed(value: object) -> None:
    for _ in range(63):
        value = [value]
    assert parse(json.dumps(value).encode()) == value


def test_numbers_are_parsed_exactly() -> None:
    text = b"[0.1, 1e-320, 1.7976931348623157e308, 9007199254740993]"
    assert parse(text) == [0.1, math.ulp(0.0) * 2024, 1.7976931348623157e308, 2**53 + 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"record is \[\]; it must be an object"),
        ({}, "schema is None, this version reads 2"),
        ({"schema": 3}, "schema is 3, this version reads 2"),
        ({"schema": True}, "schema is True, this version reads 2"),
        ({"schema": "2"}, "schema is '2', this version reads 2"),
    ],
)
def test_another_schema_is_refused(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_schema(data, "record", 2)


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
