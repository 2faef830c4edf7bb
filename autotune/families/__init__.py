"""The kernel families, by name."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import ConfigError
from autotune.families.base import Family
from autotune.families.naive import NAIVE
from autotune.families.simt import SIMT
from autotune.families.tiled import TILED

FAMILIES: Mapping[str, Family] = {family.name: family for family in (NAIVE, TILED, SIMT)}


def find(name: str) -> Family:
    """The family of that name.

    Raises:
        ConfigError: if there is none; the message lists them.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}; give one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
