"""A search tries the configurations of a quick race first, and compiles them while candidates are
listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest
from support.fake_runner import ORIGIN, FakeRunner, program

from autotune.compiler import Program
from autotune.device import find
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.lookup.promising import RACED, promising
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.runners.base import Measurement, Runner
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.loop import Options, tune
from autotune.tuning.tunable import Candidates

H100, PROBLEM = find("h100"), Problem.parse("300x200x100:bf16")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def raced(store: Store) -> tuple[Config, ...]:
    """The configurations of a quick race."""
    return promising(PROBLEM, H100, Records(store))


def runner() -> FakeRunner:
    return FakeRunner(lambda _: Measurement(5.0, relative_error=1e-9), device=H100)


def compiled(template: Template, arch: str) -> Program:
    return program(template, arch)


def test_a_family_has_its_own(store: Store, raced: tuple[Config, ...]) -> None:
    assert len(raced) == RACED
    assert GemmTunable(PROBLEM).promising(H100, store, "hot") == raced
    own = GemmTunable(PROBLEM, "mma").promising(H100, store, "hot")
    assert own == tuple(config for config in raced if config.family == "mma")


def test_an_order_of_summation_has_none(store: Store) -> None:
    assert GemmTunable(PROBLEM, order="any").promising(H100, store, "hot") == ()


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_guided_search_tries_them_first(
    sampler: str, store: Store, raced: tuple[Config, ...]
) -> None:
    devices, options = runner(), Options(trials=RACED, sampler=sampler, jobs=1)  # type: ignore[arg-type]
    tune(GemmTunable(PROBLEM), devices, store, options, compile=compiled, origin=ORIGIN)
    assert {*devices.measured} == {*raced}


def test_they_compile_while_candidates_are_listed(store: Store) -> None:
    begun = Event()

    def noted(template: Template, arch: str) -> Program:
        begun.set()
        return program(template, arch)

    @dataclass(frozen=True)
    class Waiting(GemmTunable):
        listed: list[bool] = field(default_factory=list)

        def candidates(
            self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
        ) -> Candidates:
            self.listed.append(begun.wait(10))
            return super().candidates(runner, unsafe, survey=survey)

    tunable = Waiting(PROBLEM)
    tune(tunable, runner(), store, Options(trials=2), compile=noted, origin=ORIGIN)
    assert tunable.listed == [True]


def test_quarantined_ones_are_left_out(store: Store, raced: tuple[Config, ...]) -> None:
    store.quarantine(H100, f"{raced[0]}@{ORIGIN.source}", "it hung")
    devices = runner()
    options = Options(trials=RACED, jobs=1)
    tune(GemmTunable(PROBLEM), devices, store, options, compile=compiled, origin=ORIGIN)
    assert raced[0] not in devices.measured
    assert {*raced[1:]} < {*devices.measured}
