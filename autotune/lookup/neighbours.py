"""How near recorded problems are, and what the nearest teach about the cost model's errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import numpy as np

from autotune.candidates.legality import current
from autotune.candidates.model_error import ModelError, Sample
from autotune.device import Device, same_model
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Precision, Problem, distance
from autotune.records import Entry, Record
from autotune.runners.base import Evidence, Measurement
from autotune.runners.objective import HOT, Objective


class Neighbour(Protocol):
    """A record, or its digest."""

    @property
    def problem(self) -> Problem: ...

    @property
    def device(self) -> Device: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def baseline(self) -> Measurement | None: ...


N = TypeVar("N", bound=Neighbour)

REACH = 6.0
"""Octaves within which a record is a neighbour."""

# Distances for differences other than size, in octaves.
A_LAYOUT, A_COMPUTE, AN_OUTPUT, AN_EPILOGUE, A_DEVICE = 1.0, 2.0, 0.2, 0.1, 1.0
A_TWIN = 0.1
A_SCALE, SCALED_BLOCKS, AN_ACCUMULATION = 0.1, 1.0, 0.5

DECIMALS = 9
"""Digits of a remoteness, so that records at the same distance tie whatever the rounding."""

TEACHERS = 128
"""Records that the cost model is corrected by, the nearest."""


def remoteness(record: Neighbour, problem: Problem, device: Device) -> float:
    """How far a record is from a problem on a device, in octaves."""
    apart = distance(record.problem, problem)
    return round(sum(_differences(record.problem, record.device, problem, device), apart), DECIMALS)


def _differences(
    recorded: Problem, recorded_on: Device, asked: Problem, device: Device
) -> tuple[float, ...]:
    """How far apart two problems are in octaves by each difference other than size."""
    letters = zip(recorded.layout, asked.layout, strict=True)
    return (
        A_LAYOUT * sum(letter != wanted for letter, wanted in letters),
        _between(recorded.precision, asked.precision),
        _eight_bit(recorded, asked),
        AN_OUTPUT * _outputs_differ(recorded, asked),
        AN_EPILOGUE * (recorded.epilogue != asked.epilogue),
        A_DEVICE * (not same_model(recorded_on, device)),
    )


def _between(recorded: Precision, asked: Precision) -> float:
    """How far two precisions are apart, in octaves."""
    if recorded is asked:
        return 0.0
    return A_TWIN if recorded.name == asked.twin else A_COMPUTE


def _eight_bit(recorded: Problem, asked: Problem) -> float:
    """How far scales and accumulation are apart, in octaves: scales of blocks and promoted sums
    change the main loop, other scales the epilogue."""
    blocks = (recorded.scale == "block") != (asked.scale == "block")
    return (
        SCALED_BLOCKS * blocks
        + A_SCALE * (recorded.scale != asked.scale)
        + AN_ACCUMULATION * (recorded.accumulate != asked.accumulate)
    )


def by_remoteness(problem: Problem, device: Device, records: Iterable[N]) -> list[N]:
    """The measured and replayed records, the nearest first."""
    return [record for _, record in Pool(records).by_remoteness(problem, device)]


class Pool(Generic[N]):
    """Measured and replayed records, with what tells how near they are to any problem.

    Most records differ from others in their sizes alone; other differences are looked at once.
    """

    def __init__(self, records: Iterable[N]) -> None:
        usable = (record for record in records if record.evidence != "predicted")
        self._records = sorted(usable, key=lambda record: record.problem)
        kinds: dict[object, tuple[int, N]] = {}
        self._kinds = [
            kinds.setdefault(_kind(record), (len(kinds), record))[0] for record in self._records
        ]
        self._examples = [record for _, record in kinds.values()]
        self._sizes = np.array([_sizes(record.problem) for record in self._records], float)

    def by_remoteness(self, problem: Problem, device: Device) -> list[tuple[float, N]]:
        """The records, the nearest first, each behind its remoteness in octaves."""
        if not self._records:
            return []
        kinds = ((example.problem, example.device) for example in self._examples)
        differences = np.array([sum(_differences(*kind, problem, device)) for kind in kinds])
        octaves = np.log2(self._sizes / _sizes(problem))
        apart = np.round(np.sqrt(np.square(octaves).sum(1)) + differences[self._kinds], DECIMALS)
        ranked = zip(apart.tolist(), self._records, strict=True)
        return sorted(ranked, key=itemgetter(0))  # of equals the first problem


def _sizes(problem: Problem) -> tuple[int, int, int, int]:
    return problem.m, problem.n, problem.k, problem.batch


def _kind(record: Neighbour) -> tuple[object, ...]:
    """Equal for records that differ in nothing but the sizes of their problems."""
    sizes = ("m", "n", "k", "batch")
    values = (value for name, value in vars(record.problem).items() if name not in sizes)
    return *values, record.device


def learn_errors(
    problem: Problem, device: Device, records: Sequence[Record], objective: Objective = HOT
) -> ModelError:
    """The cost model's errors on the nearest records, from which those on the problem follow.

    The model predicts hot times; with the objective "cold" the errors lead to cold ones.
    """
    return ModelError(
        [
            Sample(entry.config, entry.resources, estimate.time_us, record.problem, record.device)
            for record in by_remoteness(problem, device, records)[:TEACHERS]
            for entry in _current_entries(record)
            if (estimate := entry.measurement.estimate(objective)) is not None
        ],
        device,
    )


def _outputs_differ(recorded: Problem, problem: Problem) -> bool:
    return recorded.output_type != problem.output_type and recorded.output != problem.output


def _current_entries(record: Record) -> list[Entry]:
    """The entries whose parameters are those that their families have today."""
    configs = [entry.config for entry in record.entries]
    usable: set[Config] = set()
    for family in {config.family for config in configs} & registry.FAMILIES.keys():
        usable.update(current(family, configs, record.problem, record.device))
    return [entry for entry in record.entries if entry.config in usable]
