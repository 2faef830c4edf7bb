"""Bytes to typed values: the whole value, or an error that names the field and what it must be.

`convert` fills dataclasses by their annotations with `msgspec`, which refuses a value outside its
field's domain, such as `Count`. A whole number may stand for a float. A field with a default may be
absent. Fields that the dataclass does not have are ignored. Values that the program computes itself
are not checked: constructing a dataclass costs no more.

A record is data, and its texts reach terminals, tables, C comments, macros and file names. So each
text is checked where it is decoded, and `visible` prints the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from autotune.files import limits

_HIDDEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
"""Control characters, line ends, marks that reorder or hide text, and halves of characters."""

LINE = rf"^[^{_HIDDEN}]*\Z"
"""A line without control characters."""

NAMED_LINE = rf"^[^{_HIDDEN}]*[A-Za-z0-9][^{_HIDDEN}]*\Z"
"""A line with a letter or a digit, so that a file can be named after it."""

_IDENTIFIER = r"[A-Za-z_]\w*"
QUALIFIED = rf"^{_IDENTIFIER}(::{_IDENTIFIER})*(<[\w:<>*&\x2c. ]*>)?\Z"
"""A name in C++, such as `filters::blur` or `transpose<float>`."""

PATH = rf"(?!/)(?:[^/\"\\{_HIDDEN}]+(?:/|\Z))+"
"""A relative path that messages, C and directives can quote."""

PHRASES = {
    LINE: "of one line without control characters",
    NAMED_LINE: "with a letter or a digit, of one line without control characters",
    QUALIFIED: "that is a name in C++",
}
"""The rules in words, for error messages."""

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
not not_eq nullptr operator or or_eq private protected public register reinterpret_cast restrict
return short signed sizeof static static_assert static_cast std struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
wchar_t while xor xor_eq
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""The words of C and C++ that are not names, and the namespace `std`."""

_NAME = re.compile(rf"(?!__|_[A-Z]){_IDENTIFIER}")
_WORD = re.compile(r"[\w:<>*&.+\-/%|^~!=()\[\] ]+")
_HIDDEN_CHARACTER = re.compile(f"[{_HIDDEN}]")


def visible(text: str) -> str:
    """The text as one line, with escapes such as `\\x1b` and `\\n` for control characters."""
    return _HIDDEN_CHARACTER.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), text
    )


def is_macro_name(text: str) -> bool:
    """Whether a parameter or macro may have this name: an identifier that C and C++ do not use or
    reserve."""
    return _NAME.fullmatch(text) is not None and text not in KEYWORDS


def is_word(text: str) -> bool:
    """Whether a parameter may have this value: a C++ expression without quotes, braces, commas and
    the characters of directives, which asks about no file."""
    return _WORD.fullmatch(text) is not None and "__has_" not in text


Text = Annotated[str, Meta(max_length=1000, pattern=LINE)]
"""A line for people, or a version, without control characters."""

Name = Annotated[str, Meta(min_length=1, max_length=1000, pattern=LINE)]

QualifiedName = Annotated[str, Meta(max_length=1000, pattern=QUALIFIED)]
"""A name in C++, such as `filters::blur`."""

Date = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$")]
"""UTC, ISO 8601."""

Code = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]
"""A hash of machine code; empty if it is not known."""

Count = Annotated[int, Meta(ge=0, le=10**15)]

Microseconds = Annotated[float, Meta(gt=0, lt=1e12)]
"""A time: above 0, below 12 days."""

Spread = Annotated[float, Meta(ge=0, lt=1e12)]
"""The spread of a time in microseconds."""

Seconds = Annotated[float, Meta(ge=0, lt=1e12)]

Score = Annotated[float, Meta(gt=0, lt=1e300)]
"""The value of a user's objective."""

Error = Annotated[float, Meta(ge=0, le=1e15)]
"""An error or its bound: operands lie between -1 and 1, and sums have at most 2^31 terms."""

Share = Annotated[float, Meta(ge=0, le=1)]
"""A number from 0 to 1."""

Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""Rows or columns of a matrix."""

T = TypeVar("T")

DEPTH = 64
"""Most nested lists and objects: autotune's documents have 8."""

NESTED = 500_000
"""Most lists and objects: each takes 60 to 230 bytes of memory."""

DIGITS = 64
"""Most digits in a row: a number of 64 bits has 20, and a SHA-256 in a text 64."""

SHOWN = 60
"""Most characters of a value in an error message."""

LONGEST = 300
"""Most characters of a dataclass's own message, which may repeat the value."""

