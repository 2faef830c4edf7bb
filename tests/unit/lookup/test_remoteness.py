"""The order of records by their remoteness from a problem."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from support.sample_records import H100, record

from autotune.device import find
from autotune.lookup.neighbours import Pool, by_remoteness, remoteness
from autotune.problem import Problem
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


def test_pool_is_in_the_order_of_remoteness() -> None:
    pool = records(60)
    ranked = Pool(pool).by_remoteness(ASKED, H100)
    expected = sorted(pool, key=lambda row: (remoteness(row, ASKED, H100), row.problem))
    assert [row.problem for _, row in ranked] == [row.problem for row in expected]
    assert [apart for apart, _ in ranked] == [remoteness(row, ASKED, H100) for _, row in ranked]


def test_predicted_records_are_no_neighbours() -> None:
    rows = [replace(row, evidence="predicted") for row in records(3)]
    assert by_remoteness(ASKED, H100, rows) == []
