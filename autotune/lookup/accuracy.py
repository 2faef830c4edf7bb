"""The error that a look-up's configurations may have: nothing verified them on the problem."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.candidates.accuracy import AccuracyFilter
from autotune.device import Device, same_model
from autotune.families.shared.accuracy import ErrorLimit, measured_limit, promised_limit
from autotune.lookup.neighbours import Neighbour
from autotune.problem import Problem


def accuracy_filter(
    problem: Problem, device: Device, records: Iterable[Neighbour]
) -> AccuracyFilter:
    """Judges configurations by the vendor's error where a record has it, else cautiously."""
    return AccuracyFilter(problem, error_limit(problem, device, records))


def error_limit(problem: Problem, device: Device, records: Iterable[Neighbour]) -> ErrorLimit:
    """The limit that keeps the promised bound, as far as the records tell the vendor's error."""
    for record in records:
        error = record.baseline.relative_error if record.baseline else None
        if error is not None and _same_sums(record, problem) and same_model(record.device, device):
            return measured_limit(problem, error)
    return promised_limit(problem, device)


def _same_sums(record: Neighbour, problem: Problem) -> bool:
    """Whether the vendor's library adds up the same products: whatever follows, and in `tf32x3`
    what it does in `f32`."""

    if (record.problem.m, record.problem.n, record.problem.k) != (problem.m, problem.n, problem.k):
        return False

    def products(posed: Problem) -> tuple[object, ...]:
        sizes = posed.m, posed.n, posed.k, posed.batch
        return *sizes, posed.layout, posed.precision.vendor, posed.output_type

    return products(record.problem) == products(problem)
