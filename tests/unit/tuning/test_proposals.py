"""Proposals under a limit that several processes share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sample_logs import CONFIGS, log, measured
from support.sample_study import cache as cache

from autotune.families.config import Config
from autotune.tuning.options import Search
from autotune.tuning.proposals import Proposals
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trial_log import TrialLog
from autotune.tuning.trials import Leaderboard, Observer

pytestmark = pytest.mark.usefixtures("cache")


def proposals(opened: TrialLog, *, trials: int) -> Proposals:
    search = Proposer(CONFIGS, sampler="exhaustive")
    options = Search(trials=trials)
    return Proposals(search, opened, Leaderboard(), Observer(), options, lambda: True)


def test_claims_of_another_process_count_until_it_ends(tmp_path: Path) -> None:
    own, other = log(tmp_path / "study.jsonl"), log(tmp_path / "study.jsonl")
    for config in CONFIGS[:3]:
        assert other.claim(config)
    limited = proposals(own, trials=5)
    own.flush()
    assert [*limited.asked()] == CONFIGS[3:5]
    assert not limited.reopened()
    other.close()
    own.flush()
    assert limited.reopened()
    assert len([*limited.asked()]) == 3
    assert not limited.reopened()


def test_trials_that_no_longer_hold_do_not_count(tmp_path: Path) -> None:
    earlier = log(tmp_path / "study.jsonl")
    for config in CONFIGS[:3]:
        earlier.finish(measured(config))
    earlier.close()
    limited = proposals(log(tmp_path / "study.jsonl"), trials=2)
    assert len([*limited.asked()]) == 2


def test_refused_configuration_is_not_proposed_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, refused = log(tmp_path / "study.jsonl"), list[Config]()

    def claim(config: Config, limit: int | None) -> bool:
        del limit
        refused.append(config)
        assert len(refused) <= len(CONFIGS)
        return False

    monkeypatch.setattr(opened, "claim", claim)
    search, options = Proposer(CONFIGS, sampler="random"), Search(trials=5)
    limited = Proposals(search, opened, Leaderboard(), Observer(), options, lambda: True)
    assert [*limited.asked()] == []
    assert sorted(refused) == sorted(CONFIGS)
