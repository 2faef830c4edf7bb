"""A search begins with a race, whose first round compiles while candidates are listed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Event

import pytest
from support.fake_runner import ORIGIN, FakeRunner, program

from autotune.cuda.program import Program
from autotune.device import Device, find
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.lookup.promising import FOLLOWING, RACED, Contenders, contenders
from autotune.measure.measurement import Measurement
from autotune.measure.objective import HOT, Objective
from autotune.measure.runner import Runner
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.options import Sampler
from autotune.tuning.tunable import Candidates, GemmTunable

H100, H200 = find("h100"), find("h200")


PROBLEM = Problem.parse("300x200x100:bf16")


@pytest.fixture
def raced(store: Store) -> tuple[Config, ...]:
    """The configurations of a quick race."""
    return contenders(PROBLEM, H100, Records(store)).first


def runner(device: Device = H100) -> FakeRunner:
    return FakeRunner(lambda _: Measurement(5.0, relative_error=1e-9), device=device)


def compiled(template: Template, arch: str) -> Program:
    return program(template, arch)


def test_a_family_has_its_own(store: Store, raced: tuple[Config, ...]) -> None:
    assert len(raced) == RACED
    every, own = (
        GemmTunable(PROBLEM, family).contenders(H100, store, HOT) for family in ("auto", "mma")
    )
    assert every
    assert own
    assert every.first == raced
    assert own.first == tuple(config for config in raced if config.family == "mma")


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_guided_search_begins_with_a_race(
    sampler: Sampler, store: Store, raced: tuple[Config, ...]
) -> None:
    devices, options = runner(), Search(trials=RACED + FOLLOWING + 2, sampler=sampler, jobs=1)
    tunable = GemmTunable(PROBLEM)
    tune(tunable, devices, store, options, compile=compiled, origin=ORIGIN)
    everything = contenders(PROBLEM, H100, Records(store)).configs
    assert {*devices.measured[:RACED]} == {*raced}
    assert {*devices.measured[RACED : RACED + FOLLOWING]} < {*everything} - {*raced}
    assert len({*devices.measured}) == options.trials


def test_a_race_keeps_to_the_limit_on_trials(store: Store, raced: tuple[Config, ...]) -> None:
    devices = runner()
    tune(
        *(GemmTunable(PROBLEM), devices, store, Search(trials=5, jobs=1)),
        compile=compiled,
        origin=ORIGIN,
    )
    assert len(devices.measured) == 5
    assert {*devices.measured} < {*raced}


def test_a_later_search_goes_on_without_a_race(store: Store) -> None:
    def search(trials: int) -> list[Config]:
        devices, options = runner(), Search(trials=trials, jobs=1)
        tune(GemmTunable(PROBLEM), devices, store, options, compile=compiled, origin=ORIGIN)
        return devices.measured

    first, second = search(20), search(26)
    assert (len(first), len(second)) == (20, 6)
    assert not {*first} & {*second}


def test_what_is_raced_beside_the_candidates_joins_them(store: Store) -> None:
    """Rules that are about speed alone leave out what measurements may show to be fast."""
    problem = Problem.parse("29x13735x1341:f8:scale=row")
    listed = {*GemmTunable(problem).candidates(runner(H200), (), ranked=None).configs}
    considered = contenders(problem, H200, Records(store)).configs
    beside = tuple(config for config in considered if config not in listed)[:4]

    @dataclass(frozen=True)
    class Racing(GemmTunable):
        def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders:
            del store, objective
            return Contenders.between(self.problem, device, beside)

    def search(trials: int) -> list[Config]:
        devices, options = runner(H200), Search(trials=trials, jobs=1)
        tune(Racing(problem), devices, store, options, compile=compiled, origin=ORIGIN)
        return devices.measured

    first, second = search(8), search(14)
    assert {*first[:4]} == {*beside}
    assert (len(first), len(second), {*first} & {*second}) == (8, 6, set())


def test_they_compile_while_candidates_are_listed(store: Store) -> None:
    begun = Event()

    def noted(template: Template, arch: str) -> Program:
        begun.set()
        return program(template, arch)

    @dataclass(frozen=True)
    class Waiting(GemmTunable):
        listed: list[bool] = field(default_factory=list)

        def candidates(
            self, runner: Runner, barred: Collection[Config], *, ranked: int | None
        ) -> Candidates:
            self.listed.append(begun.wait(10))
            return super().candidates(runner, barred, ranked=ranked)

    tunable = Waiting(PROBLEM)
    tune(tunable, runner(), store, Search(trials=2), compile=noted, origin=ORIGIN)
    assert tunable.listed == [True]


def test_quarantined_ones_are_left_out(store: Store, raced: tuple[Config, ...]) -> None:
    store.quarantine(H100, f"{raced[0]}@{ORIGIN.source}", "it hung")
    devices = runner()
    options = Search(trials=RACED, jobs=1)
    tune(GemmTunable(PROBLEM), devices, store, options, compile=compiled, origin=ORIGIN)
    assert raced[0] not in devices.measured
    assert {*raced[1:]} < {*devices.measured}
