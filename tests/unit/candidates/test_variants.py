"""Variants of configurations: one parameter differs, and the stages where they have to."""

from __future__ import annotations

import pytest

from autotune.candidates import space
from autotune.candidates.recorded import Legality
from autotune.candidates.variants import variants
from autotune.device import find
from autotune.families.config import Config
from autotune.lookup import portfolio
from autotune.problem import Problem

H200 = find("h200")
PROBLEM = Problem(300, 520, 1000, "bf16", "nt")


def changes(before: Config, after: Config) -> set[str]:
    pairs = zip(before.params, after.params, strict=True)
    return {name for (name, value), (_, changed) in pairs if value != changed}


@pytest.fixture(scope="module", params=["mma", "wgmma"])
def config(request: pytest.FixtureRequest) -> Config:
    listed = portfolio.members_of(PROBLEM, H200)
    members = (config for config in listed if config.family == request.param)
    return next(filter(Legality(PROBLEM, H200, recorded=False), members))


def test_variants_are_legal_and_differ_in_one_parameter(config: Config) -> None:
    judge = space.Judge(config.family, PROBLEM, H200)
    found = variants([config], PROBLEM, H200)
    assert len(found) == len({*found}) > 5
    for variant in found:
        assert judge.rejection(variant) is None
        assert len(changes(config, variant) - {"stages"}) <= 1


def test_stages_follow_a_larger_tile() -> None:
    legal = filter(Legality(PROBLEM, H200, recorded=False), portfolio.members_of(PROBLEM, H200))
    found = [
        changes(config, variant)
        for config in legal
        if config.family == "wgmma"
        for variant in variants([config], PROBLEM, H200)
    ]
    assert {"bn", "stages"} in found
