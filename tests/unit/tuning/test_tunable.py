"""Candidates of a GEMM: their order, the families of a name, rejections."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_runner import FakeRunner, tiled
from support.sample_records import record

from autotune.device import find
from autotune.errors import AutotuneError, ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.measure.runner import Runner
from autotune.measure.without_gpu import PredictedRunner
from autotune.model import cost
from autotune.problem import Problem
from autotune.records import Entry, Record, Store
from autotune.tuning.tunable import NEIGHBOURS, Candidates, GemmTunable, nearest

H100 = find("h100")


PROBLEM = Problem(37, 53, 20)


RESOURCES = Resources(threads=256, registers=32, shared=2048)


def candidates(
    runner: Runner,
    family: str,
    barred: Collection[Config] = (),
    ranked: int | None = None,
) -> Candidates:
    return GemmTunable(PROBLEM, family).candidates(runner, barred, ranked=ranked)


def candidate_configs(
    ranked: int | None = None,
    barred: Collection[Config] = (),
    *,
    family: str = "simt",
) -> tuple[Config, ...]:
    return tuple(candidates(PredictedRunner(PROBLEM, H100), family, barred, ranked).configs)


@pytest.fixture
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `auto` stand for two families."""
    monkeypatch.setattr(registry, "searched", lambda: ("simt", "tiled"))


def test_best_predicted_comes_first() -> None:
    configs = candidate_configs()
    times = [cost.predict(config, PROBLEM, H100) for config in configs[:50]]
    assert times == sorted(times)


def guessed(folder: Path, *known: Record, objective: Objective = HOT) -> list[Config]:
    """The first guesses where the cost model has none."""
    store = Store(folder)
    for row in known:
        store.save(row)
    nothing = Candidates((), (), {})
    return [*GemmTunable(PROBLEM, "tiled").guesses(nothing, H100, store, objective)]


def test_neighbours_winners_of_the_objective_are_guessed(tmp_path: Path) -> None:
    hot, cold = (
        Entry(tiled(width), Measurement(hot_us, cold_us=cold_us), RESOURCES, 1.0, "threads")
        for width, hot_us, cold_us in ((16, 5.0, 9.0), (32, 6.0, 8.0))
    )
    near = record(hot, cold, problem=replace(PROBLEM, m=74), device=H100)
    assert guessed(tmp_path, near) == [tiled(16)]
    assert guessed(tmp_path, near, objective=COLD) == [tiled(32)]


def test_winner_of_another_layout_is_guessed_for_the_same_sizes(tmp_path: Path) -> None:
    def recorded(width: int, **changes: Any) -> Record:
        made = Entry(tiled(width), Measurement(5.0), RESOURCES, 1.0, "threads")
        return record(made, problem=replace(PROBLEM, **changes), device=H100)

    turned, far = recorded(16, layout="nt"), recorded(8, layout="nt", m=74)
    own, other = recorded(24, n=106), recorded(32, compute="bf16")
    assert guessed(tmp_path, turned, far, own, other) == [tiled(16), tiled(24)]


def test_only_the_nearest_problems_are_neighbours() -> None:
    other = replace(PROBLEM, compute="bf16")
    rising = [replace(PROBLEM, m=PROBLEM.m + step) for step in range(1, NEIGHBOURS + 3)]
    assert nearest(PROBLEM, [other, *reversed(rising)]) == rising[:NEIGHBOURS]


def test_sample_loses_no_configuration() -> None:
    assert sorted(candidate_configs(ranked=500)) == sorted(candidate_configs())


def test_sample_puts_its_best_first() -> None:
    best = cost.predict(candidate_configs()[0], PROBLEM, H100)
    sampled = candidate_configs(ranked=500)[0]
    assert cost.predict(sampled, PROBLEM, H100) == pytest.approx(best, rel=0.05)


@pytest.mark.usefixtures("two_families")
def test_auto_is_every_searched_family() -> None:
    both = candidate_configs() + candidate_configs(family="tiled")
    assert sorted(candidate_configs(family="auto")) == sorted(both)


@pytest.mark.usefixtures("two_families")
def test_auto_is_ranked_over_all_families() -> None:
    configs = candidate_configs(family="auto")
    times = [cost.predict(config, PROBLEM, H100) for config in configs]
    assert times == sorted(times)


@pytest.mark.usefixtures("two_families")
def test_rejections_of_all_families_are_counted() -> None:
    runner = PredictedRunner(PROBLEM, H100)
    auto = candidates(runner, "auto").rejected
    each = [candidates(runner, name).rejected for name in ("simt", "tiled")]
    assert sum(auto.values()) == sum(sum(counts.values()) for counts in each)


def test_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="magic"):
        candidate_configs(family="magic")


def test_quarantined_configurations_are_not_offered() -> None:
    first = candidate_configs()[0]
    assert first not in candidate_configs(barred=[first])


def test_recorded_parameters_of_another_version_are_rejected() -> None:
    current = Config.parse("tiled:tile_width=16,specialized=1")
    outdated = [
        Config.parse("tiled:tile_width=16"),
        Config.parse("tiled:tile_width=16,specialized=1,unrolled=1"),
    ]
    runner = FakeRunner(recorded=[*outdated, current])
    usable = candidates(runner, "tiled")
    assert (usable.configs, usable.rejected) == ((current,), {"parameters": 2})


def test_recording_of_outdated_parameters_alone_is_an_error() -> None:
    runner = FakeRunner(recorded=[Config.parse("simt:bm=64,bn=64")])
    with pytest.raises(AutotuneError, match="rejected: parameters 1"):
        candidates(runner, "auto")


def test_no_candidates_is_an_error_with_the_reasons() -> None:
    with pytest.raises(AutotuneError, match=r"quarantined [1-9]"):
        candidate_configs(barred=candidate_configs())
