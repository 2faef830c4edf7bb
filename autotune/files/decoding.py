"""Bytes to typed values: the whole value, or an error that names the field and what it must be.

`convert` fills dataclasses by their annotations with `msgspec`, which checks the domains stated
there (see `domains`). A whole number may stand for a float. A field with a default may be absent.
Fields that the dataclass does not have are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from autotune.files import limits
from autotune.files.plain import PHRASES

T = TypeVar("T")

DEPTH = 64
"""Most lists and objects inside each other: documents of ours have 8."""

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
    import msgspec

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
    import msgspec

    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_reworded(str(error), data, name)) from error


def require_schema(data: object, name: str, *versions: int) -> Mapping[str, Any]:
    """The JSON object, if its `schema` is one of the versions.

    Raises:
        ValueError: if it is no object, or its schema is another one.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{name} is {shown(data)}; it must be an object")
    schema = data.get("schema")
    if type(schema) is not int or schema not in versions:
        readable = " and ".join(map(str, versions))
        raise ValueError(f"schema is {shown(schema)}, this version reads {readable}")
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
    """The value at a path such as `entries[0].config`, shortened."""
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
