"""Legality: single questions, enumeration and changes agree with the rules asked one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.family import Family, Rule
from autotune.model import space
from autotune.model.legality import (
    ORDER,
    FamilyRules,
    Legality,
    Rejection,
    Values,
    is_legal,
    order_of,
    rules_of,
)
from autotune.model.space import Adaptation, variants
from autotune.problem import COMPUTES, Problem

H100, H200 = find("h100"), find("h200")

PROBLEM = Problem(300, 520, 1000, "bf16", "nt")

LARGER = Problem(4096, 4096, 4096, "bf16", "nt")

LARGE = Problem(2048, 4096, 4096, "bf16", "nt")

SPLIT, WHOLE = "wgmma bf16 swap=1 shared +(2*2048)", "wgmma bf16 swap=1 shared 4096"

Domain = dict[str, tuple[Value, ...]]

DEVICES = ("h100", "h200", "a100", "rtx 3060", "rtx 4090", "rtx 5090", "b200", "t4")


def members(family: str) -> list[Config]:
    """Configurations that can run the problem, and those of a larger one, which mostly cannot."""
    return [
        config
        for problem in (PROBLEM, LARGER)
        for config in space.sample(problem, H200, family)[::40]
    ]


Bound = list[tuple[Rule, Callable[[Values], str | None]]]


def bound_rules(
    kind: Family[Any], rules: Iterable[Rule], problem: Problem, device: Device
) -> Bound:
    """Rules that keep nothing of what they found, and see only the parameters that they need."""

    def bound(rule: Rule) -> Callable[[Values], str | None]:
        def check(values: Values) -> str | None:
            needed = kind.chosen({name: values[name] for name in rule.needs})
            return rule.check(needed, problem, device)

        return check

    return [(rule, bound(rule)) for rule in rules]


def first_broken(values: Values, rules: Bound) -> Rejection | None:
    for rule, check in rules:
        detail = check(values)
        if detail is not None:
            return Rejection(rule.reason, detail)
    return None


@pytest.mark.parametrize("family", ["mma", "wgmma"])
@pytest.mark.parametrize(
    ("device", "recorded"),
    [(H200, False), (H200, True), (replace(H200, clusters=None), False)],
    ids=["listed", "recorded", "bound"],
)
@pytest.mark.parametrize(
    ("sizes", "compute", "layout"),
    [
        ((300, 520, 1000), "bf16", "nt"),
        ((300, 521, 999), "f16", "tn"),
        ((16, 4096, 96), "bf16", "nn"),
        ((4096, 24, 4096), "f8", "nt"),
    ],
)
def test_rejection_is_that_of_the_rules(
    family: str,
    recorded: bool,
    device: Device,
    sizes: tuple[int, int, int],
    compute: str,
    layout: str,
) -> None:
    problem = Problem(*sizes, compute, layout)
    kind = registry.find(family)
    applying = (rule for rule in kind.rules if not (recorded and rule.for_speed))
    rules = bound_rules(kind, applying, problem, device)
    domain, free = kind.domain(problem, device), kind.chosen_for_speed
    legal, asked = Legality(problem, device), members(family)
    for config in asked:
        found = space.rejection(config, problem, device, recorded=recorded)
        if recorded:
            assert legal(config) == (found is None)
        outside = [
            name
            for name, value in config.params
            if value not in domain[name] and not (recorded and name in free)
        ]
        if outside:
            assert found is not None
            assert found.reason == "value"
        else:
            assert found == first_broken(config.values, rules)
    if problem == PROBLEM:
        assert len({*map(legal, asked)}) == 2


def test_family_with_other_rules_has_results_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [config.values for config in members("mma")]
    before = [FamilyRules("mma", PROBLEM, H200).broken(values) for values in asked]
    lenient = replace(registry.find("mma"), rules=())
    with monkeypatch.context() as patch:
        patch.setattr(registry, "FAMILIES", {**registry.FAMILIES, "mma": lenient})
        assert not any(FamilyRules("mma", PROBLEM, H200).broken(values) for values in asked)
    after = FamilyRules("mma", PROBLEM, H200)
    assert [after.broken(values) for values in asked] == before
    assert min(before) < len(after)


def test_order_of_parameters_does_not_matter() -> None:
    legal = Legality(PROBLEM, H200)
    config = next(filter(legal, members("mma")))
    assert legal(Config(config.family, config.params[::-1]))
    assert not legal(Config("mma", config.params[1:]))


def test_family_has_to_serve_the_precision() -> None:
    with pytest.raises(ConfigError, match="does not compute f32"):
        rules_of("wgmma", replace(PROBLEM, compute="f32"), H200)


def test_unknown_family_is_not_legal() -> None:
    assert not is_legal(Config("wmma"), PROBLEM, H200)


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_changed_values_break_the_same_rule(family: str) -> None:
    rules = rules_of(family, PROBLEM, H200)
    rechecked, checked = [], []
    for config in members(family)[::4]:
        values = config.values
        passed = rules.broken(values)
        for name, allowed in rules.domain.items():
            changed = {**values, name: allowed[-1]}
            rechecked.append(rules.broken_after_change(changed, name, passed))
            checked.append(rules.broken(changed))
    assert rechecked == checked
    assert len({*checked}) > 2


@pytest.mark.parametrize("order", [SPLIT, WHOLE, "mma bf16 swap=0 2/32(4096)"])
def test_prescribed_order_is_that_of_every_configuration(order: str) -> None:
    legal = space.feasible(LARGE, H100, order.partition(" ")[0], order)
    assert {str(order_of(config, LARGE)) for config in legal.configs} == {order}


def test_order_may_split_k_where_it_does_not_pay() -> None:
    usual = space.feasible(LARGE, H100, "wgmma").configs
    assert SPLIT not in {str(order_of(config, LARGE)) for config in usual}
    split = space.feasible(LARGE, H100, "wgmma", SPLIT).configs[0]
    assert Legality(LARGE, H100, SPLIT)(split)
    assert not Legality(LARGE, H100, WHOLE)(split)


def test_configuration_without_an_order_has_none_of_any_name() -> None:
    problem, naive = Problem(64, 64, 64), Config.parse("naive:mapping=coalesced,block=16")
    assert is_legal(naive, problem, H100)
    assert order_of(naive, problem) is None
    rejection = rules_of("naive", problem, H100, "None").rejection(naive)
    assert rejection == Rejection(ORDER, "an order that depends on M, not None")


def drawn(random: Random) -> Problem:
    """A problem of any precision, most of whose sizes are not round."""
    compute = random.choice(COMPUTES)
    m, n, k = (round(2 ** random.uniform(0, 13)) for _ in range(3))
    scale = random.choice(["none", "row", "tensor"]) if compute in ("f8", "f8e5", "i8") else "none"
    layout, batch = random.choice(["nn", "nt", "tn", "tt"]), random.choice([1, 1, 5])
    return Problem(m, n, k, compute, layout, batch, scale=scale)


def thinned(domain: Domain, legal: Sequence[Config], random: Random) -> Domain:
    """Few values of each parameter, those of a legal configuration among them, so that every
    combination can be tried."""
    centre = random.choice(legal).values if legal else {}
    varied = random.sample([*domain], min(len(domain), 6))
    left: Domain = {}
    for name, allowed in domain.items():
        kept = {centre.get(name, random.choice(allowed))}
        if name in varied:
            kept |= {*random.sample(allowed, min(len(allowed), 2))}
        left[name] = tuple(value for value in allowed if value in kept)
    return left


@pytest.fixture
def _forgetful() -> Iterator[None]:
    """Forgets rules that are bound to thinned domains."""
    yield
    rules_of.cache_clear()


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.parametrize("seed", range(16))
def test_all_answers_agree_on_every_combination(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration is enumerated if and only if nothing rejects it; changes that are offered are
    legal, and no legal change of one parameter is left out."""
    random = Random(seed)
    problem, device = drawn(random), find(DEVICES[seed % len(DEVICES)])
    for family in registry.tuned(problem):
        whole = space.feasible(problem, device, family).configs
        domain = thinned(registry.find(family).domain(problem, device), whole, random)
        with monkeypatch.context() as patch:
            patch.setattr(Family, "domain", lambda *_, domain=domain: domain)
            rules_of.cache_clear()
            check_every_combination(family, problem, device, random)


