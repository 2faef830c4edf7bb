"""The records near a problem: their order, and broken ones, which are absent with a warning."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.command_line import own_machine, run
from support.logged import logs
from support.sample_records import H100, SQUARE, entry, record

from autotune.device import find, load
from autotune.errors import DeviceError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import checksum
from autotune.lookup.digest import RecordDigest
from autotune.lookup.neighbours import (
    DECIMALS,
    Near,
    Pool,
    differences,
    learn_errors,
    of_architecture,
)
from autotune.problem import Problem, distance
from autotune.records import Record, Records, Store, ranges, shipped

BF16 = Problem(256, 256, 256, "bf16")
WGMMA = (
    "wgmma:swap=0,bm=192,bn=192,consumers=2,schedule=pingpong,min_blocks=3,source=shared,low=none,"
    "pack=lines,bk=128,promote=0,cluster=1x1x4,split_k=8,reduction=stream,workers=0,store=direct,"
    "stages=8,group=1"
)


def holding(config: str) -> Record:
    held = replace(entry(16, 10.0), config=Config.parse(config), resources=Resources(128, 64, 1024))
    return record(held, problem=BF16)


def learnt(*records: Record) -> list[float]:
    """Times predicted by what the records teach."""
    config = Config.parse(WGMMA.replace("reduction=stream", "reduction=none"))
    errors = learn_errors(H100, records)
    return [
        float(time) for time in errors.predict([config], BF16, [Resources(128, 64, 1024)]).times
    ]


@pytest.mark.parametrize("change", [("bm=192", "bm=-1"), ("bm=192", "bm=x"), ("swap=0", "swap=2")])
def test_value_that_no_family_has_teaches_nothing(change: tuple[str, str]) -> None:
    assert learnt(holding(WGMMA.replace(*change))) == learnt()


def test_configuration_that_breaks_the_rules_teaches_nothing() -> None:
    with logs("256x256x256:bf16:nn on NVIDIA H100 .* breaks the rules"):
        assert learnt(holding(WGMMA)) == learnt()


def test_broken_record_of_another_device_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(own_machine(monkeypatch, tmp_path))
    store.save(record(problem=Problem(256, 256, 512)))
    path = store.path(H100, Problem(256, 256, 512))
    data = json.loads(path.read_text())
    data["entries"][0]["resources"]["threads"] = 0
    path.write_text(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}))

    assert run("best", "256x256x256", "--device", "h200") == 0
    assert f"{path}: skipped: entries[0].resources: 0 threads" in capsys.readouterr().err


# Named pipes in the place of files


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a named pipe in the place of each file."""
    store = Store(tmp_path)
    tuned = tmp_path / ranges.FOLDER / H100.slug / "1-64x64x64-f32-nn.json"
    quarantine = tmp_path / "quarantine" / f"{H100.slug}.jsonl"
    for path in (store.path(H100, SQUARE), tuned, quarantine):
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
    return store


def test_pipe_is_no_record(store: Store) -> None:
    with logs("4096-f32-nn.json: skipped: cannot be read: Is a nam"):
        assert store.load(H100, SQUARE) is None


def test_pipe_is_no_range(store: Store) -> None:
    with logs("1-64x64x64-f32-nn.json: .* Is a named pipe"):
        assert ranges.load(store.root, H100) == ()


def test_pipe_is_no_quarantine(store: Store) -> None:
    with logs("jsonl: skipped: cannot be read: Is a named pipe"):
        assert store.quarantined(H100) == {}


def test_pipe_is_no_record_of_a_related_device(store: Store) -> None:
    h200 = find("h200")
    assert of_architecture(h200, Records(store)).nearest(SQUARE, h200, 8) == []


def test_pipe_is_no_shipped_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl.xz")
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path))
    with logs(r"pipe\.jsonl\.xz: skipped: .*Is a named pipe"):
        assert shipped.records(H100) == ()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev", "pipe.json"])
def test_device_is_read_from_regular_files_alone(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    with pytest.raises(DeviceError, match=r"cannot read the device file .* not a regular file"):
        load(path)


TEXTS = ("64x4096x4096:f8:nt:scale=block", "64x4096x4096:bf16:nn", "300x70x1000:f32:tn:bias")
ASKED = Problem.parse("128x1000x700:bf16:nt")


def records(count: int) -> list[Record]:
    random = Random(count)
    kinds = [Problem.parse(text) for text in TEXTS]
    sized = [replace(random.choice(kinds), m=2 ** random.randrange(9)) for _ in range(count)]
    cards = [random.choice((H100, find("h200"))) for _ in range(count)]
    return [
        replace(record(problem=problem), device=card)
        for problem, card in zip(sized, cards, strict=True)
    ]


def remoteness(row: Record | RecordDigest) -> float:
    """How far a record is from the problem that is asked about, in octaves."""
    apart = sum(differences(row.problem, row.device, ASKED, H100))
    return round(distance(row.problem, ASKED) + apart, DECIMALS)


def nearest(made: Iterable[Record], count: int) -> list[Near]:
    return Pool(map(RecordDigest.of, made)).nearest(ASKED, H100, count)


def test_pool_is_in_the_order_of_remoteness() -> None:
    made = {(row.problem, row.device): row for row in records(60)}
    pool = [*made.values()]
    ranked = nearest(pool, 60)
    expected = sorted(pool, key=lambda row: (remoteness(row), row.problem))
    assert [row.problem for _, row in ranked] == [row.problem for row in expected]
    assert [apart for apart, _ in ranked] == [remoteness(row) for _, row in ranked]


def test_predicted_records_are_no_neighbours() -> None:
    rows = [replace(row, evidence="predicted") for row in records(3)]
    assert nearest(rows, 3) == []


def test_pool_gives_the_nearest_alone() -> None:
    pool = [record(problem=replace(ASKED, m=2**octave)) for octave in range(12)]
    sizes = [row.problem.m for _, row in nearest(pool, 3)]
    assert sizes == [128, 64, 256]


def test_best_record_of_a_problem_stands_for_it() -> None:
    made = [record(evidence=evidence) for evidence in ("replayed", "measured", "measured")]
    ((_, row),) = nearest(made, 3)
    assert row.evidence == "measured"
