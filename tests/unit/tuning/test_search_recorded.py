"""The default search on recordings of an H100."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import replay
from support.fake_runner import ORIGIN, uncompiled

from autotune.measure import recording
from autotune.measure.recording import Recording
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Trial
from autotune.tuning.tunable import GemmTunable

SQUARE = Problem(4096, 4096, 4096)


PATH = recording.path_of("h100", SQUARE)


pytestmark = [
    pytest.mark.skipif(not PATH.is_file(), reason="no recording of an H100 is there"),
]


@cache
def recorded() -> Recording:
    return Recording.load(PATH)


@cache
def space() -> replay.Space:
    """The recorded space with the guesses and the features that tuning uses."""
    return replay.load(PATH, blind=False)


def reached(seed: int, evaluations: int) -> float:
    """The share of the optimal speed that a search reaches."""
    recorded_space = space()
    search = Proposer(
        recorded_space.configs,
        seed=seed,
        guesses=recorded_space.guesses,
        describe=recorded_space.describe,
    )
    best = 0.0
    for _ in range(evaluations):
        config = search.ask()
        assert config is not None
        search.tell(
            Trial(config, recorded_space.outcomes[config], recorded_space.resources[config])
        )
        best = max(best, recorded_space.share(config))
    return best


def tuned(seed: int, root: Path) -> Record:
    runner = ReplayRunner(recorded(), seed)
    options = Search(seed=seed)
    return tune(
        GemmTunable(SQUARE), runner, Store(root), options, compile=uncompiled, origin=ORIGIN
    )


@pytest.mark.parametrize("seed", range(4))
def test_40_trials_reach_95_percent_of_the_best(seed: int) -> None:
    assert reached(seed, 40) >= 0.95


@pytest.mark.parametrize("seed", range(2))
def test_tuning_stops_by_itself_near_the_best(seed: int, tmp_path: Path) -> None:
    record = tuned(seed, tmp_path)
    assert record.provenance.trials < len(space().configs) / 4
    # All leaders are checked: one recorded time of 2,810 us has a spread of 27 %, so a replay may
    # take it for the best.
    assert max(space().share(entry.config) for entry in record.entries) > 0.97
