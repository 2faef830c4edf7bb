"""Which names a library can have."""

from __future__ import annotations

import re

from autotune.errors import UsageError
from autotune.files.decoding import KEYWORDS

LONGEST_NAME = 40

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# CMake's own targets, the example, and headers that the library includes.
_RESERVED = frozenset(
    {"all", "clean", "help", "install", "package", "test", "main", "bench"}
    | {"dlfcn", "math", "pthread", "stddef", "stdint", "stdio", "stdlib", "string"}
)


def check_name(name: str) -> str:
    """The name, if C functions and files can be called so.

    Raises:
        UsageError: if they cannot.
    """
    fault = None
    if not _NAME.fullmatch(name):
        fault = "is no C identifier: letters, digits and underscores, a letter in front"
    elif name.lower() in _RESERVED:
        fault = "is taken, by CMake, the example or a header of C"
    elif name in KEYWORDS:
        fault = "is a word of C or C++"
    elif len(name) > LONGEST_NAME:
        fault = f"has {len(name)} characters; {LONGEST_NAME} at most"
    if fault is not None:
        raise UsageError(f"name {name!r} {fault}; give another, such as gemm")
    return name
