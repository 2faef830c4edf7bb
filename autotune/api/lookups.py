"""Look a problem up: its record, or the configuration that would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune import settings
from autotune.errors import NotFoundError
from autotune.problem import Problem, ProblemArguments, ProblemLike, problem_of
from autotune.records import Record, Records, Store, merging
from autotune.runners.base import objective_named
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike, spelled

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.lookup.answer import Answer


def best(
    *problem: ProblemLike | int,
    device: DeviceLike = DEFAULT,
    **arguments: Unpack[ProblemArguments],
) -> Record:
    """The record of a problem on a device, with the best evidence recorded; the record names it.

    Its `best` is the fastest hot, its `best_cold` the fastest with L2 flushed.
    The arguments are those of `tune`.

    Raises:
        NotFoundError: if the problem was never tuned.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    return recorded(problem_of(*problem, **arguments), device)


def recorded(problem: Problem, device: DeviceLike = DEFAULT) -> Record:
    """`best` with its arguments decoded."""
    resolved = targets.resolve(device)
    targets.check_memory(problem, resolved)
    record = Records(Store(settings.cache_dir())).load(resolved, problem)
    if record is None:
        option = "" if device == DEFAULT else f" --device {spelled(device)}"
        raise NotFoundError(
            f"{problem} is not tuned on {resolved.name}; run `autotune tune {problem}{option}`"
        )
    return record


def choose(
    *problem: ProblemLike | int,
    device: DeviceLike = DEFAULT,
    objective: str = "hot",
    **arguments: Unpack[ProblemArguments],
) -> Answer:
    """The configuration that `matmul` runs for a problem, tuned or not: where it comes from and the
    expected loss against full tuning (see `lookup.Answer`).

    With the objective "cold" it is what `matmul(..., cold=True)` runs. The other arguments are
    those of `tune`.

    Raises:
        NotFoundError: if no kernel can run the problem.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    return answered(problem_of(*problem, **arguments), device, objective)


def answered(problem: Problem, device: DeviceLike = DEFAULT, objective: str = "hot") -> Answer:
    """`choose` with its arguments decoded."""
    from autotune.lookup.lookup import lookup

    decides = objective_named(objective)
    resolved = targets.resolve(device)
    targets.check_memory(problem, resolved)
    answer = lookup(problem, resolved, Store(settings.cache_dir()), decides)
    if answer is None:
        raise NotFoundError(f"no kernel can run {problem} on {resolved.name}; give another device")
    return answer


def outdated(result: Record | Answer) -> str | None:
    """The change of this machine since a result's record was measured, such as
    `driver 12.8, now 13.0`; None if nothing has changed, or if there is no record."""
    record = result if isinstance(result, Record) else result.record
    return None if record is None else merging.stale(record, targets.here())
