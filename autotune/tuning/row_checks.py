"""A runner whose candidates compute rows of C as one reference does, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from zlib import crc32

from autotune.candidates.legality import is_legal
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment, Resources
from autotune.problem import Problem
from autotune.runners.base import (
    BestTimes,
    Candidate,
    Evidence,
    Failure,
    Measurement,
    RowReference,
    Runner,
)
from autotune.runners.energy import Energy
from autotune.runners.objective import HOT, Objective
from autotune.tuning.evaluate import Compile, prepare

ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 200)
"""Rows that a reference computes: around the sides of tiles and of instructions."""
START = 16
"""Rows start at a multiple of this, so that their operands are as aligned as C's."""


class RowChecked:
    """Measures by another runner, and has every candidate compared with the reference.

    Each candidate gets other rows: 1 to 200 of them, at either end of C. What a launch of these
    rows alone computes does not depend on the rows beside them. So no two candidates of different
    M that pass can differ in the rows that they share.
    """

    def __init__(
        self,
        runner: Runner,
        problem: Problem,
        order: str,
        references: Sequence[Config],
        compile: Compile,
    ) -> None:
        """Checks nothing yet.

        Args:
            runner: measures; the caller closes it.
            problem: its problem.
            order: the order of summation.
            references: configurations of that order for some number of rows; the first one that
                compiles is the reference.
            compile: makes a program of a template for an architecture.
        """
        self._runner, self._problem, self._compile = runner, problem, compile
        self._order, self._references = order, references
        self._prepared: dict[int, Candidate] = {}

    @property
    def device(self) -> Device:
        """The runner's device."""
        return self._runner.device

    @property
    def evidence(self) -> Evidence:
        """The runner's evidence."""
        return self._runner.evidence

    @property
    def baseline_ready(self) -> bool:
        """As the runner's."""
        return self._runner.baseline_ready

    @property
    def baseline_fault(self) -> str:
        """As the runner's."""
        return self._runner.baseline_fault

    def known(self) -> Sequence[Config] | None:
        """As the runner's."""
        return self._runner.known()

    def resources(self, config: Config) -> Resources | None:
        """As the runner's."""
        return self._runner.resources(config)

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies a candidate, its rows too, and times it."""
        return self._runner.measure(self.compared(candidate), best, objective)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """Verifies the candidates, their rows too, and times them interleaved."""
        return self._runner.rematch([self.compared(candidate) for candidate in candidates])

    def examine(self, candidate: Candidate) -> Failure | None:
        """Verifies a winner, its rows too."""
        return self._runner.examine(self.compared(candidate))

    def energy_fault(self) -> str | None:
        """As the runner's."""
        return self._runner.energy_fault()

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """As the runner's."""
        return self._runner.energies(candidates)

    def baseline(self) -> Measurement | None:
        """As the runner's."""
        return self._runner.baseline()

    def close(self) -> None:
        """Closes the runner."""
        self._runner.close()

    def compared(self, candidate: Candidate) -> Candidate:
        """The candidate with the rows that it has to compute as the reference does.

        Raises:
            AutotuneError: if no reference compiles.
        """
        reference, counts = self._reference
        if not counts:
            return candidate
        number = crc32(str(candidate.config).encode())
        rows = counts[number % len(counts)]
        if rows not in self._prepared:
            prepared = self._launch(reference, rows)
            if isinstance(prepared, Failure):
                raise AutotuneError(f"{reference} computes no {rows} rows: {prepared.reason}")
            self._prepared[rows] = prepared
        last = (self._problem.m - rows) // START * START
        first = last if number // len(counts) % 2 else 0
        return replace(candidate, rows=RowReference(first, rows, self._prepared[rows]))

    @cached_property
    def _reference(self) -> tuple[Config, list[int]]:
        """The reference, and the numbers of rows that it can compute here."""
        for config in self._references:
            counts = self._counts(config)
            if not counts or isinstance(self._launch(config, counts[0]), Candidate):
                return config, counts
        raise AutotuneError(f"none of {len(self._references)} references of rows compiles")

    def _counts(self, config: Config) -> list[int]:
        # Scales of blocks lie by M, so that fewer rows would read others.
        wanted = (self._problem.m,) if self._problem.scale == "block" else (*ROWS, self._problem.m)
        return [
            rows
            for rows in dict.fromkeys(wanted)
            if rows <= min(self._problem.m, ROWS[-1])
            and is_legal(config, replace(self._problem, m=rows), self.device, self._order)
        ]

    def _launch(self, config: Config, rows: int) -> Candidate | Failure:
        """A configuration on a number of rows."""
        few = replace(self._problem, m=rows)
        plan = registry.plan(config, few, Alignment.dense(self._problem))
        return prepare(plan, self._runner, self._compile)
