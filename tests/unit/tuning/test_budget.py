"""The time of a run: the part kept for the last round, and what that round has time for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fake_runner import compiled
from support.sample_user_kernels import LEGAL, KernelRunner, tunable

from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import Origin
from autotune.measure.runner import Candidate
from autotune.records import KernelRecord, Store
from autotune.tuning import loop, pipeline
from autotune.tuning.options import MOST_RESERVE, RESERVE, Budget, Search

CONFIGS = tuple(Config.of("k", {"act": act}) for act in range(10))


def budget(*seconds: float, limit: float = 10.0, punctual: bool = True) -> Budget:
    """A budget after trials that took these seconds."""
    spent = Budget(0.0, limit, punctual)
    for config, each in zip(CONFIGS, seconds, strict=False):
        spent.note(config, each)
    return spent


@pytest.mark.parametrize(
    ("seconds", "share"),
    [(0.001, RESERVE), (0.07, 0.084), (0.5, MOST_RESERVE), (2.0, 0.2)],
    ids=["brief trials", "longer ones", "more than is kept", "at least a trial"],
)
def test_last_round_gets_what_it_takes(seconds: float, share: float) -> None:
    spent = budget(seconds)
    spent.keep(CONFIGS[0])
    assert spent.search_end == pytest.approx(10.0 * (1 - share))


def test_last_round_of_others_keeps_its_share() -> None:
    spent = budget(2.0, punctual=False)
    spent.keep(CONFIGS[0])
    assert (spent.search_end, spent.affordable(CONFIGS, 10.0)) == (9.5, 10)


def test_run_without_limit_keeps_nothing() -> None:
    spent = budget(2.0, limit=math.inf)
    spent.keep(CONFIGS[0])
    assert (spent.search_end, spent.affordable(CONFIGS, 1e9)) == (math.inf, 10)


@pytest.mark.parametrize(("now", "count"), [(8.0, 10), (9.55, 3), (9.85, 0), (11.0, 0)])
def test_leaders_are_rematched_while_there_is_time(now: float, count: int) -> None:
    # The first is verified again afterwards, and an unknown one takes the mean.
    assert budget(0.1, 0.1).affordable(CONFIGS, now) == count


class Slow(KernelRunner):
    """A runner whose trials take a second of a fake clock, and whose last hangs."""

    def __init__(self, now: list[float], hanging: int = 0) -> None:
        super().__init__()
        self.now, self.hanging = now, hanging
        self.deadline = math.inf
        self.rematched: list[int] = []

    def until(self, deadline: float) -> None:
        self.deadline = deadline

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        outcome = super().measure(candidate, best, objective)
        if len(self.measured) == self.hanging:
            self.now[0] = self.deadline
            return Failure("timeout", "no answer")
        self.now[0] += 1.0
        return outcome

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        self.rematched.append(len(candidates))
        return super().rematch(candidates)


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float, hanging: int = 0
) -> tuple[Slow, KernelRecord, Store]:
    now = [0.0]
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    monkeypatch.setattr(pipeline, "monotonic", lambda: now[0])
    runner, store = Slow(now, hanging), Store(folder)
    search = Search(seconds=seconds, sampler="exhaustive")
    origin = Origin("13.0", "NVRTC 13.0", "sources")
    record = loop.tune(tunable(), runner, store, search, compile=compiled, origin=origin)
    return runner, record, store


def test_user_kernel_ends_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner, record, _ = run(monkeypatch, tmp_path, 6.5)
    # A seventh trial would end too late, and so would a last round.
    assert (len(runner.measured), runner.rematched, runner.now) == (6, [], [6.0])
    assert (len(record.entries), record.provenance.interrupted) == (6, False)


def test_user_kernel_with_time_left_gets_its_last_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, record, _ = run(monkeypatch, tmp_path, 60.0)
    assert (len(runner.measured), runner.rematched) == (LEGAL, [10])
    assert len(record.entries) == 10


def test_trial_that_the_end_stops_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, record, store = run(monkeypatch, tmp_path, 6.5, hanging=3)
    assert (len(record.entries), runner.now, runner.rematched) == (2, [6.5], [])
    assert not store.quarantined(runner.device)
    again, *_ = run(monkeypatch, tmp_path, 60.0)
    assert runner.measured[2] in again.measured
