"""Bytes to typed values: the whole value, or an error that names the field and what it must be.

`convert` fills dataclasses by their annotations with `msgspec`. A whole number may stand for a
float. A field with a default may be absent. Fields that the dataclass does not have are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST = 2**30
"""Most bytes that a compressed file may expand to."""

SHOWN = 60
"""Most characters of a value in an error message."""

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
        ValueError: if the text is not JSON, nests too deeply, or has a number that is not finite.
    """
    import msgspec

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


def gunzip(data: bytes) -> bytes:
    """The content of a gzip file.

    Raises:
        ValueError: if it is not gzip, is cut short or damaged, or expands to more than 1 GiB.
    """
    import zlib

    stream = zlib.decompressobj(wbits=31)
    try:
        content = stream.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"it is not gzip: {error}") from error
    if stream.eof and not stream.unused_data:
        return content
    if len(content) >= LARGEST:
        raise ValueError(f"it is not gzip of at most {LARGEST} bytes")
    raise ValueError("it is gzip that was cut short or appended to")


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
        raise ValueError(f"{name} is {_shown(data)}; it must be an object")
    schema = data.get("schema")
    if type(schema) is not int or schema not in versions:
        readable = " and ".join(map(str, versions))
        raise ValueError(f"schema is {_shown(schema)}, this version reads {readable}")
    return data


def _reworded(message: str, data: object, name: str) -> str:
    """A message of msgspec with the field's value and in plain words."""
    match = re.fullmatch(_MESSAGE, message)
    text, path = (match[1], match[2] or "") if match else (message, "")
    if missing := re.fullmatch(_MISSING, text):
        return f"{path}.{missing[1]} is missing".lstrip(".")
    if expected := re.fullmatch(_EXPECTED, text):
        nouns = " or ".join(_NOUNS.get(word, word) for word in expected[1].split(" | "))
        text = f"it must be {nouns}{expected[2]}"
    elif path:
        return f"{path}: {text}"
    return f"{path or name} is {_at(data, path)}; {text}"


def _at(data: Any, path: str) -> str:
    """The value at a path such as `entries[0].config`, shortened."""
    try:
        for key, place in re.findall(_STEP, path.partition("[...]")[0]):
            data = data[key] if key else data[int(place)]
    except (LookupError, TypeError):
        return "of another type"
    return _shown(data)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
