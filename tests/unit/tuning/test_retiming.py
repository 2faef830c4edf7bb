"""Records that are measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import (
    ORIGIN,
    FakeRunner,
    by_width,
    compiled,
    cubin,
    program,
    tiled,
    uncompiled,
)
from support.sample_cache import SMALL, entries_of
from support.sample_records import H100

from autotune.cuda.program import CompileFailure, Program, code_digest
from autotune.device import find
from autotune.errors import DeviceError, MissingError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.targets import Target
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.records.codec import loads
from autotune.tuning.pipeline import Compile
from autotune.tuning.retiming import Retimed, retime

WIDTHS = (23, 16, 8, 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


class Bench:
    """Opens a fake GPU for each record; keeps the runners."""

    def __init__(self, make: Callable[[], FakeRunner] = FakeRunner) -> None:
        self._make = make
        self.runners: list[FakeRunner] = []

    @contextmanager
    def __call__(self, problem: Problem) -> Iterator[Target]:
        del problem
        runner = self._make()
        self.runners.append(runner)
        yield Target(runner, ORIGIN)


def _again(
    store: Store,
    old: Record,
    bench: Bench | None = None,
    *,
    compile: Compile = compiled,
    top: int = 3,
) -> Retimed:
    (retimed,) = retime([old], bench or Bench(), store, compile, top=top)
    return retimed


def with_code(template: Template, arch: str) -> Program:
    """A program with one instruction, which differs from kernel to kernel."""
    return replace(program(template, arch), cubin=cubin(hash(template) % 256))


def _configs(record: Record | None) -> list[Config]:
    assert record is not None
    return [entry.config for entry in record.entries]


def test_best_few_are_retimed_and_the_rest_dropped(store: Store) -> None:
    old = store.save(entries_of(*WIDTHS))
    new = _again(store, old).new
    assert new == store.load(H100, SMALL)
    # `by_width`: 101 us at 23, 10 more for each step from there.
    assert new is not None
    assert [entry.measurement.time_us for entry in new.entries] == [101.0, 171.0, 251.0]


def test_retimed_entries_have_the_hash_of_their_code(store: Store) -> None:
    old = store.save(entries_of(*WIDTHS))
    new = _again(store, old, compile=with_code).new
    assert new is not None
    read = loads(store.path_of(new).read_bytes())
    for entry in read.entries:
        launches = registry.plan(entry.config, SMALL).launches
        programs = [with_code(launch.template, H100.arch) for launch in launches]
        assert entry.code == code_digest(programs) != ""


def test_best_cold_is_retimed_with_the_best(store: Store) -> None:
    cold_us = dict(zip(WIDTHS, range(900, 0, -100), strict=False))
    old = entries_of(*WIDTHS)
    entries = tuple(
        replace(made, measurement=replace(made.measurement, cold_us=float(cold)))
        for made, cold in zip(old.entries, cold_us.values(), strict=True)
    )
    old = store.save(replace(old, entries=entries))
    assert old.best_cold == old.entries[-1]
    retimed = _again(store, old, top=2)
    assert retimed.new is not None
    configs = {made.config for made in retimed.new.entries}
    assert configs == {old.best.config, old.entries[-1].config}


def test_new_record_states_origin_and_baseline(store: Store) -> None:
    new = _again(store, store.save(entries_of(*WIDTHS))).new
    assert new is not None
    made = new.provenance
    assert (made.driver, made.compiler, made.source, made.trials) == (
        "13.0",
        "NVRTC 13.5",
        "5e1f",
        3,
    )
    assert new.baseline == Measurement(90.0)


def test_old_record_is_kept_beside(store: Store) -> None:
    old = store.save(entries_of(*WIDTHS))
    _again(store, old)
    path = store.path(H100, SMALL)
    assert loads(path.with_name(f"{path.name}.superseded-1").read_bytes()) == old


def test_retimed_entries_go_through_the_final_round(store: Store) -> None:
    bench = Bench()
    _again(store, store.save(entries_of(*WIDTHS)), bench, top=2)
    (runner,) = bench.runners
    assert runner.rematched == [tiled(23), tiled(16)]


def _wrong_at(*widths: int) -> Callable[[Config], Measurement | Failure]:
    def outcome(config: Config) -> Measurement | Failure:
        wrong = config.integer("tile_width") in widths
        return Failure("verify", "error 3 of 0.1") if wrong else by_width(config)

    return outcome


def test_entry_wrong_now_gives_way_to_the_next(store: Store) -> None:
    bench = Bench(lambda: FakeRunner(_wrong_at(23)))
    retimed = _again(store, store.save(entries_of(*WIDTHS)), bench)
    assert _configs(retimed.new) == [tiled(16), tiled(32), tiled(8)]
    assert retimed.failed == ((tiled(23), Failure("verify", "error 3 of 0.1")),)


def test_entry_failing_in_the_final_round_drops_out(store: Store) -> None:
    bench = Bench(lambda: FakeRunner(again=_wrong_at(16)))
    retimed = _again(store, store.save(entries_of(*WIDTHS)), bench, top=2)
    assert _configs(retimed.new) == [tiled(23)]
    assert [config for config, _ in retimed.failed] == [tiled(16)]


def test_entry_that_no_longer_compiles_drops_out(store: Store) -> None:
    def broken(template: Template, arch: str) -> Program | CompileFailure:
        if dict(template.arguments)["TILE_WIDTH"] == 23:
            return CompileFailure(template, arch, "error: no such header", "")
        return compiled(template, arch)

    retimed = _again(store, store.save(entries_of(*WIDTHS)), compile=broken)
    assert retimed.failed == ((tiled(23), Failure("compile", "error: no such header")),)


def test_entry_illegal_today_is_not_compiled(store: Store) -> None:
    old = entries_of(23)
    gone = replace(old.best, config=Config.of("tiled", {"tile_width": 999, "specialized": 1}))
    retimed = _again(store, store.save(replace(old, entries=(gone,))), compile=uncompiled)
    assert [failure.reason[:5] for _, failure in retimed.failed] == ["value"]


def test_unknown_family_is_a_failure_not_a_crash(store: Store) -> None:
    old = entries_of(23)
    gone = replace(old.best, config=Config.of("vanished", {"a": 1}))
    retimed = _again(store, store.save(replace(old, entries=(gone,))), compile=uncompiled)
    assert "vanished" in retimed.failed[0][1].reason


def test_crashing_entry_is_quarantined(store: Store) -> None:
    def crash(config: Config) -> Measurement | Failure:
        return Failure("crash", "illegal access") if config == tiled(23) else by_width(config)

    old = store.save(entries_of(*WIDTHS))
    _again(store, old, Bench(lambda: FakeRunner(crash)))
    assert [*store.quarantined(H100)] == [f"{tiled(23)}@5e1f"]
    bench = Bench()
    _again(store, old, bench)
    assert tiled(23) not in bench.runners[0].measured


def test_record_without_working_entries_is_set_aside(store: Store) -> None:
    old = store.save(entries_of(*WIDTHS))
    retimed = _again(store, old, Bench(lambda: FakeRunner(_wrong_at(*WIDTHS))))
    assert retimed.new is None
    assert len(retimed.failed) == len(WIDTHS)
    assert store.load(H100, SMALL) is None
    path = store.path(H100, SMALL)
    assert loads(path.with_name(f"{path.name}.superseded-1").read_bytes()) == old


def test_inaccurate_result_is_a_failure(store: Store) -> None:
    class Exact(FakeRunner):
        def baseline(self) -> Measurement | None:
            return Measurement(90.0, relative_error=1e-7)

    def coarse(config: Config) -> Measurement | Failure:
        error = 1e-2 if config == tiled(23) else 1e-7
        return Measurement(100.0, relative_error=error)

    retimed = _again(store, store.save(entries_of(*WIDTHS)), Bench(lambda: Exact(coarse)))
    assert [(config, failure.stage) for config, failure in retimed.failed] == [
        (tiled(23), "accuracy")
    ]


def test_record_that_cannot_be_measured_is_unchanged(store: Store) -> None:
    @contextmanager
    def cramped(problem: Problem) -> Iterator[Target]:
        raise RunnerError(f"{problem}: verification needs 90 GiB")
        yield

    old = store.save(entries_of(*WIDTHS))
    (retimed,) = retime([old], cramped, store, compiled)
    assert (retimed.new, retimed.trouble) == (None, f"{SMALL}: verification needs 90 GiB")
    assert store.load(H100, SMALL) == old


def test_without_a_gpu_retiming_raises(store: Store) -> None:
    @contextmanager
    def missing(problem: Problem) -> Iterator[Target]:
        raise MissingError(f"no GPU for {problem}")
        yield

    with pytest.raises(MissingError):
        [*retime([entries_of(23)], missing, store, compiled)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FakeRunner(evidence="predicted"), "answers predicted times here; give a GPU"),
        (lambda: FakeRunner(device=find("t4")), "was measured on NVIDIA H100.*, this is .*T4"),
    ],
    ids=["predictions", "another device"],
)
def test_retiming_needs_a_gpu_of_the_same_model(
    store: Store, make: Callable[[], FakeRunner], message: str
) -> None:
    old = store.save(entries_of(23))
    with pytest.raises(DeviceError, match=message):
        _again(store, old, Bench(make))
    assert store.load(H100, SMALL) == old
