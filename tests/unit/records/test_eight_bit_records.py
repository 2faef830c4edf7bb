"""Records, recordings and look-ups of 8-bit problems."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.sample_records import H100, entry, record

from autotune.lookup.lookup import lookup
from autotune.lookup.neighbours import differences
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.model import space
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Store, codec
from autotune.tuning.tunable import kernel_kind

TEXTS = (
    *("64x4096x4096:f8:nt:scale=row", "64x4096x4096:f8:nt:scale=block:fast:out=f16"),
    *("64x4096x4096:f8e5:nt:e5m2=ab", "64x4096x4096:i8:nt:out=i32"),
)

ROW = Problem.parse(TEXTS[0])


@pytest.mark.parametrize("text", TEXTS)
def test_record_states_the_fields_of_8_bits(text: str) -> None:
    saved = replace(record(entry(16, 9.0)), problem=Problem.parse(text))
    assert codec.loads(codec.dumps(saved)) == saved
    stated = json.loads(codec.dumps(saved))["problem"]
    assert ("scale" in stated) == ("scale" in text)
    assert ("e5m2" in stated) == ("e5m2" in text)


def test_record_with_scales_is_listed_and_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legal = space.feasible(ROW, H100, "wgmma").configs
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))
    store = Store(tmp_path)
    first, second = (replace(entry(16, 9.0), config=config) for config in (legal[0], legal[-1]))
    saved = store.save(replace(record(first), problem=ROW))
    plain = store.save(replace(record(second), problem=replace(ROW, scale="none")))
    assert saved.problem in {each.problem for each in store.records(H100)}
    answer = lookup(ROW, H100, store)
    assert answer is not None
    assert (answer.how, answer.record) == ("exact", saved)
    other = lookup(replace(ROW, scale="none"), H100, store)
    assert other is not None
    assert other.record == plain


@pytest.mark.parametrize("text", TEXTS)
def test_recording_keeps_the_fields_of_8_bits(text: str, tmp_path: Path) -> None:
    problem, sample = Problem.parse(text), entry(16, 9.0)
    row = SweepRow(sample.config, sample.resources, sample.measurement)
    origin = Origin("13.0", "NVRTC 13.0", "0")
    kept = Recording(problem, H100, origin, "2026-01-01T00:00:00Z", None, (row,))
    kept.save(tmp_path / "kept.json.gz")
    assert Recording.load(tmp_path / "kept.json.gz") == kept


def test_range_keeps_its_scales() -> None:
    span = Span.parse("1..64x4096x4096:f8:nt:scale=row")
    assert (span.low, span.problem) == (1, ROW)
    assert {span.at(size).scale for size in span.probes} == {"row"}


def test_scales_of_blocks_are_farther_than_other_scales() -> None:
    texts = ("scale=row", "scale=tensor", "scale=row:fast", "scale=block")
    asked = [Problem.parse(f"64x4096x4096:f8:nt:{text}") for text in texts]
    far = [sum(differences(ROW, H100, problem, H100)) for problem in asked]
    assert far[0] == 0
    assert far == sorted(far)
    assert len({*far}) == 4


def test_kernels_of_fp8_suit_both_types_but_not_integers() -> None:
    kinds = [
        kernel_kind(Problem.parse(f"64x64x64:nt:{text}"))
        for text in ("f8", "f8e5", "f8:scale=row", "i8", "f8:fast", "f8:scale=block", "bf16")
    ]
    assert kinds[0] == kinds[1] == kinds[2]
    assert len({*kinds}) == 5
