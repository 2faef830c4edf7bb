"""Typed parameters and their domains."""

from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import Family, domain, names, values, values_from
from autotune.families.registry import FAMILIES
from autotune.families.textbook import TILED, TiledParams
from autotune.problem import Problem

H100 = find("h100")
PROBLEM = Problem(512, 256, 128)


@dataclass(frozen=True)
class View:
    second: int
    first: int

    @property
    def total(self) -> int:
        return self.first + self.second


def workers(problem: Problem, device: Device) -> tuple[int, ...]:
    return 0, device.sms, problem.m


@dataclass(frozen=True)
class Params(View):
    first: int = field(metadata=values(1, 2))
    second: int = field(metadata=values_from(workers))


def test_domain_has_the_order_of_the_class() -> None:
    found = domain(Params, PROBLEM, H100)
    assert list(found.items()) == [("first", (1, 2)), ("second", (0, 132, 512))]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_family_declares_every_parameter(family: Family[Any]) -> None:
    declared = names(family.params)
    assert sorted(declared) == sorted(field.name for field in fields(family.params))


def test_configuration_decodes_into_parameters() -> None:
    params = TILED.decode(Config.parse("tiled:tile_width=16,specialized=0"))
    assert params == TiledParams(tile_width=16, specialized=0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tiled:tile_width=16", "specialized"),
        ("tiled:tile_width=16,specialized=1,stages=2", "stages"),
    ],
)
def test_decoding_names_missing_or_unknown_parameters(text: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"missing or unknown: {name}$"):
        registry.plan(Config.parse(text), PROBLEM)