def check_every_combination(family: str, problem: Problem, device: Device, random: Random) -> None:
    rules = rules_of(family, problem, device)
    kind, names = registry.find(family), [*rules.domain]
    bound = bound_rules(kind, rules.rules, problem, device)
    by_level = sorted(bound, key=lambda row: max(map(names.index, row[0].needs), default=0))
    every = [dict(zip(names, row, strict=True)) for row in product(*rules.domain.values())]
    configs = [Config.of(family, values) for values in every]
    faults = [first_broken(values, by_level) for values in every]
    legal = [config for config, fault in zip(configs, faults, strict=True) if fault is None]

    enumerated = space.feasible(problem, device, family)
    assert [*enumerated.configs] == legal
    assert enumerated.rejected == Counter(fault.reason for fault in faults if fault)
    for reason in enumerated.rejected:
        details = {fault.detail for fault in faults if fault and fault.reason == reason}
        assert any(enumerated.examples[reason].endswith(detail) for detail in details)
    rejections = [rules.rejection(config) for config in configs]
    assert rejections == [first_broken(values, bound) for values in every]
    assert [rejection is None for rejection in rejections] == [fault is None for fault in faults]

    for config in random.sample(legal, min(3, len(legal))):
        offered = {*variants([config], problem, device)}
        near = {other for other in legal if len({*other.params} - {*config.params}) == 1}
        assert near <= offered <= {*legal}
    adapt = Adaptation(problem, device)
    for config in random.sample(configs, min(40, len(configs))):
        assert adapt.repaired(config) in (None, *legal)
        if config in legal:
            assert adapt(config) == config
