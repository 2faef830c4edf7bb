"""A configuration: a kernel family and its parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from autotune.errors import ConfigError
from autotune.files.decoding import is_macro_name, is_word, shown

FamilyValue = (
    Annotated[int, Meta(gt=-(10**15), lt=10**15)]
    | Annotated[str, Meta(min_length=1, max_length=200)]
)
"""A value of a parameter of a kernel family, which says which are legal."""

Value = FamilyValue | Annotated[float, Meta(gt=-1e15, lt=1e15)]
"""A value of a parameter: user kernels have floats too."""

_TEXT = re.compile(r"(\w+)(?::(.*))?", re.DOTALL)
_WHOLE = re.compile(r"-?\d{1,15}")
_FLOAT = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True, order=True)
class Config:
    """A kernel family and a value for each of its parameters, in the family's order.

    The text form is `family:name=value,name=value`, such as `tiled:tile_width=16`; blanks may stand
    beside a comma, as where a printed configuration wraps.
    """

    family: str
    params: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, family: str, params: Mapping[str, Value]) -> Config:
        """A configuration from a mapping; the order of the mapping is kept."""
        return cls(family, tuple(params.items()))

    @classmethod
    def parse(cls, text: str) -> Config:
        """Reads the text form back.

        Raises:
            ConfigError: if the text has another form.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"malformed configuration {text!r}; give family:name=value,...")
        params: list[tuple[str, Value]] = []
        for pair in filter(None, map(str.strip, (match[2] or "").split(","))):
            name, _, value = pair.partition("=")
            if not (name and value):
                raise ConfigError(f"malformed configuration {text!r}; give family:name=value,...")
            params.append((name, value_of(value)))
        return cls(match[1], tuple(params))

    def __str__(self) -> str:
        pairs = ",".join(f"{name}={value}" for name, value in self.params)
        return f"{self.family}:{pairs}" if pairs else self.family

    def check_plain(self) -> None:
        """Refuses parameters that could not be macros: those of user kernels are.

        Raises:
            ConfigError: for a name that C++ uses or reserves, or a value that is not an expression.
        """
        for name, value in self.params:
            if not is_macro_name(name) or (isinstance(value, str) and not is_word(value)):
                raise ConfigError(
                    f"parameter {shown(name)} with the value {shown(value)}; give an identifier "
                    "that C++ does not use, and a number or a word without quotes and braces"
                )

    @property
    def values(self) -> dict[str, Value]:
        """The parameters as a new dict."""
        return dict(self.params)

    @property
    def key(self) -> str:
        """A stable name for files: 16 hexadecimal digits of the text form's SHA-256."""
        return sha256(str(self).encode()).hexdigest()[:16]

    def integer(self, name: str) -> int:
        """The value of an integer parameter.

        Raises:
            ConfigError: if the family has no such parameter or its value is a word.
        """
        value = self.values.get(name)
        if not isinstance(value, int):
            raise ConfigError(f"{self}: {name} is {value!r}; it must be a whole number")
        return value


@lru_cache(4096)  # a bundle of 100 records has 20,000 values, most of them a few hundred texts
def value_of(text: str) -> Value:
    """The value that a text stands for: a number if it looks like one, else the word."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if ("." in text or "e" in text) and _FLOAT.fullmatch(text):
        return float(text)
    return text
