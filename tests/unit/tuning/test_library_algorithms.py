"""Algorithms of cuBLASLt in a search: tried first, verified and timed like any other, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import ORIGIN, FakeRunner, Outcome, by_width, compiled, tiled, uncompiled
from support.sample_records import SQUARE, entry, record

import autotune
from autotune.api.invariant import OrderedGemm
from autotune.errors import AutotuneError
from autotune.families import cublaslt, registry
from autotune.families.config import Config
from autotune.families.cublaslt import config_of
from autotune.families.plan import OWN, OWN_RESOURCES, Algorithm
from autotune.lookup.promising import Contenders
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.measure.targets import Target
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.options import Sampler
from autotune.tuning.retiming import retime
from autotune.tuning.trials import LEADERS, OF_LIBRARY
from autotune.tuning.tunable import RACED_LIBRARY, GemmTunable, QuickTunable

ALGORITHMS = tuple(config_of(Algorithm(66, 20, n, 0, 0, 0, 35, 0, 5), 0) for n in range(1, 17))
SOURCE = "cublaslt:13.0.0 naive:0abc tiled:5e1f"
HERE = Origin(ORIGIN.driver, ORIGIN.compiler, SOURCE)


class LibraryRunner(FakeRunner):
    """A runner whose device has cuBLASLt."""

    def algorithms(self) -> Sequence[Config]:
        return ALGORITHMS


def taking(microseconds: Callable[[int], float]) -> Outcome:
    """Times of the algorithms by their split of K, and of the tiled kernel by its width."""

    def outcome(config: Config) -> Measurement:
        if config.family == cublaslt.NAME:
            return Measurement(microseconds(config.integer("split_k")), 0.1, 20)
        return by_width(config)

    return outcome


@pytest.fixture(autouse=True)
def tiled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "searched", lambda: ("tiled",))


def tuned(
    runner: FakeRunner, store: Store, options: Search | None = None, origin: Origin = HERE
) -> Record:
    search = options or Search(sampler="random")
    return tune(GemmTunable(SQUARE), runner, store, search, compile=compiled, origin=origin)


def library(configs: Sequence[Config]) -> list[Config]:
    return [config for config in configs if config.family == cublaslt.NAME]


KERNELS = {tiled(width, specialized) for width in range(4, 33) for specialized in (0, 1)}


@pytest.mark.parametrize("sampler", ["random", "exhaustive"])
def test_algorithms_take_turns_with_kernels(store: Store, sampler: Sampler) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    found = tuned(runner, store, Search(sampler=sampler))
    assert {*runner.measured} == {*ALGORITHMS, *KERNELS}
    first = runner.measured[: 2 * len(ALGORITHMS)]
    assert library(first) == [*ALGORITHMS]
    assert len(library(first[:8])) in (4, 5)  # what is ready comes first
    assert found.best.config == ALGORITHMS[0]
    assert found.provenance.trials == len(runner.measured)


def test_model_learns_from_kernels_alone(store: Store) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    found = tuned(runner, store, Search(sampler="gp"))
    assert {*runner.measured} <= {*ALGORITHMS, *KERNELS}
    assert found.without_library is not None
    assert found.without_library.best.config == tiled(23, 0)


def test_record_keeps_the_librarys_version(store: Store) -> None:
    found = tuned(LibraryRunner(taking(lambda split: 50.0 + split)), store)
    assert found.provenance.source == "cublaslt:13.0.0 tiled:5e1f"
    assert found.library_version == "13.0.0"
    assert (found.best.resources, found.best.limiter, found.best.code) == (OWN_RESOURCES, OWN, "")


def test_best_algorithm_is_recorded_where_a_kernel_wins(store: Store) -> None:
    found = tuned(LibraryRunner(taking(lambda split: 1000.0 - split)), store)
    assert found.best.config == tiled(23, 0)
    assert found.library is not None
    assert found.library.config == ALGORITHMS[-1]
    assert "cuBLASLt 13.0.0: 984.00 us; the best kernel is 9.840 times as fast" in str(found)


def test_algorithms_leave_places_for_kernels(store: Store) -> None:
    found = tuned(LibraryRunner(taking(lambda split: 50.0 + split)), store)
    assert len(found.entries) == LEADERS
    assert len([entry for entry in found.entries if entry.library]) == OF_LIBRARY


def test_best_cold_algorithm_is_timed_again(store: Store) -> None:
    def outcome(config: Config) -> Measurement:
        split = config.values.get("split_k")
        cold_us = 500.0 if split is None else 90.0 - int(split)
        hot_us = 100.0 if split is None else 50.0 + int(split)
        return Measurement(hot_us, 0.1, 20, cold_us=cold_us)

    runner = LibraryRunner(outcome)
    found = tuned(runner, store)
    assert library(runner.rematched) == [*ALGORITHMS[:OF_LIBRARY], ALGORITHMS[-1]]
    assert found.best_by("cold").config == ALGORITHMS[-1]


def test_kernel_wins_a_tie(store: Store) -> None:
    found = tuned(LibraryRunner(taking(lambda _: 99.8)), store)
    assert found.best.config == tiled(23, 0)


def test_refused_algorithm_is_a_failed_trial(store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        if config == ALGORITHMS[0]:
            return Failure("verify", "cuBLAS 13.0.0 may leave out the end of K")
        return taking(lambda split: 50.0 + split)(config)

    runner = LibraryRunner(outcome)
    found = tuned(runner, store)
    assert found.best.config == ALGORITHMS[1]
    assert ALGORITHMS[0] not in runner.rematched


def test_few_trials_are_for_kernels_mostly(store: Store) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    tuned(runner, store, Search(sampler="random", trials=12))
    assert len(runner.measured) == 12
    assert library(runner.measured) == [*ALGORITHMS[:3]]


def test_next_run_tries_no_algorithm_again(store: Store) -> None:
    outcome = taking(lambda split: 50.0 + split)
    tuned(LibraryRunner(outcome), store, Search(sampler="random", trials=70))
    again = LibraryRunner(outcome)
    found = tuned(again, store, Search(sampler="random"))
    assert library(again.measured) == []
    assert found.best.config == ALGORITHMS[0]


def test_another_version_is_a_study_of_its_own(store: Store) -> None:
    outcome = taking(lambda split: 50.0 + split)
    tuned(LibraryRunner(outcome), store)
    newer = LibraryRunner(outcome)
    origin = replace(HERE, source=SOURCE.replace("13.0.0", "13.1.0"))
    found = tuned(newer, store, origin=origin)
    assert library(newer.measured) == [*ALGORITHMS]
    assert found.library_version == "13.1.0"


def test_runner_without_the_library_tries_kernels_alone(store: Store) -> None:
    found = tuned(FakeRunner(by_width), store)
    assert found.library is None
    assert "cuBLASLt" not in str(found)


def test_policy_without_the_vendor_leaves_them_out(store: Store) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    with autotune.policy(vendor=False):
        tuned(runner, store)
    assert library(runner.measured) == []


def test_order_of_summation_leaves_them_out() -> None:
    tunable = OrderedGemm(SQUARE, order="any")
    assert tunable.library(LibraryRunner()) == ()
    assert tunable.kinds == "tiled"


def test_family_is_selected_alone(store: Store) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    tunable = GemmTunable(SQUARE, cublaslt.NAME)
    found = tune(tunable, runner, store, Search(), compile=uncompiled, origin=HERE)
    assert runner.measured == [*ALGORITHMS]
    assert (found.option, found.best.config) == ("--family cublaslt", ALGORITHMS[0])  # type: ignore[attr-defined]


def test_family_alone_without_the_library_is_an_error(store: Store) -> None:
    tunable = GemmTunable(SQUARE, cublaslt.NAME)
    with pytest.raises(AutotuneError, match="no algorithm of cuBLASLt can run 4096x4096x4096"):
        tune(tunable, FakeRunner(), store, Search(), compile=uncompiled, origin=HERE)


def test_epilogue_that_cublaslt_lacks_has_no_algorithms() -> None:
    tunable = GemmTunable(replace(SQUARE, epilogue="silu"))
    assert tunable.library(LibraryRunner()) == ()
    assert "cublaslt" not in tunable.kinds


def test_replay_tries_the_recorded_algorithms() -> None:
    recorded = (tiled(16), *ALGORITHMS[:2], tiled(23))
    runner = FakeRunner(taking(lambda split: 50.0 + split), recorded=recorded, evidence="replayed")
    assert GemmTunable(SQUARE).library(runner) == ALGORITHMS[:2]
    assert [*GemmTunable(SQUARE).candidates(runner, (), ranked=None).configs] == [
        *sorted((tiled(16), tiled(23)), reverse=True)
    ]


def test_quick_race_tries_the_first_few(store: Store) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    raced = Contenders.between(SQUARE, runner.device, (tiled(16), tiled(23), tiled(24)))
    tunable, options = QuickTunable(SQUARE, raced=raced), Search().race()
    found = tune(tunable, runner, store, options, compile=compiled, origin=HERE)
    assert library(runner.measured) == [*ALGORITHMS[:RACED_LIBRARY]]
    assert {*runner.measured} - {*ALGORITHMS} == {tiled(16), tiled(23), tiled(24)}
    assert (found.best.config, found.quick) == (ALGORITHMS[0], True)


def test_algorithms_are_no_guesses_for_other_problems(tmp_path: Path) -> None:
    near = record(replace(entry(16, 1.0), config=ALGORITHMS[0], resources=OWN_RESOURCES))
    store = Store(tmp_path)
    store.save(near)
    tunable = GemmTunable(Problem(4096, 4096, 4000))
    runner = LibraryRunner()
    candidates = tunable.candidates(runner, (), ranked=None)
    guesses = tunable.guesses(candidates, runner.device, store, Search().objective)
    assert library(guesses) == []


def test_shared_storage_takes_them(store: Store, tmp_path: Path) -> None:
    runner = LibraryRunner(taking(lambda split: 50.0 + split))
    options = Search(sampler="random", trials=8, storage=f"sqlite:///{tmp_path}/studies.db")
    assert tuned(runner, store, options).best.config == ALGORITHMS[0]
    again = LibraryRunner(taking(lambda split: 50.0 + split))
    tuned(again, Store(tmp_path / "other"), options)
    assert again.measured == []


def test_recording_replays_them(store: Store, tmp_path: Path) -> None:
    outcome = taking(lambda split: 50.0 + split)
    kernel, library_row = (
        SweepRow(config, resources, outcome(config))
        for config, resources in (
            (tiled(23), registry.find("tiled").estimate(tiled(23), SQUARE)),
            (ALGORITHMS[0], OWN_RESOURCES),
        )
    )
    made = Recording(
        SQUARE, LibraryRunner().device, HERE, "2026-11-26T12:00:00Z", None, (kernel, library_row)
    )
    made.save(tmp_path / "sweep.json.gz")
    recording = Recording.load(tmp_path / "sweep.json.gz")
    assert recording == made
    runner = ReplayRunner(recording, seed=0)
    found = tune(
        *(GemmTunable(SQUARE), runner, store, Search(sampler="random")),
        compile=uncompiled,
        origin=recording.origin,
    )
    assert {each.config for each in found.entries} == {tiled(23), ALGORITHMS[0]}
    assert (found.evidence, found.best.config) == ("replayed", ALGORITHMS[0])
    assert found.library_version == "13.0.0"


def test_algorithm_is_measured_again_with_another_version(store: Store) -> None:
    tuned(LibraryRunner(taking(lambda split: 50.0 + split)), store)
    (old,) = store.records(LibraryRunner().device)
    newer = Origin(HERE.driver, HERE.compiler, SOURCE.replace("13.0.0", "13.1.0"))

    @contextmanager
    def opened(_: Problem) -> Iterator[Target]:
        yield Target(LibraryRunner(taking(lambda split: 40.0 + split)), newer)

    (again,) = retime([old], opened, store, compiled, top=2)
    assert again.new is not None
    assert (again.new.best.config, again.new.library_version) == (ALGORITHMS[0], "13.1.0")
    assert again.new.best.measurement.time_us == 41.0
