"""Replayed searches: their spaces, the scores of runs, and Kernel Tuner for comparison."""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import replay
from replay import Run, Space
from support import sample_recording
from support.sample_recording import FASTEST, FASTEST_US
from typer import Typer
from typer.testing import CliRunner, Result

from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.tuning.trials import Trial

TABLE = """bm,order,time_ms,compile_ms,failure
16,rows,0.4,1.5,
32,rows,0.2,1.5,
32,snake,,0.5,too much shared memory
64,snake,0.1,1.5,
"""


def table(path: Path, text: str = TABLE) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "square.json.gz"
    sample_recording.recorded().save(path)
    return path


def space_of(times: Mapping[int, float], spread_us: float = 0.0) -> Space:
    """A space of numbered configurations with these times."""
    outcomes = {config(number): Measurement(time, spread_us, 20) for number, time in times.items()}
    return Space(outcomes, {})


def config(number: int) -> Config:
    return Config.of("table", {"number": number})


@pytest.mark.parametrize("name", ["space.csv", "space.csv.gz"])
def test_table_rows_become_configurations(tmp_path: Path, name: str) -> None:
    space = replay.load(table(tmp_path / name), True)
    assert space.outcomes == {
        Config.of("table", {"bm": 16, "order": "rows"}): Measurement(400.0),
        Config.of("table", {"bm": 32, "order": "rows"}): Measurement(200.0),
        Config.of("table", {"bm": 32, "order": "snake"}): Failure(
            "launch", "too much shared memory"
        ),
        Config.of("table", {"bm": 64, "order": "snake"}): Measurement(100.0),
    }


@pytest.mark.parametrize(
    "text", ["", "bm,time_ms\n1,\n", "bm,time_ms\n1,2\n1,3\n", "bm,time_ms\n1,fast\n", "bm\n1\n"]
)
def test_table_without_times_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AutotuneError, match=r"space\.csv"):
        replay.load(table(tmp_path / "space.csv", text), True)


def test_blind_space_is_complete_and_has_no_guesses(recording: Path) -> None:
    space = replay.load(recording, True)
    assert set(space.configs) == {row.config for row in sample_recording.recorded().rows}
    assert not space.guesses


def test_space_has_the_guesses_of_tuning(recording: Path) -> None:
    space = replay.load(recording, False)
    assert {config.family for config in space.configs} == {"simt"}
    assert space.guesses


def test_share_is_relative_to_the_shortest_time() -> None:
    space = space_of({1: 10.0, 2: 8.0})
    assert [space.share(config) for config in space.configs] == [0.8, 1.0]


def test_noise_depends_on_the_seed_alone() -> None:
    space = space_of({1: 10.0, 2: 8.0}, spread_us=0.1)
    first, repeated, third = (space.drawn(Random(seed)) for seed in (1, 1, 2))
    assert first == repeated != third


def run_of(*tried: float) -> Run:
    chosen = [max(tried[: place + 1]) for place in range(len(tried))]
    return Run("any", tried, tuple(chosen), 1.0)


def test_ended_search_keeps_its_choice() -> None:
    assert [run_of(0.5, 0.9).after(count) for count in (1, 2, 50)] == [0.5, 0.9, 0.9]


def test_until_counts_evaluations_to_reach_a_share() -> None:
    assert [run_of(0.5, 0.96, 0.0).until(share) for share in (0.95, 0.98)] == [2, math.inf]


def test_row_has_means_and_counts() -> None:
    runs = [run_of(*[0.5] * 19, 0.96), run_of(*[0.5] * 20), run_of(0.99)]
    row = replay.row("any", runs)
    assert row["after"] == {"20": pytest.approx((0.96 + 0.5 + 0.99) / 3)}
    assert row["until"]["95%"] == {"median": 20, "p90": None, "runs": 2}
    assert row["until"]["98%"] == {"median": None, "p90": None, "runs": 1}


def test_choice_is_right_unless_a_trial_is_much_better() -> None:
    runs = [Run("any", (0.9, 1.0), (0.9, last), 1.0) for last in (0.9, 0.996, 1.0)]
    assert [run.right for run in runs] == [False, True, True]


def test_fastest_measured_is_chosen() -> None:
    space = space_of({1: 10.0, 2: 8.0, 3: 16.0})
    times = {3: 20.0, 1: 9.0, 2: 9.5}  # noise makes configuration 1 look faster than 2
    trials = [Trial(config(number), Measurement(time)) for number, time in times.items()]
    assert [*replay.choices(space, trials, None)] == [0.5, 0.8, 0.8]


def test_rematch_decides_by_new_times() -> None:
    space = space_of({1: 10.0, 2: 8.0})
    trials = [Trial(config(1), Measurement(7.0)), Trial(config(2), Measurement(8.0))]
    assert [*replay.choices(space, trials, Random(0))] == [0.8, 1.0]


def test_tied_leaders_are_decided_by_resources() -> None:
    space = space_of({1: 10.0, 2: 10.04}, spread_us=0.5)
    resources = {config(1): Resources(256, 128, 0), config(2): Resources(256, 64, 0)}
    space = replace(space, resources=resources)
    trials = [Trial(config, Measurement(10.0)) for config in space.configs]

    class Silent(Random):
        def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:  # noqa: ARG002
            return mu

    assert [*replay.choices(space, trials, Silent(0))][-1] == 10.0 / 10.04


