"""Inventory and pruning of a cache."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import ORIGIN, compiled, tiled
from support.logged import logs
from support.sample_cache import SMALL, TUNED, entries_of
from support.sample_records import H100, SQUARE, entry, record

from autotune.cuda import cache as program_cache
from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.recording import Origin
from autotune.problem import Problem
from autotune.records import Record, Store, inventory, ranges
from autotune.records.inventory import ChangedRecord, Item, scan, verification
from autotune.report import cache


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
    assert _kinds([*scan(store.root, thorough=True)]) == {
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


def test_broken_line_is_a_fault_of_a_quarantine_alone(store: Store) -> None:
    for name in ("quarantine/h100.jsonl", "studies/h100/64.measured.0a1b.jsonl"):
        (store.root / name).parent.mkdir(parents=True)
        (store.root / name).write_bytes(b'nothing\n{"a": 1}\n')
    (store.root / "studies/h100/unreadable.jsonl").mkdir()
    assert [(item.kind, item.fault) for item in scan(store.root, thorough=True)] == [
        ("quarantine", "line 1 is no JSON object"),
        ("trials", None),
        ("trials", "cannot be read: Is a directory, not a regular file"),
    ]


def _program(template: Template) -> Program:
    program = compiled(template, "sm_90")
    assert isinstance(program, Program)
    return replace(program, key="abc")


def test_whole_cache_has_no_faults(store: Store) -> None:
    store.save(record())
    store.quarantine(H100, "a", "timeout")
    ranges.save(store.root, TUNED)
    assert [item.fault for item in scan(store.root, thorough=True)] == [None] * 3


def test_empty_cache_holds_nothing(store: Store) -> None:
    assert [*scan(store.root, thorough=True)] == []


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
    (item,) = scan(store.root, thorough=True)
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
    (item,) = scan(store.root, thorough=True)
    assert item.fault == "cannot be read: Is a named pipe, not a regular file"


def test_endless_line_is_a_fault(store: Store) -> None:
    path = store.root / "quarantine" / "h100.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    os.truncate(path, 2**40)
    (item,) = scan(store.root, thorough=True)
    assert item.fault == "line 2 is no JSON object"


def test_torn_last_line_is_no_fault(store: Store) -> None:
    store.quarantine(H100, "a", "timeout")
    (path,) = store.root.glob("quarantine/*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"key": "b", "rea')
    assert [item.fault for item in scan(store.root, thorough=True)] == [None]


def test_listing_reads_no_programs(store: Store) -> None:
    (store.root / "programs").mkdir(parents=True)
    (store.root / "programs" / "abc.program").write_text("broken")
    assert [item.fault for item in scan(store.root)] == [None]


# Stale records


def test_measured_records_of_other_kernels_are_stale(store: Store) -> None:
    old = store.save(record(source="0ld"))
    store.save(record(problem=SMALL))
    store.save(record(problem=SMALL, source="0ld", evidence="predicted"))
    today = Origin("13.0", "NVRTC 13.0", "5e1f")
    assert verification(scan(store.root, thorough=True), today, None)[2] == [
        ChangedRecord(old, "kernel sources 0ld, now 5e1f", stale=True)
    ]


def test_records_of_another_compiler_are_changed_and_not_stale(store: Store) -> None:
    made = store.save(record())
    today = Origin("13.0", "NVRTC 13.1", "5e1f")
    assert verification(scan(store.root, thorough=True), today, None)[2] == [
        ChangedRecord(made, "compiler NVRTC 13.0, now NVRTC 13.1", stale=False)
    ]


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
    found = inventory.unused_programs([*scan(store.root)], [old])
    assert {item.path.stem for item in found} == unused


def test_records_are_not_read_for_a_cache_without_programs(store: Store) -> None:
    def never() -> Iterator[Record]:
        raise AssertionError("read")
        yield

    store.save(record())
    assert inventory.unused_programs([*scan(store.root)], never()) == []


@pytest.mark.parametrize(
    "consume",
    [
        lambda root: cache.totals(scan(root)),
        lambda root: verification(scan(root, thorough=True), ORIGIN, "another device"),
    ],
    ids=["list", "verify"],
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
    assert inventory.used([replace(old, entries=(gone,))]) == frozenset()


def test_recent_temporary_files_are_not_deleted(store: Store) -> None:
    (store.root / "programs").mkdir(parents=True)
    young, old = (store.root / "programs" / name for name in ("young.tmp", "old.tmp"))
    for path in (young, old):
        path.write_text("half")
    os.utime(old, (0, time.time() - 2 * inventory.BUSY_S))
    assert [item.path for item in inventory.leftovers([*scan(store.root)])] == [old]


def test_copies_aside_are_selected_by_reason(store: Store) -> None:
    store.save(record(source="0ld"))
    store.save(record())
    store.path(H100, SQUARE).write_text("{")
    with logs("kept as"):
        store.save(record())
    selected = {why: inventory.aside([*scan(store.root)], why) for why in ("broken", "superseded")}
    assert {why: [item.path.suffix for item in items] for why, items in selected.items()} == {
        "broken": [".broken-1"],
        "superseded": [".superseded-1"],
    }


def test_deleting_counts_the_bytes_and_leaves_the_rest(store: Store) -> None:
    store.save(record(source="0ld"))
    kept = store.save(record())
    doomed = inventory.aside([*scan(store.root)], "superseded")
    size = doomed[0].path.stat().st_size
    assert inventory.delete(doomed) == size
    assert [item.content for item in scan(store.root)] == [kept]


def test_older_items_are_selected_by_write_time(store: Store) -> None:
    store.save(record())
    store.save(record(problem=SMALL))
    os.utime(store.path(H100, SMALL), (0, time.time() - 86400))
    items = inventory.older([*scan(store.root)], 3600)
    assert [item.path for item in items] == [store.path(H100, SMALL)]
