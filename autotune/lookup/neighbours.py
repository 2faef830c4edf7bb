"""How near recorded problems are, and what the nearest teach: the cost model's errors, and the
accuracy of the vendor's library."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.device import Device, same_model
from autotune.families.shared.accuracy import measured_limit, possible_limit, promised_limit
from autotune.lookup.digest import RecordDigest, samples
from autotune.model.model_error import ModelError
from autotune.model.space import AccuracyFilter
from autotune.problem import Precision, Problem
from autotune.records import Record
from autotune.runners.objective import HOT, Objective

Neighbour = Record | RecordDigest

REACH = 6.0
"""Octaves within which a record is a neighbour."""

# Distances for differences other than size, in octaves.
A_LAYOUT, A_COMPUTE, AN_OUTPUT, AN_EPILOGUE, A_DEVICE = 1.0, 2.0, 0.2, 0.1, 1.0
A_TWIN = 0.1
A_SCALE, SCALED_BLOCKS, AN_ACCUMULATION = 0.1, 1.0, 0.5

DECIMALS = 9
"""Digits of a remoteness, so that records at the same distance tie whatever the rounding."""

TEACHERS = 128
"""Records that choices learn from, the nearest."""


def differences(
    recorded: Problem, recorded_on: Device, asked: Problem, device: Device
) -> tuple[float, ...]:
    """How far apart two problems are in octaves by each difference other than size."""
    letters = zip(recorded.layout, asked.layout, strict=True)
    outputs_differ = recorded.output_type != asked.output_type and recorded.output != asked.output
    return (
        A_LAYOUT * sum(letter != wanted for letter, wanted in letters),
        _between(recorded.precision, asked.precision),
        _eight_bit(recorded, asked),
        AN_OUTPUT * outputs_differ,
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


def learn_errors(
    device: Device, records: Iterable[Record], objective: Objective = HOT
) -> ModelError:
    """The cost model's errors on a few records, from which those on problems near them follow.

    The model predicts hot times; with the objective "cold" the errors lead to cold ones.
    """
    usable = (record for record in records if record.evidence != "predicted")
    return ModelError(device, samples([*map(RecordDigest.of, usable)], objective))


def accuracy_filter(
    problem: Problem, device: Device, records: Iterable[Neighbour], *, verified: bool = False
) -> AccuracyFilter:
    """Judges configurations by the vendor's error where a record has it, else by its bounds.

    Look-ups run kernels that nothing has verified: these have to keep the accuracy bound however
    accurate the vendor's library is. A race is `verified`: only kernels that cannot keep it are
    refused.
    """
    for record in records:
        error = record.baseline.relative_error if record.baseline else None
        if error is not None and _same_sums(record, problem) and same_model(record.device, device):
            return AccuracyFilter(problem, measured_limit(problem, error))
    limit = possible_limit if verified else promised_limit
    return AccuracyFilter(problem, limit(problem, device))


def _same_sums(record: Neighbour, problem: Problem) -> bool:
    """Whether the vendor's library adds up the same products: whatever follows, and in `tf32x3`
    what it does in `f32`."""
    if (record.problem.m, record.problem.n, record.problem.k) != (problem.m, problem.n, problem.k):
        return False

    def products(posed: Problem) -> tuple[object, ...]:
        return posed.batch, posed.layout, posed.precision.vendor, posed.output_type

    return products(record.problem) == products(problem)
