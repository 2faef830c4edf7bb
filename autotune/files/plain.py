"""The rules for texts that come from files: what a line or a name may hold, and how to print any.

A record is data. Its texts reach terminals, tables, C comments, macros and file names, so each is
checked where it is decoded (`domains` has these rules as types), and `visible` prints the others.
"""

from __future__ import annotations

import re

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
"""The words of C and C++ that are no names, and the namespace `std`."""

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
