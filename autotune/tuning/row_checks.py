"""Candidates that have to compute rows of C as one reference does, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from zlib import crc32

from autotune.candidates.legality import is_legal
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure, RowReference, Runner
from autotune.tuning.evaluate import Compile, prepare

ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 200)
"""Rows that a reference computes: around the sides of tiles and of instructions."""
START = 16
"""Rows start at a multiple of this, so that their operands are as aligned as C's."""


class RowChecks:
    """Has every candidate compared with the reference.

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
            runner: measures the candidates.
            problem: its problem.
            order: the order of summation.
            references: configurations of that order for some number of rows; the first one that
                compiles is the reference.
            compile: makes a program of a template for an architecture.
        """
        self._runner, self._problem, self._compile = runner, problem, compile
        self._order, self._references = order, references
        self._prepared: dict[int, Candidate] = {}

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
            and is_legal(config, replace(self._problem, m=rows), self._runner.device, self._order)
        ]

    def _launch(self, config: Config, rows: int) -> Candidate | Failure:
        """A configuration on a number of rows."""
        few = replace(self._problem, m=rows)
        plan = registry.plan(config, few, Alignment.dense(self._problem))
        return prepare(plan, self._runner, self._compile)