def test_choice_needs_a_measured_time() -> None:
    space = space_of({1: 10.0, 2: 8.0})
    trials = [Trial(config(1), Failure("launch", "-")), Trial(config(2), Measurement(8.0))]
    assert [*replay.choices(space, trials, None)] == [0.0, 1.0]


def task(path: Path, method: str = "random", window: int = 1, seed: int = 0) -> replay.Task:
    return replay.Task(path, True, method, seed, 200, window, False)


@pytest.mark.parametrize("window", [1, 8])
def test_run_tries_each_configuration_once(recording: Path, window: int) -> None:
    space = replay.load(recording, True)
    result = replay.run(task(recording, window=window))
    assert sorted(result.tried) == sorted(map(space.share, space.configs))
    assert result.chosen[-1] == pytest.approx(1.0)


def test_equal_seeds_give_equal_runs(recording: Path) -> None:
    first, repeated, third = (
        replay.run(task(recording, "tpe", seed=seed)).tried for seed in (1, 1, 2)
    )
    assert first == repeated != third


def run(*words: object) -> Result:
    app = Typer()
    app.command()(replay.main)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_prints_rows_and_writes_provenance(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.json"
    result = run(
        *(recording, "--sampler", "tpe", "--sampler", "random", "--seeds", 3, "--jobs", 1),
        *("--evaluations", 20, "--json", out, "--commit", "5eed"),
    )
    assert result.exit_code == 0, result.output
    content = json.loads(out.read_text())
    assert [row["method"] for row in content["rows"]] == ["tpe", "random"]
    assert {row["runs"] for row in content["rows"]} == {3}
    assert content["optimum_us"] == FASTEST_US
    fields = ("problem", "device", "driver", "toolkit", "commit", "evaluations")
    assert [content[name] for name in fields] == [
        *("256x256x256:f32:nn", "NVIDIA H100 80GB HBM3", "13.0", "NVRTC 13.5", "5eed", 20)
    ]


def test_runs_in_processes_equal_runs_in_sequence(recording: Path) -> None:
    tasks = [task(recording, seed=seed) for seed in range(2)]
    assert [run.tried for run in replay.done(tasks, 2)] == [replay.run(run).tried for run in tasks]


@pytest.mark.parametrize("words", [("--sampler", "magic"), ("--kernel-tuner", "magic")])
def test_unknown_method_is_a_usage_error(recording: Path, words: tuple[str, ...]) -> None:
    result = run(recording, *words)
    assert result.exit_code == 2


def test_invalid_file_is_a_usage_error(tmp_path: Path) -> None:
    assert run(table(tmp_path / "space.csv", "")).exit_code == 2


def test_missing_kernel_tuner_names_the_install(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    monkeypatch.delitem(sys.modules, "kernel_tuner_strategies", raising=False)
    result = run(recording, "--kernel-tuner", "random_sample")
    assert result.exit_code == 2
    assert "pip install --group compare" in " ".join(result.output.split())


@pytest.fixture
def theirs() -> Any:
    pytest.importorskip("kernel_tuner")

    import kernel_tuner_strategies

    return kernel_tuner_strategies


def test_grid_has_varying_parameters_and_gaps(theirs: Any) -> None:
    configs = [
        Config.of("simt", {"bm": 64, "bn": 32, "order": "rows"}),
        Config.of("gemv", {"bn": 32, "depth": 4}),
    ]
    grid = theirs.grid_of(configs)
    assert grid.values == {
        "family": ["gemv", "simt"],
        "bm": [-1, 64],
        "order": ["absent", "rows"],
        "depth": [-1, 4],
    }
    assert [*grid.points.values()] == [("simt", 64, "rows", -1), ("gemv", -1, "absent", 4)]


def test_single_configuration_makes_a_grid(theirs: Any) -> None:
    assert len(theirs.grid_of([FASTEST]).values) == 1


def test_cache_has_milliseconds_and_marks_failures(theirs: Any, tmp_path: Path) -> None:
    space = replay.load(table(tmp_path / "space.csv"), True)
    cache = theirs.cache_of(theirs.grid_of(space.configs), space.outcomes)["cache"]
    assert cache["16,rows"] == {"bm": 16, "order": "rows", "time": 0.4}
    assert cache["32,snake"]["__error__"] == "RuntimeFailedConfig"
    assert "time" not in cache["32,snake"]


@pytest.mark.parametrize("strategy", ["random_sample", "adaptive_tabu_greywolf"])
def test_strategy_tries_each_configuration_at_most_once(
    theirs: Any, recording: Path, strategy: str
) -> None:
    space = replay.load(recording, True)
    tried = theirs.search(space, strategy, 0, 20, space.outcomes).configs
    assert len(tried) == len(set(tried)) == 20
    assert set(tried) <= set(space.configs)


def test_equal_seeds_give_equal_kernel_tuner_runs(theirs: Any, recording: Path) -> None:
    space = replay.load(recording, True)
    first, repeated, third = (
        theirs.search(space, "genetic_algorithm", seed, 15, space.outcomes).configs
        for seed in (1, 1, 2)
    )
    assert first == repeated != third


@pytest.mark.usefixtures("theirs")
def test_strategy_has_its_own_row(recording: Path) -> None:
    words = ("--kernel-tuner", "random_sample", "--seeds", 2, "--jobs", 1)
    result = run(recording, *words, "--evaluations", 10)
    assert result.exit_code == 0, result.output
    assert "kernel-tuner:random_sample" in result.output
