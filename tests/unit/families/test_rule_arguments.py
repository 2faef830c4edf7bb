"""The arguments of rules: what a rule reads follows from its annotations."""

from __future__ import annotations

from dataclasses import is_dataclass
from inspect import signature

import pytest

from autotune.families import registry, rules
from autotune.families.rules import Rule


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_every_view_is_read_from_its_annotation(name: str) -> None:
    family = registry.find(name)
    checks = [rule.check for rule in family.rules]
    for check in (*checks, family.summation, family.summation_order):
        named = rules._annotations(check)
        for argument, parameter in signature(check, eval_str=True).parameters.items():
            if is_dataclass(parameter.annotation):
                assert named[argument] is parameter.annotation


def test_rule_says_whether_it_reads_the_device() -> None:
    wgmma = {rule.check.__name__: rule for rule in registry.find("wgmma").rules}
    reading: Rule = wgmma["_architecture_fault"]
    assert reading.reads_device
    assert not wgmma["_consumers_fault"].reads_device
