"""Searches whose vendor baseline is known late, and refuses most of what was measured before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Barrier

import pytest
from support.fake_runner import ORIGIN, FakeRunner, LateRunner, by_width, compiled, tiled
from support.sample_records import SQUARE
from support.sample_study import store as store

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.measurement import Failure, Measurement
from autotune.records import Record, Store
from autotune.tuning import loop, pipeline
from autotune.tuning.loop import EXTRA, Search, tune
from autotune.tuning.pipeline import Compile
from autotune.tuning.trial_log import TrialLog
from autotune.tuning.tunable import GemmTunable

COARSE, FINE = 1e-4, 1e-6
TOGETHER = 6
SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not
Accurate = Callable[[Config], bool]


class FineRunner(LateRunner):
    """A runner whose vendor library is accurate, which shows late.

    Args:
        accurate: whether a configuration is as accurate as the library.
    """

    vendor_error = FINE

    def __init__(self, accurate: Accurate) -> None:
        def outcome(config: Config) -> Measurement:
            error = FINE if accurate(config) else COARSE
            time_us = by_width(config).time_us if config.family == "tiled" else 100.0
            return Measurement(time_us, 0.5, 20, relative_error=error)

        super().__init__(outcome)


def go(
    runner: FakeRunner,
    store: Store,
    options: Search,
    family: str = "tiled",
    compile: Compile = compiled,
) -> Record:
    tunable = GemmTunable(SQUARE, family)
    return tune(tunable, runner, store, options, compile=compile, origin=ORIGIN)


def wide(config: Config) -> bool:
    return config.integer("tile_width") > 30


@pytest.mark.parametrize("sampler", ["gp", "tpe", "random", "exhaustive"])
def test_search_goes_on_until_a_trial_is_accurate(sampler: str, store: Store) -> None:
    runner = FineRunner(wide)
    options = Search(trials=6, sampler=sampler)  # type: ignore[arg-type]
    record = go(runner, store, options)
    assert all(wide(entry.config) for entry in record.entries)
    assert 6 <= record.provenance.trials == len(runner.measured) <= SPACE


def test_accurate_trials_extend_no_search(store: Store) -> None:
    runner = FineRunner(lambda config: config.integer("tile_width") != 23)
    record = go(runner, store, Search(trials=12, sampler="random"))
    assert (record.provenance.trials, len(runner.measured)) == (12, 12)


def test_slow_accurate_trials_lead_after_a_late_baseline(store: Store) -> None:
    # The fastest configurations are inaccurate.
    runner = FineRunner(lambda config: config.integer("tile_width") > 28)
    record = go(runner, store, Search(sampler="random"))
    assert record.best.config == tiled(29, specialized=0)
    assert record.provenance.trials == SPACE


def test_search_ends_after_a_number_of_refused_trials(store: Store) -> None:
    runner = FineRunner(lambda _: False)
    with pytest.raises(AutotuneError) as ended:
        go(runner, store, Search(trials=12, sampler="random"), family="simt")
    count = 12 + EXTRA
    assert len(runner.measured) == count
    message = str(ended.value)
    assert f"accuracy {count}; such as simt:" in message
    assert "relative error 0.0001 is 100.0 times the vendor library's 1e-06" in message
    assert message.endswith("is allowed; allow more trials or time")


def ends_after_twelve(runner: FakeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a second pass with each measurement, and a budget of 12.5 s end after twelve."""
    for module in (loop, pipeline):
        monkeypatch.setattr(module, "monotonic", lambda: float(len(runner.measured)))


def test_budget_limits_the_extension(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FineRunner(lambda _: False)
    ends_after_twelve(runner, monkeypatch)
    with pytest.raises(AutotuneError, match="allow more trials or time"):
        go(runner, store, Search(trials=12, seconds=12.5, sampler="random"), family="simt")
    assert len(runner.measured) == 12


def test_proposals_that_time_cuts_off_take_no_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = TrialLog.claim

    def granted(log: TrialLog, config: Config, limit: int | None = None) -> bool:
        assert claim(log, config, limit)
        return True

    together, calls = Barrier(TOGETHER), count()

    def compiled_together(template: Template, arch: str) -> Program | CompileFailure:
        if next(calls) < TOGETHER:
            together.wait()  # so that the others are under way when the first is measured
        return compiled(template, arch)

    monkeypatch.setattr(TrialLog, "claim", granted)
    runner = FineRunner(lambda _: False)
    ends_after_twelve(runner, monkeypatch)
    options = Search(trials=12, seconds=12.5, sampler="random", jobs=TOGETHER)
    with pytest.raises(AutotuneError, match="allow more trials or time"):
        go(runner, store, options, family="simt", compile=compiled_together)
    assert len(runner.measured) == 12


def test_error_names_the_most_accurate_trial(store: Store) -> None:
    def error(config: Config) -> float:
        return COARSE / config.integer("tile_width")

    runner = FineRunner(lambda _: False)
    runner._outcome = lambda config: replace(by_width(config), relative_error=error(config))
    with pytest.raises(AutotuneError, match=r"the most accurate, tiled:tile_width=32,.*: relative"):
        go(runner, store, Search(sampler="random"))


def test_next_trials_follow_if_no_leader_passes_the_rematch(store: Store) -> None:
    def near(config: Config) -> bool:
        return config.integer("tile_width") < 30

    def again(config: Config) -> Measurement | Failure:
        return Failure("accuracy", "on other operands") if near(config) else by_width(config)

    runner = FakeRunner(again=again)
    record = go(runner, store, Search(sampler="random"))
    assert record.best.config == tiled(30, specialized=0)
    assert not any(near(entry.config) for entry in record.entries)
