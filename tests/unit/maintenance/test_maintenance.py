"""Inventory, retiming and pruning of a cache."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled, tiled, uncompiled
from support.sample_cache import SMALL, TUNED, entries_of
from support.sample_records import H100, SQUARE, entry, record

from autotune.cuda import cache as program_cache
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.device import find
from autotune.errors import DeviceError, MissingError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.maintenance import exchange, pruning
from autotune.maintenance.inventory import (
    ChangedRecord,
    Item,
    changed_records,
    inspect,
    listed,
    scan,
    verdict,
)
from autotune.maintenance.retiming import Retimed, retime
from autotune.problem import Problem
from autotune.records import Record, Store, ranges
from autotune.records.codec import loads
from autotune.report import cache
from autotune.runners.base import Failure, Measurement
from autotune.runners.recording import Origin
from autotune.targets.targets import Target
from autotune.tuning.evaluate import Compile

WIDTHS = (23, 16, 8, 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


# Files


def _kinds(items: list[Item]) -> dict[str, str]:
    return {item.path.name: item.kind for item in items}


def test_every_file_of_the_cache_has_its_kind(store: Store) -> None:
    store.save(record(source="0ld"))
    store.save(record())
    store.quarantine(H100, "a", "timeout")
    ranges.save(store.root, TUNED)
    template = Template("tiled.cu", "tiled")
    program_cache.cached(store.root, "abc", template, "sm_90", lambda: _program(template))
    (store.root / "studies" / "h100").mkdir(parents=True)
    (store.root / "studies" / "h100" / "64.measured.log").write_text("{}\n")
    (store.root / "studies" / "h100" / "64.measured.0a1b.jsonl").write_text("{}\n")
    (store.root / "rescued").mkdir()
    (store.root / "rescued" / "0a1b.jsonl").write_text("{}\n")
    (store.root / "programs" / "half.tmp").write_text("")
    (store.root / "programs" / "notes.txt").write_text("")
    assert _kinds(inspect(store.root)) == {
        "4096x4096x4096-f32-nn.json": "record",
        "4096x4096x4096-f32-nn.json.superseded-1": "aside",
        f"{H100.slug}.jsonl": "quarantine",
        "1-64x64x64-f32-nn.json": "range",
        "abc.program": "program",
        "64.measured.log": "journal",
        "64.measured.0a1b.jsonl": "trials",
        "0a1b.jsonl": "journal",
        "half.tmp": "leftover",
    }


def _program(template: Template) -> Program:
    program = compiled(template, "sm_90")
    assert isinstance(program, Program)
    return replace(program, key="abc")


def test_whole_cache_has_no_faults(store: Store) -> None:
    store.save(record())
    store.quarantine(H100, "a", "timeout")
    ranges.save(store.root, TUNED)
    assert [item.fault for item in inspect(store.root)] == [None] * 3


def test_empty_cache_holds_nothing(store: Store) -> None:
    assert inspect(store.root) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (f"records/{H100.slug}/64x64x64-f32-nn.json", "{", "it is not JSON: Expecting"),
        (f"kernels/{H100.slug}/saxpy-0.json", "[]", "record is []; it must be an object"),
        (
            f"ranges/{H100.slug}/1-64x64x64-f32-nn.json",
            "{}",
            "schema is None, this version reads 1",
        ),
        ("programs/abc.program", "abc", "its checksum is wrong"),
        ("quarantine/h100.jsonl", '{"key": 1}\nbroken\n', "line 2 is no JSON object"),
    ],
)
def test_broken_file_is_found_with_the_reason(
    store: Store, name: str, text: str, fault: str
) -> None:
    path = store.root / name
    path.parent.mkdir(parents=True)
    path.write_text(text, "latin-1")
    (item,) = inspect(store.root)
    assert (item.path, str(item.fault)[: len(fault)]) == (path, fault)


@pytest.mark.parametrize(
    "name",
    [
        f"records/{H100.slug}/64x64x64-f32-nn.json",
        f"ranges/{H100.slug}/1-64x64x64-f32-nn.json",
        "programs/abc.program",
        "quarantine/h100.jsonl",
        "studies/h100/a.measured.0a1b.jsonl",
    ],
)
def test_pipe_in_the_place_of_a_file_is_a_fault(store: Store, name: str) -> None:
    (store.root / name).parent.mkdir(parents=True)
    os.mkfifo(store.root / name)
    (item,) = inspect(store.root)
    assert item.fault == "cannot be read: Is a named pipe, not a regular file"


def test_endless_line_is_a_fault(store: Store) -> None:
    path = store.root / "quarantine" / "h100.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    os.truncate(path, 2**40)
    (item,) = inspect(store.root)
    assert item.fault == "line 2 is no JSON object"


def test_torn_last_line_is_no_fault(store: Store) -> None:
    store.quarantine(H100, "a", "timeout")
    (path,) = store.root.glob("quarantine/*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"key": "b", "rea')
    assert [item.fault for item in inspect(store.root)] == [None]


def test_listing_reads_no_programs(store: Store) -> None:
    (store.root / "programs").mkdir(parents=True)
    (store.root / "programs" / "abc.program").write_text("broken")
    assert [item.fault for item in listed(store.root)] == [None]


# Stale records


def test_measured_records_of_other_kernels_are_stale(store: Store) -> None:
    old = store.save(record(source="0ld"))
    store.save(record(problem=SMALL))
    store.save(record(problem=SMALL, source="0ld", evidence="predicted"))
    today = Origin("13.0", "NVRTC 13.0", "5e1f")
    assert changed_records(inspect(store.root), today) == [
        ChangedRecord(old, "kernel sources 0ld, now 5e1f", stale=True)
    ]


def test_records_of_another_compiler_are_changed_and_not_stale(store: Store) -> None:
    made = store.save(record())
    today = Origin("13.0", "NVRTC 13.1", "5e1f")
    assert changed_records(inspect(store.root), today) == [
        ChangedRecord(made, "compiler NVRTC 13.0, now NVRTC 13.1", stale=False)
    ]


# Measuring again


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


# Deleting


def test_programs_of_records_count_as_used(store: Store) -> None:
    old = entries_of(16)
    plan = registry.plan(old.best.config, SMALL)
    for template in [plan.main.template, Template("tiled.cu", "other")]:
        key = compiler.named_keys([template], "sm_90")[template]
        program = replace(_program(template), key=key)
        program_cache.cached(store.root, key, template, "sm_90", lambda made=program: made)  # type: ignore[misc]
    store.save(old)
    unused = {*compiler.named_keys([Template("tiled.cu", "other")], "sm_90").values()}
    found = pruning.unused_programs(listed(store.root), [old])
    assert {item.path.stem for item in found} == unused


def test_records_are_not_read_for_a_cache_without_programs(store: Store) -> None:
    def never() -> Iterator[Record]:
        raise AssertionError("read")
        yield

    store.save(record())
    assert pruning.unused_programs(listed(store.root), never()) == []


@pytest.mark.parametrize(
    "consume",
    [
        lambda root: cache.totals(scan(root)),
        lambda root: verdict(scan(root, thorough=True), ORIGIN, "another device"),
        lambda root: exchange.chosen(Store(root), None, ()),
    ],
    ids=["list", "verify", "export"],
)
def test_memory_does_not_grow_with_the_records(
    consume: Callable[[Path], object], tmp_path: Path
) -> None:
    entries = tuple(replace(entry(16, 1.0 + i), config=tiled(i)) for i in range(1, 11))

    def peak(count: int) -> int:
        root = tmp_path / str(count)
        for number in range(count):
            Store(root).save(record(*entries, problem=Problem(64 + number, 64, 64)))
        tracemalloc.start()
        consume(root)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    consume(tmp_path)  # imports what it needs
    assert peak(160) - peak(40) < 120 * 2048  # decoded, each takes 15 KB


def test_illegal_configurations_use_no_program() -> None:
    old = entries_of(23)
    gone = replace(old.best, config=Config.of("vanished", {"a": 1}))
    assert pruning.used([replace(old, entries=(gone,))]) == frozenset()


def test_recent_temporary_files_are_not_deleted(store: Store) -> None:
    (store.root / "programs").mkdir(parents=True)
    young, old = (store.root / "programs" / name for name in ("young.tmp", "old.tmp"))
    for path in (young, old):
        path.write_text("half")
    os.utime(old, (0, time.time() - 2 * pruning.BUSY_S))
    assert [item.path for item in pruning.leftovers(listed(store.root))] == [old]


def test_copies_aside_are_selected_by_reason(store: Store) -> None:
    store.save(record(source="0ld"))
    store.save(record())
    store.path(H100, SQUARE).write_text("{")
    with pytest.warns(UserWarning, match="kept as"):
        store.save(record())
    selected = {why: pruning.aside(listed(store.root), why) for why in ("broken", "superseded")}
    assert {why: [item.path.suffix for item in items] for why, items in selected.items()} == {
        "broken": [".broken-1"],
        "superseded": [".superseded-1"],
    }


def test_deleting_counts_the_bytes_and_leaves_the_rest(store: Store) -> None:
    store.save(record(source="0ld"))
    kept = store.save(record())
    doomed = pruning.aside(listed(store.root), "superseded")
    size = doomed[0].path.stat().st_size
    assert pruning.delete(doomed) == size
    assert [item.content for item in listed(store.root)] == [kept]


def test_older_items_are_selected_by_write_time(store: Store) -> None:
    store.save(record())
    store.save(record(problem=SMALL))
    os.utime(store.path(H100, SMALL), (0, time.time() - 86400))
    items = pruning.older(listed(store.root), 3600)
    assert [item.path for item in items] == [store.path(H100, SMALL)]
