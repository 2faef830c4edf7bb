"""Damage to every kind of file: nothing raises, hangs, fills the memory or is believed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from random import Random

from attacks.kept import KINDS, Kept
from attacks.mutators import DAMAGES, REPLACEMENTS, zipped
from attacks.outcome import Outcome
from attacks.sandbox import surveyed

REPLACED = 0.08
"""Share of the cases in which something else is in the file's place."""


@dataclass(frozen=True)
class Case:
    """A damaged file.

    Attributes:
        kind: of the file.
        damage: what is done to it.
        seed: the random seed of the damage.
        inside: whether what a compressed file expands to is damaged.
    """

    kind: str
    damage: str
    seed: str
    inside: bool

    def __str__(self) -> str:
        inside = ", inside the compressed file" if self.inside else ""
        return f"{self.kind}, {self.damage}{inside} ({self.seed})"


def case_of(number: int, seed: int) -> Case:
    """The case of a number; cases of a seed are always the same."""
    random = Random(f"{seed} {number}")
    kind = random.choices([*KINDS], [kept.weight for kept in KINDS.values()])[0]
    replaced = random.random() < REPLACED
    damage = random.choice([*(REPLACEMENTS if replaced else DAMAGES)])
    inside = KINDS[kind].compressed and damage in DAMAGES and random.random() < 0.5
    return Case(kind, damage, f"seed {seed}, case {number}", inside and damage != "bomb")


def attempt(case: Case, folder: Path) -> list[str]:
    """Writes the damaged file into a folder and reads it."""
    kept = KINDS[case.kind]
    lay_out(kept, case, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kept.read(folder)


def lay_out(kept: Kept, case: Case, folder: Path) -> None:
    """The files of a sample, one of them damaged."""
    for name, content in kept.more().items():
        (folder / name).write_bytes(content)
    path = folder / kept.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if case.damage in REPLACEMENTS:
        REPLACEMENTS[case.damage](path)
        return
    damage = DAMAGES[case.damage]
    if case.inside:
        damage = zipped(damage)
    path.write_bytes(damage(Random(case.seed), kept.content()))


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Tries `count` damaged files."""
    cases = [case_of(number, seed) for number in range(count)]
    for kind in dict.fromkeys(case.kind for case in cases):
        KINDS[kind].content()  # once, for all forks

    labels = [str(case) for case in cases]
    return surveyed(labels, folder, lambda number, place: attempt(cases[number], place))
