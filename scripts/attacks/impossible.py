"""Impossible values in every kind of file, with right checksums: none is believed.

Each file is read by its decoder. Records that are accepted, as their values are possible, are then
looked up, for the recorded shape and for a neighbour.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from dataclasses import replace
from pathlib import Path

from support.impossible_values import KINDS, Mutation, mutations
from support.sample_records import H100, SQUARE

from attacks.outcome import Outcome
from attacks.sandbox import surveyed
from autotune import cli
from autotune.records import Store

LOOKED_UP = "record"
SHAPES = ("4096x4096x4096", "4096x4096x4000")


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
    """What is wrong with `autotune best` beside a record."""
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder / "none")
    path = Store(folder).path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_bytes(record)
    faults = []
    for shape in SHAPES:
        text = io.StringIO()
        with (
            contextlib.redirect_stdout(text),
            contextlib.redirect_stderr(text),
            warnings.catch_warnings(),
        ):
            try:
                cli.main(["best", shape, "--device", "h100"])
                status: object = 0
            except SystemExit as ended:
                status = ended.code or 0
        if status not in (0, 1, 3):
            faults.append(f"`best {shape}` ended with {status}: {text.getvalue()[-200:]}")
    return faults
