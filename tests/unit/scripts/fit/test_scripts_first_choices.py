"""The table of what look-ups choose on architectures that nobody tuned (`first_choices.py`)."""

from __future__ import annotations

import gzip
import json
from random import Random

import first_choices
import pytest
from first_choices import CARDS, Row, compiled, fault, problems
from support.paths import ROOT

from autotune.cuda.program import source_hash
from autotune.device import catalogue, find
from autotune.families import registry
from autotune.problem import PRECISIONS

FILE = ROOT / "docs" / "results" / "first-choices.json.gz"
SCRIPT = "scripts/fit/first_choices.py"
AGAIN = f"changed since the table was made: `python {SCRIPT} docs/results/{FILE.name}`"
COMPILED = 3
"""Choices that are compiled, one or two seconds each."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The rows of the table."""
    content = json.loads(gzip.decompress(FILE.read_bytes()))
    assert content["source"] == source_hash(*registry.kernel_sources()), AGAIN
    held: list[Row] = content["rows"]
    return held


@pytest.fixture(scope="module")
def drawn(rows: list[Row]) -> list[Row]:
    """A row of each card, and of each precision."""
    random, shuffled = Random(5), Random(5).sample(rows, len(rows))
    first = {row["problem"].split(":")[1]: row for row in shuffled}
    return [*first.values(), *({row["card"]: row for row in random.sample(rows, 90)}.values())]


def test_table_has_the_suite_in_every_precision(rows: list[Row]) -> None:
    asked = [(card, str(problem)) for card in CARDS for problem in problems(card)]
    assert [(row["card"], row["problem"]) for row in rows] == asked
    assert {row["problem"].split(":")[1] for row in rows} == {*PRECISIONS}


def test_first_choices_run_as_expected_without_spills(rows: list[Row]) -> None:
    assert [fault(row) for row in rows if fault(row)] == []


def test_todays_choices_are_those_of_the_table(
    drawn: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(ROOT / "autotune" / "data" / "shipped"))
    held = [{name: row[name] for name in ("card", "problem", "config", "vendor")} for row in drawn]
    today = [first_choices.choice((row["card"], row["problem"])) for row in drawn]
    assert today == held, AGAIN


def test_compiled_choices_are_those_of_the_table(drawn: list[Row]) -> None:
    keys = "card", "problem", "config", "vendor"
    for row in drawn[:COMPILED]:
        again = compiled({name: row[name] for name in keys}, None)
        assert fault(again) == ""
        assert (again["threads"], again["shared"]) == (row["threads"], row["shared"])


def smallest_cards() -> list[str]:
    """The card of each architecture with the fewest SMs, where PyTorch's max-autotune is off."""
    cards = [
        (name, card) for name, card in catalogue().items() if card.compute_capability >= (8, 0)
    ]
    ordered = sorted(cards, key=lambda item: -item[1].sms)
    fewest = {card.arch: name for name, card in ordered}
    return [name for name in fewest.values() if find(name).sms < 68]


@pytest.mark.parametrize("card", smallest_cards())
def test_first_choices_of_small_cards_run_as_expected(
    card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(ROOT / "autotune" / "data" / "shipped"))
    for text in ("16x4096x4096:bf16:nt", "512x512x512:f32"):
        assert fault(compiled(first_choices.choice((card, text)), None)) == ""


def test_small_cards_are_of_four_architectures() -> None:
    assert {find(name).arch for name in smallest_cards()} == {"sm_86", "sm_87", "sm_89", "sm_120"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"spills": 8, "local": 8}, "spills 8 bytes"),
        ({"occupancy": 0.1, "blocks": 1}, "has 1 blocks an SM"),
        ({"failure": "no such instruction"}, "does not compile: no such instruction"),
    ],
)
def test_fault_of_a_choice_is_named(rows: list[Row], change: Row, told: str) -> None:
    assert fault(rows[0] | change).startswith(told)
