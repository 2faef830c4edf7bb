"""The arguments of rules: what a rule reads follows from its annotations."""

from __future__ import annotations

from dataclasses import is_dataclass
from inspect import signature

import pytest

from autotune.families import family as families
from autotune.families import registry


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_every_view_is_read_from_its_annotation(name: str) -> None:
    family = registry.find(name)
    checks = [rule.check for rule in family.rules]
    for check in (*checks, family.summation, family.summation_order):
        named = families._annotations(check)
        for argument, parameter in signature(check, eval_str=True).parameters.items():
            if is_dataclass(parameter.annotation):
                assert named[argument] is parameter.annotation


def test_function_says_whether_it_reads_problem_and_device() -> None:
    wgmma = {rule.check.__name__: rule.check for rule in registry.find("wgmma").rules}
    assert families.context_of(wgmma["_architecture_fault"]) == {"device"}
    assert families.context_of(wgmma["_error_fault"]) == {"problem", "device"}
    assert not families.context_of(wgmma["_consumers_fault"])
