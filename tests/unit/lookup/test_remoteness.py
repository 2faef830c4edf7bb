"""The order of records by their remoteness from a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from support.sample_records import H100, record

from autotune.device import find
from autotune.lookup.digest import RecordDigest
from autotune.lookup.neighbours import DECIMALS, Near, Pool, differences
from autotune.problem import Problem, distance
from autotune.records import Record

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
