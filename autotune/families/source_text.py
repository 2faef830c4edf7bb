"""The text that says which sources kernels are compiled from, as records and trial logs keep it.

    4607a10176400bdc…                       one hash for all families
    mma:31dda0377efc29f6… wgmma:4607a10…    the hash of each family's sources, sorted by family

A family's hash covers the files that its launches are compiled from, with every header they reach
(`compiler.source_hash`). In place of a hash, `cublaslt` has the library's version, such as
`cublaslt:13.0.0`. Records of earlier versions have one hash over all families' sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DIGITS = 12
"""Digits of a hash where it is shown."""


def joined(hashes: Mapping[str, str]) -> str:
    """The text of hashes by family: one hash if all families have the same."""
    named = {family: digest for family, digest in hashes.items() if digest}
    if len(set(named.values())) <= 1:
        return next(iter(named.values()), "")
    return " ".join(f"{family}:{digest}" for family, digest in sorted(named.items()))


def hash_of(text: str, family: str) -> str:
    """The hash of a family's sources; empty if the text does not name the family."""
    return text if ":" not in text else _by_family(text).get(family, "")


def narrowed(text: str, families: Iterable[str]) -> str:
    """The text for some of its families alone; one hash stays as it is."""
    return joined({family: hash_of(text, family) for family in families})


def shortened(text: str) -> str:
    """The text with each hash cut to `DIGITS` digits."""
    if ":" not in text:
        return text[:DIGITS]
    return " ".join(f"{family}:{digest[:DIGITS]}" for family, digest in _by_family(text).items())


def _by_family(text: str) -> dict[str, str]:
    pairs = (word.partition(":") for word in text.split())
    return {family: digest for family, _, digest in pairs}
