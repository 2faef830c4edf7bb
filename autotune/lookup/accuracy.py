"""The error that a look-up's or a race's configurations may have."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.candidates.accuracy import AccuracyFilter
from autotune.device import Device, same_model
from autotune.families.shared.accuracy import (
    ErrorLimit,
    measured_limit,
    possible_limit,
    promised_limit,
)
from autotune.lookup.neighbours import Neighbour
from autotune.problem import Problem


def accuracy_filter(
    problem: Problem, device: Device, records: Iterable[Neighbour], *, verified: bool = False
) -> AccuracyFilter:
    """Judges configurations by the vendor's error where a record has it, else by its bounds.

    Look-ups run kernels that nothing has verified: these have to keep the accuracy bound however
    accurate the vendor's library is. A race is `verified`: only kernels that cannot keep it are
    refused.
    """
    return AccuracyFilter(problem, error_limit(problem, device, records, verified=verified))


def error_limit(
    problem: Problem, device: Device, records: Iterable[Neighbour], *, verified: bool = False
) -> ErrorLimit:
    """The limit of the predicted error, as far as the records tell the vendor's error."""
    for record in records:
        error = record.baseline.relative_error if record.baseline else None
        if error is not None and _same_sums(record, problem) and same_model(record.device, device):
            return measured_limit(problem, error)
    return (possible_limit if verified else promised_limit)(problem, device)


def _same_sums(record: Neighbour, problem: Problem) -> bool:
    """Whether the vendor's library adds up the same products: whatever follows, and in `tf32x3`
    what it does in `f32`."""

    if (record.problem.m, record.problem.n, record.problem.k) != (problem.m, problem.n, problem.k):
        return False

    def products(posed: Problem) -> tuple[object, ...]:
        sizes = posed.m, posed.n, posed.k, posed.batch
        return *sizes, posed.layout, posed.precision.vendor, posed.output_type

    return products(record.problem) == products(problem)
