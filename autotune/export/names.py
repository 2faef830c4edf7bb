"""Which names a library can have."""

from __future__ import annotations

import re

from autotune.errors import UsageError

LONGEST_NAME = 40

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# CMake's own targets, the example, and headers that the library includes.
_RESERVED = frozenset(
    {"all", "clean", "help", "install", "package", "test", "main", "bench"}
    | {"dlfcn", "math", "pthread", "stddef", "stdint", "stdio", "stdlib", "string"}
)
# The C++ header has a namespace of the library's name.
_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
not not_eq nullptr operator or or_eq private protected public register reinterpret_cast restrict
return short signed sizeof static static_assert static_cast std struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
wchar_t while xor xor_eq
"""


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
    elif name in _KEYWORDS.split():
        fault = "is a word of C or C++"
    elif len(name) > LONGEST_NAME:
        fault = f"has {len(name)} characters; {LONGEST_NAME} at most"
    if fault is not None:
        raise UsageError(f"name {name!r} {fault}; give another, such as gemm")
    return name
