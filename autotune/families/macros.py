"""Macros that are defined before a source, and the check that the source leaves them alone.

A source that redefines a macro, or undefines it, would compile to one kernel under all of its
values. Warnings do not tell: they can be suppressed, and `#undef` causes none. So the compiler
compares each macro after the source with the value that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Macros = Sequence[tuple[str, str]]
"""The name and the value of each macro."""

_COMPARISON = """
#if __cplusplus < 201103L
#error tuned macros need --std=c++11 or newer
#endif
#define AUTOTUNE_TEXT_OF(...) #__VA_ARGS__
#define AUTOTUNE_TEXT(...) AUTOTUNE_TEXT_OF(__VA_ARGS__)
namespace autotune_macros {
__host__ __device__ constexpr bool same(const char* a, const char* b)
{
    return *a == *b && (*a == 0 || same(a + 1, b + 1));
}
}
"""
_OVERRIDE = re.compile(r"autotune: (\w+) is (.*), given (.*)\"")


def definitions(macros: Macros) -> str:
    """The lines that define macros."""
    return "".join(f"#define {name} {value}\n" for name, value in macros)


def checks(macros: Macros) -> str:
    """The lines behind a source that fail to compile if it has changed a macro.

    Both sides are expanded, since a value may be a macro of the source.
    """
    lines = (
        f"static_assert(autotune_macros::same(AUTOTUNE_TEXT({name}), AUTOTUNE_TEXT({value})), "
        f'"autotune: {name} is " AUTOTUNE_TEXT({name}) ", given " AUTOTUNE_TEXT({value}));\n'
        for name, value in macros
    )
    return f"{_COMPARISON}{''.join(lines)}" if macros else ""


def override(log: str) -> str | None:
    """The macro that a source changes, in a line with both values; None if the log names none."""
    match = _OVERRIDE.search(log)
    if match is None:
        return None
    name, actual, value = match.groups()
    change = f"undefines {name}" if actual == name else f"sets {name} to {actual}"
    return f"the source {change}, which is given as {value}"
