"""Variants of configurations: one parameter differs, and the stages where they have to."""

from __future__ import annotations

import pytest

from autotune.candidates import cost, space
from autotune.candidates.survey import survey
from autotune.candidates.variants import variants
from autotune.device import find
from autotune.families.config import Config
from autotune.problem import Problem

H200 = find("h200")
PROBLEM = Problem(300, 520, 1000, "bf16", "nt")


def changes(before: Config, after: Config) -> set[str]:
    pairs = zip(before.params, after.params, strict=True)
    return {name for (name, value), (_, changed) in pairs if value != changed}


@pytest.fixture(scope="module", params=["mma", "wgmma"])
def config(request: pytest.FixtureRequest) -> Config:
    return cost.rank(survey(PROBLEM, H200, request.param), PROBLEM, H200)[0][1]


def test_variants_are_legal_and_differ_in_one_parameter(config: Config) -> None:
    judge = space.Judge(config.family, PROBLEM, H200)
    found = variants([config], PROBLEM, H200)
    assert len(found) == len({*found}) > 5
    for variant in found:
        assert judge.rejection(variant) is None
        assert len(changes(config, variant) - {"stages"}) <= 1


def test_stages_follow_a_larger_tile() -> None:
    found = [
        changes(config, variant)
        for config in survey(PROBLEM, H200, "wgmma")[::200]
        for variant in variants([config], PROBLEM, H200)
    ]
    assert {"bn", "stages"} in found
