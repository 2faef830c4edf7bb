"""Tables and pictures of results: rows as data, and their rendering for a terminal."""

from __future__ import annotations


def cell(value: float | None, form: str) -> str:
    """A value in the given format, such as `{:.1%}`; empty if there is none."""
    return "" if value is None else form.format(value)