_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_BRACKETS, _NOT_BRACKETS = bytes.maketrans(b"{}", b"[]"), bytes({*range(256)} - {*b"[]{}"})
_TEXT = rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"'
# The parts of msgspec's messages; only errors need them, so they are compiled when used.
_MESSAGE = r"(?s)(.*?)(?: - at `\$\.?(.*)`)?"
_EXPECTED = r"(?s)Expected `([^`]+)`([^,]*)(?:, got .*)?"
_MISSING = r"Object missing required field `(\w+)`"
_STEP = r"(\w+)|\[(\d+)\]"
_NOUNS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}


def parse(text: bytes) -> Any:
    """The JSON value of a text.

    Raises:
        ValueError: if the text is not JSON, is too long, nests too deeply, or has a number that is
            not finite or has more than 64 digits.
    """
    _check_shape(text)
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError(f"it nests too deeply: {error}") from error
    except ValueError as error:
        # The standard library tells the line and the column, msgspec the byte alone. It accepts
        # NaN, infinity and 1e999.
        try:
            json.loads(text)
        except RecursionError:
            pass
        except ValueError as located:
            raise ValueError(f"it is not JSON: {located}") from located
        raise ValueError(f"it is not JSON: {error}") from error


def convert(data: object, kind: type[T], name: str) -> T:
    """A value of a type, such as a dataclass, from the value of a JSON text.

    Args:
        data: the JSON value.
        kind: the type; dataclasses are filled from objects by their fields' annotations.
        name: what the whole is called in errors, such as `record`.

    Raises:
        ValueError: if a field is missing or has another type, or a dataclass refuses its values;
            the message is one line such as `entries[0].resources.threads is 'x'; it must be a whole
            number`.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_reworded(str(error), data, name)) from error


def require_schema(data: object, name: str, version: int) -> Mapping[str, Any]:
    """The JSON object, if its `schema` is that version.

    Raises:
        ValueError: if it is not an object, or its schema is another one.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{name} is {shown(data)}; it must be an object")
    schema = data.get("schema")
    if type(schema) is not int or schema != version:
        raise ValueError(f"schema is {shown(schema)}, this version reads {version}")
    return data


def _check_shape(text: bytes) -> None:
    """Refuses a text whose value would take too much memory or recursion, or overflow a float."""
    if len(text) > limits.DOCUMENT:
        raise ValueError(f"it is JSON of {len(text)} bytes; at most {limits.DOCUMENT} are read")
    if b"0" * (DIGITS + 1) in text.translate(_DIGITS_AS_ZEROS):
        raise ValueError(f"it has a number of more than {DIGITS} digits")
    brackets = text.translate(_BRACKETS, _NOT_BRACKETS)
    if len(brackets) > 2 * NESTED:
        nested = len(brackets) // 2
        raise ValueError(f"it has {nested} lists and objects; at most {NESTED} are read")
    # Texts in quotes may hold brackets too; leaving them out takes longer.
    if _deep(brackets) and _deep(re.sub(_TEXT, b"", text).translate(_BRACKETS, _NOT_BRACKETS)):
        raise ValueError(f"it nests too deeply: more than {DEPTH} lists and objects in each other")


def _deep(brackets: bytes) -> bool:
    """Whether brackets nest more than `DEPTH` deep: each step takes the innermost pairs out."""
    for _ in range(DEPTH):
        if b"[]" not in brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets


def _reworded(message: str, data: object, name: str) -> str:
    """A message of msgspec with the field's value and in plain words."""
    match = re.fullmatch(_MESSAGE, message)
    text, path = (match[1], match[2] or "") if match else (message, "")
    if missing := re.fullmatch(_MISSING, text):
        return f"{path}.{missing[1]} is missing".lstrip(".")
    if expected := re.fullmatch(_EXPECTED, text):
        nouns = " or ".join(_NOUNS.get(word, word) for word in expected[1].split(" | "))
        text = f"it must be {nouns}{expected[2]}"
        for pattern, phrase in PHRASES.items():
            text = text.replace(f"matching regex {pattern!r}", phrase)
    elif path:
        return f"{path}: {cut(text)}"
    return f"{path or name} is {_at(data, path)}; {cut(text)}"


def _at(data: Any, path: str) -> str:
    try:
        for key, place in re.findall(_STEP, path.partition("[...]")[0]):
            data = data[key] if key else data[int(place)]
    except (LookupError, TypeError):
        return "of another type"
    return shown(data)


def shown(value: object) -> str:
    """A value for an error message, in at most 60 characters."""
    return cut(repr(value), SHOWN)


def cut(text: str, longest: int = LONGEST) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
