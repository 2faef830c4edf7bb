"""The configurations that a race tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.device import find
from autotune.families import registry
from autotune.families.summation import possible_limit, promised_limit
from autotune.lookup import nearest
from autotune.lookup.promising import RACED, contenders
from autotune.model.legality import Legality
from autotune.model.space import ALIKE, AccuracyFilter
from autotune.problem import Problem
from autotune.records import Records, Store

H200 = find("h200")

PROBLEM = Problem(300, 521, 1000, "bf16", "nt")


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    def decoded(*_: object) -> None:
        raise AssertionError("a race reads digests")

    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Records, "records", decoded)
    return Records(Store(tmp_path))


@pytest.mark.parametrize("name", ["h200", "a100-80"])
def test_configurations_of_a_race_are_legal_and_diverse(name: str, records: Records) -> None:
    device = find(name)
    raced = contenders(PROBLEM, device, records).first
    assert len({*raced}) == RACED
    assert all(map(Legality(PROBLEM, device), raced))
    works = [
        (config.family, registry.find(config.family).work(config, PROBLEM)) for config in raced
    ]
    kinds = [(family, work.tile, work.iterations) for family, work in works]
    assert max(map(kinds.count, kinds)) <= ALIKE


def test_race_tries_more_than_is_listed(records: Records) -> None:
    raced = contenders(PROBLEM, H200, records).first
    assert not {*raced} <= {*nearest.portfolio(PROBLEM, H200)}


def test_race_may_be_restricted_to_configurations(records: Records) -> None:
    listed = nearest.portfolio(PROBLEM, H200)[:5]
    assert {*contenders(PROBLEM, H200, records, configs=listed).first} <= {*listed}


def test_half_of_a_race_keeps_the_bound_beside_any_vendor(records: Records) -> None:
    problem = Problem(2176, 64, 4608, "tf32x3", "tn")
    raced = contenders(problem, H200, records).first
    possible, promised = (
        AccuracyFilter(problem, limit(problem, H200)) for limit in (possible_limit, promised_limit)
    )
    assert possible.passing(raced) == [*raced]
    assert RACED // 2 <= len(promised.passing(raced)) < RACED
