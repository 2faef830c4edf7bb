"""Verdicts on many configurations: the same as those of the rules asked one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.candidates import space
from autotune.candidates.survey import survey
from autotune.candidates.verdicts import Verdicts
from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.problem import Problem

H200 = find("h200")
PROBLEM = Problem(300, 520, 1000, "bf16", "nt")


LARGER = Problem(4096, 4096, 4096, "bf16", "nt")


def members(family: str) -> list[Config]:
    """Configurations that can run the problem, and those of a larger one, which mostly cannot."""
    return [
        config for problem in (PROBLEM, LARGER) for config in survey(problem, H200, family)[::40]
    ]


def values_of(config: Config) -> tuple[Value, ...]:
    return tuple(value for _, value in config.params)


@pytest.mark.parametrize("family", ["mma", "wgmma"])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("device", [H200, replace(H200, clusters=None)], ids=["listed", "bound"])
def test_verdicts_are_those_of_the_rules(
    family: str, recorded: bool, ordered: bool, device: Device
) -> None:
    verdicts = Verdicts.of(family, PROBLEM, device)
    judge = space.Judge(family, PROBLEM, device, recorded=recorded, ordered=ordered)
    asked = members(family)
    found = [verdicts.legal(config, recorded=recorded, ordered=ordered) for config in asked]
    assert found == [judge.rejection(config) is None for config in asked]
    assert len(set(found)) == 2


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_verdicts_on_one_problem_do_not_serve_another(family: str) -> None:
    """Rules that do not read the problem share theirs."""
    asked = members(family)
    found = []
    for sizes, compute, layout in (
        ((300, 520, 1000), "bf16", "nt"),
        ((300, 521, 999), "f16", "tn"),
        ((16, 4096, 96), "bf16", "nn"),
        ((4096, 24, 4096), "f8", "nt"),
    ):
        problem = Problem(*sizes, compute, layout)
        verdicts = Verdicts.of(family, problem, H200)
        judge = space.Judge(family, problem, H200)
        found.append([verdicts.legal(config, recorded=False, ordered=False) for config in asked])
        assert found[-1] == [judge.rejection(config) is None for config in asked]
    assert any(len({*verdicts}) > 1 for verdicts in zip(*found, strict=True))


def test_family_with_other_rules_has_verdicts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = members("mma")
    before = [Verdicts("mma", PROBLEM, H200).broken(values_of(config)) for config in asked]
    lenient = replace(registry.find("mma"), rules=())
    with monkeypatch.context() as patch:
        patch.setattr(registry, "FAMILIES", {**registry.FAMILIES, "mma": lenient})
        assert not any(Verdicts("mma", PROBLEM, H200).broken(values_of(each)) for each in asked)
    assert [Verdicts("mma", PROBLEM, H200).broken(values_of(config)) for config in asked] == before
    assert any(before)


def test_order_of_parameters_does_not_matter() -> None:
    verdicts = Verdicts.of("mma", PROBLEM, H200)
    config = next(
        config for config in members("mma") if verdicts.legal(config, recorded=True, ordered=False)
    )
    turned = Config(config.family, config.params[::-1])
    assert verdicts.legal(turned, recorded=True, ordered=False)
    assert not verdicts.legal(Config("mma", config.params[1:]), recorded=True, ordered=False)


def test_family_has_to_serve_the_precision() -> None:
    with pytest.raises(ConfigError, match="does not compute f32"):
        Verdicts.of("wgmma", replace(PROBLEM, compute="f32"), H200)


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_changed_values_break_the_same_rule(family: str) -> None:
    verdicts = Verdicts.of(family, PROBLEM, H200)
    rechecked, checked = [], []
    for config in members(family)[::4]:
        values = values_of(config)
        passed = verdicts.place(verdicts.broken(values))
        for place, allowed in enumerate(verdicts.domain.values()):
            changed = (*values[:place], allowed[-1], *values[place + 1 :])
            rechecked.append(verdicts.broken_after_change(changed, place, passed))
            checked.append(verdicts.broken(changed))
    assert rechecked == checked
    assert len({*checked}) > 2
