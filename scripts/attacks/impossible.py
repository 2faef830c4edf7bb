"""Impossible values in every kind of file, with right checksums: none is believed.

Each file is read by its decoder. Records that are accepted, as their values are possible, are then
looked up, for the recorded shape and for a neighbour.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.impossible_values import KINDS, Mutation, mutations
from support.sample_records import H100, SQUARE

from attacks.kept_records import read_best
from attacks.outcome import Outcome
from attacks.sandbox import surveyed
from autotune.records import Store

LOOKED_UP = "record"


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Tries `count` files, spread evenly over all kinds, or all there are if that is fewer."""
    cases = [(name, mutation) for name in KINDS for mutation in mutations(KINDS[name])]
    step = max(1, len(cases) // count)
    cases = cases[seed % step :: step][:count]
    labels = [f"{name}, {mutation}" for name, mutation in cases]
    outcome = surveyed(labels, folder, lambda number, place: attempt(*cases[number], place))
    impossible = sum(not mutation.possible for _, mutation in cases)
    believed = sum(line.endswith(BELIEVED) for line in outcome.broken)
    counts = {**outcome.counts, "impossible": impossible, "believed": believed}
    return replace(outcome, counts=counts)


BELIEVED = "an impossible value was believed"


def attempt(name: str, mutation: Mutation, folder: Path) -> list[str]:
    """Reads a file; looks records up that were accepted."""
    try:
        KINDS[name].read(mutation.data)
    except ValueError:
        return []
    if not mutation.possible:
        return [BELIEVED]
    return looked_up(mutation.data, folder) if name == LOOKED_UP else []


def looked_up(record: bytes, folder: Path) -> list[str]:
    """The faults of `autotune best` when this record is in its cache."""
    path = Store(folder).path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_bytes(record)
    return read_best(folder)
