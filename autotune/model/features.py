"""Problems and configurations as rows of numbers, which models and the search learn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]

OCTAVE, ALIGNED, KIND, STORED = 0.25, 0.125, 1.0, 0.5
MOST_ALIGNED = 4
"""The largest alignment that counts, as log2: kernels move at most 16 bytes at once, and a size
that 16 divides has whole tiles."""


@dataclass(frozen=True)
class Description:
    """Features and predicted times of configurations, a row each.

    Attributes:
        features: a column for each quantity; the search scales them, so that units do not matter.
        predicted: a model's times in microseconds, infinite for what cannot run.
    """

    features: Floats
    predicted: Floats


Describe = Callable[[Sequence[Config], Sequence[Resources | None]], Description]
"""Describes configurations by their compiled resources; estimates replace a None."""


@lru_cache(maxsize=4096)
def problem_columns(problem: Problem) -> tuple[float, ...]:
    """Sizes, alignments, precision and layout: similar problems are near to each other."""
    sizes, precision = (problem.m, problem.n, problem.k), problem.precision
    kinds = (
        *(problem.element_bytes == 2, problem.products == 3, not precision.on_tensor_cores),
        *(precision.eight_bit, precision.sums == "integer"),
        *(problem.accumulate == "fast", problem.scale == "block"),
    )
    return (
        *(OCTAVE * math.log2(size) for size in (*sizes, problem.batch)),
        *(ALIGNED * min(MOST_ALIGNED, (size & -size).bit_length() - 1) for size in sizes),
        *(KIND * kind for kind in kinds),
        *(STORED * (letter == "t") for letter in problem.layout),
    )


def block_columns(
    resources: Sequence[Resources], resident: Floats, blocks: Floats, sms: Floats | int
) -> list[Floats]:
    """Columns: a block's threads and shared memory, resident blocks, blocks, registers a thread,
    and the fill of the waves on `sms` SMs."""
    needs = [(need.threads, need.shared + 1024, need.registers) for need in resources]
    threads, shared, registers = np.array(needs, float).reshape(-1, 3).T
    at_once = np.maximum(resident, 1)
    waves = blocks / (at_once * sms)
    return [*np.log2([threads, shared, at_once, blocks]), registers, waves / np.ceil(waves)]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of configurations of one family, a row each.

    Attributes:
        numbers: the numbers among them, a column for each of `numbered`.
        numbered: the names of the numbers.
        codes: the words as places in `words`, a column for each of `worded`.
        worded: the names of the words.
        words: all words.
    """

    numbers: Floats
    numbered: tuple[str, ...]
    codes: NDArray[np.int64]
    worded: tuple[str, ...]
    words: Sequence[str]

    @classmethod
    def of(cls, configs: Sequence[Config]) -> Parameters:
        """The parameters of configurations of one family, without the compute, which the problem
        states."""
        first = configs[0].params
        numbered = tuple(name for name, value in first if not isinstance(value, str))
        worded = tuple(name for name, _ in first if name not in (*numbered, "compute"))
        words: dict[str, int] = {}
        numbers = [[v for _, v in config.params if not isinstance(v, str)] for config in configs]
        codes = [
            [words.setdefault(str(v), len(words)) for name, v in config.params if name in worded]
            for config in configs
        ]
        coded, listed = np.array(codes, np.int64), [*words]
        return cls(np.array(numbers, float), numbered, coded, worded, listed)

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Each word that occurs, with its name."""
        return {
            (name, self.words[code])
            for column, name in enumerate(self.worded)
            for code in {*self.codes[:, column].tolist()}
        }

    def logs(self, names: Sequence[str]) -> Floats:
        """Logarithms of the numbers, a column for each name."""
        places = [self.numbered.index(name) for name in names]
        return np.asarray(np.log2(1.0 + self.numbers[:, places]))

    def has(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """A column for each pair: 1 where the configuration has that word, else 0."""
        places = {word: code for code, word in enumerate(self.words)}
        columns = [
            self.codes[:, self.worded.index(name)] == places.get(word, -1) for name, word in pairs
        ]
        return np.array(columns, float).T if columns else np.empty((len(self.numbers), 0))
