"""Typed parameters, their domains, and what rules may read of them."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.family import Family, parameter, parameter_from
from autotune.families.registry import FAMILIES
from autotune.families.textbook import TILED, TiledParams
from autotune.model import space
from autotune.problem import Problem

H100 = find("h100")
PROBLEM = Problem(512, 256, 128)


@dataclass
class Part:
    second: int
    first: int


def workers(problem: Problem, device: Device) -> tuple[int, ...]:
    return 0, device.sms, problem.m


@dataclass
class Params(Part):
    first: int = parameter(1, 2)
    second: int = parameter_from(workers, for_speed=True)


PAIR: Family[Any] = replace(TILED, params=Params)  # type: ignore[arg-type]


def test_domain_has_the_order_of_the_class() -> None:
    domain = PAIR.domain(PROBLEM, H100)
    assert list(domain.items()) == [("first", (1, 2)), ("second", (0, 132, 512))]


def test_domain_chosen_for_speed_is_named() -> None:
    assert PAIR.chosen_for_speed == {"second"}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_family_declares_every_parameter(family: Family[Any]) -> None:
    assert sorted(family.parameters) == sorted(field.name for field in fields(family.params))


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


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.second == 1,
        lambda p: p.second in (1, 2),
        lambda p: p.second > 1,
        lambda p: p.second + 1,
        lambda p: bool(p.second),
    ],
    ids=["equal", "member", "greater", "sum", "truth"],
)
def test_parameter_that_is_not_chosen_cannot_be_used(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        use(PAIR.chosen({"first": 1}))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_rules_use_no_parameter_beside_their_needs(family: Family[Any]) -> None:
    problems = (
        Problem(8, 512, 4096, family.precisions[0]),
        Problem(1001, 1003, 1005, family.precisions[0], "tt"),
        Problem(96, 96, 8192, family.precisions[-1]),
    )
    for problem in problems:
        for config in space.spread(space.feasible(problem, H100, family.name).configs, 50):
            for rule in family.rules:
                assert rule.check(family.chosen(needed(config, rule.needs)), problem, H100) is None
            for function in (family.summation, family.summation_order):
                part = family.chosen(needed(config, function.needs))
                assert function.function(part, problem) == function.function(
                    family.decode(config), problem
                )


def needed(config: Config, names: tuple[str, ...]) -> dict[str, Value]:
    return {name: config.values[name] for name in names}
