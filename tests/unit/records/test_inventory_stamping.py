"""Stale records whose kernels compile to the same machine code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import cubin, program
from support.logged import logs
from support.sample_cache import SMALL, entries_of
from support.sample_records import H100

from autotune import files, settings
from autotune.cuda.program import CompileFailure, Program, code_digest
from autotune.families import registry
from autotune.families.plan import Template
from autotune.measure.recording import Origin
from autotune.records import Record, Store, codec
from autotune.records.inventory import Stamped, stamp
from autotune.records.merging import stale

NOW = Origin("13.0", "NVRTC 13.0", "5e1f")
WIDTHS = (23, 16, 8)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


class Compiler:
    """Compiles to real code that depends on the tile width and on `changed` widths."""

    def __init__(self, *changed: int) -> None:
        self.changed, self.compiled = changed, list[Template]()

    def __call__(self, template: Template, arch: str) -> Program | CompileFailure:
        self.compiled.append(template)
        width = dict(template.arguments)["TILE_WIDTH"]
        assert isinstance(width, int)
        extra = 8 if width in self.changed else 0
        return replace(program(template, arch, registers=32 + extra), cubin=cubin(width))


def coded(record: Record) -> Record:
    """The record with the hash of the code that `Compiler` makes."""
    entries = []
    for entry in record.entries:
        launches = registry.plan(entry.config, record.problem).launches
        programs = [Compiler()(launch.template, "sm_90") for launch in launches]
        made = [made for made in programs if isinstance(made, Program)]
        entries.append(replace(entry, code=code_digest(made)))
    return replace(record, entries=tuple(entries))


@pytest.fixture
def old(store: Store) -> Record:
    """A stale record with three entries."""
    return store.save(coded(entries_of(*WIDTHS)))


def stamped(store: Store, old: Record, *changed: int, today: Origin = NOW) -> list[Stamped]:
    return stamp([old], today, store, Compiler(*changed))


def loaded(store: Store) -> Record:
    record = store.load(H100, SMALL)
    assert record is not None
    return record


def test_record_of_the_same_code_is_stamped(store: Store, old: Record) -> None:
    assert stale(old, NOW) is not None
    (pair,) = stamped(store, old)
    assert (pair.old, pair.new) == (old, loaded(store))
    assert stale(pair.new, NOW) is None
    assert pair.new == replace(old, provenance=replace(old.provenance, source=NOW.source))
    assert [entry.code for entry in pair.new.entries] == [entry.code for entry in old.entries]


def test_record_whose_winner_changed_stays_stale(store: Store, old: Record) -> None:
    assert stamped(store, old, old.best.config.integer("tile_width")) == []
    assert loaded(store) == old


def test_entry_of_other_code_leaves_the_record(store: Store, old: Record) -> None:
    last = old.entries[-1].config
    assert last != old.best.config
    (pair,) = stamped(store, old, last.integer("tile_width"))
    assert pair.new.entries == old.entries[:-1]
    (aside,) = store.path_of(old).parent.glob("*.superseded-*")
    assert codec.loads(aside.read_bytes()) == old


@pytest.mark.parametrize(
    "change",
    [
        lambda record: replace(
            record, provenance=replace(record.provenance, compiler="NVRTC 12.9")
        ),
        lambda record: replace(
            record, entries=tuple(replace(entry, code="") for entry in record.entries)
        ),
    ],
    ids=["another compiler", "no code"],
)
def test_record_that_cannot_be_compared_is_not_compiled(
    store: Store, old: Record, change: Callable[[Record], Record]
) -> None:
    compile = Compiler()
    assert stamp([change(old)], NOW, store, compile) == []
    assert compile.compiled == []


def test_frozen_mode_stamps_nothing(
    store: Store, old: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen")
    assert settings.mode().frozen
    assert stamped(store, old) == []
    assert loaded(store) == old


def test_kernel_that_fails_to_compile_stays_stale(store: Store, old: Record) -> None:
    def failing(template: Template, arch: str) -> CompileFailure:
        return CompileFailure(template, arch, "no", "")

    assert stamp([old], NOW, store, failing) == []


def test_record_that_changed_meanwhile_is_not_replaced(store: Store, old: Record) -> None:
    newer = replace(old, entries=old.entries[:1])
    store.path_of(old).write_bytes(codec.dumps(newer))
    assert stamped(store, old) == []
    assert loaded(store) == newer


def test_unwritable_record_stays_stale_with_a_warning(
    store: Store, old: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, _: bytes) -> None:
        raise settings.unusable(path, "write", "read-only")

    monkeypatch.setattr(files, "write", refused)
    with logs("its machine code is the same, but it stays stale"):
        assert stamped(store, old) == []
    assert loaded(store) == old


# The code in a record's file


def test_code_travels_through_json_and_lines(old: Record) -> None:
    codes = [entry.code for entry in old.entries]
    assert all(codes)
    for text in (codec.dumps(old), codec.line(old)):
        read = codec.loads(text)
        assert [entry.code for entry in read.entries] == codes


def test_record_without_code_is_written_without_it() -> None:
    plain = entries_of(*WIDTHS)
    text = codec.dumps(plain)
    assert b'"code"' not in text
    assert codec.loads(text) == plain


@pytest.mark.parametrize("code", ["5e1f", "Z" * 16, "0" * 17])
def test_impossible_code_is_refused(old: Record, code: str) -> None:
    entries = (replace(old.entries[0], code=code),)
    with pytest.raises(ValueError, match="code"):
        codec.loads(codec.dumps(replace(old, entries=entries)))


def test_code_is_in_no_comparison_and_not_shown(old: Record) -> None:
    plain = replace(old, entries=tuple(replace(entry, code="") for entry in old.entries))
    assert plain == old
    assert repr(plain) == repr(old)
