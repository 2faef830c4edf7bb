"""The look-up that keeps to one order of summation: a row's bits do not depend on its batch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace

from autotune import settings
from autotune.device import Device
from autotune.errors import FrozenError, NotFoundError
from autotune.families.config import Config
from autotune.lookup.answer import Answer, best_legal, expected_loss, recorded_objective
from autotune.measure.objective import HOT, Objective
from autotune.model import cost
from autotune.model.legality import Legality, as_tuned
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.problem.arguments import sized
from autotune.records import FamilyRecord, Records
from autotune.records.ranges import Range, path_of
from autotune.records.record import BEST_FIRST


def batch_invariant(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT
) -> Answer | None:
    """The answer of the batch-invariant ranges of the problem's N, K, precision and layout.

    For an M outside them it is the configuration of the nearest tuned M, or the cost model's choice
    in the same order, which the frozen mode does not guess. An epilogue or another output does not
    change the order, so that ranges of the plain product serve them too. The vendor's library is
    never answered.
    """
    ranges = _serving(problem, device, records)
    if not ranges:
        return None
    order = ranges[0].order or ""

    def rank(tuned: Range) -> tuple[object, ...]:
        octaves = math.log2(max(1.0, tuned.low / problem.m, problem.m / tuned.high))
        ahead = BEST_FIRST.index(tuned.evidence), tuned.objective != objective
        return *ahead, octaves, -len(tuned.points)

    ranked = sorted((tuned for tuned in ranges if tuned.order == order), key=rank)
    answers = (_recorded(tuned, problem, device, records, objective) for tuned in ranked)
    answer = next((answer for answer in answers if answer is not None), None)
    if answer is None and not settings.mode().frozen:
        return _predicted(ranked[0], problem, device, objective)
    return answer


def required(
    problem: Problem, device: Device, records: Records, objective: Objective = HOT, option: str = ""
) -> Answer:
    """The answer of `batch_invariant`; `option` ends the command in the error, such as ` --device
    h100`.

    Raises:
        NotFoundError: if no range serves the problem, with the command that tunes one; if no kernel
            of the recorded order does, with the command that forgets it. A `FrozenError` in the
            frozen mode for what only the cost model could answer.
    """
    answer = batch_invariant(problem, device, records, objective)
    if answer is not None:
        return answer
    if not (ranges := _serving(problem, device, records)):
        raise NotFoundError(
            f"no batch-invariant range serves {problem} on {device.name}; "
            f"`{range_command(problem, option=option)}` makes it"
        )
    if settings.mode().frozen:
        raise FrozenError(
            f"no record of {ranges[0]} serves {problem} on {device.name}, and the mode is frozen; "
            f"`{range_command(problem, ranges[0], option)}` where tuning is allowed"
        )
    raise NotFoundError(outside_order(problem, device, records, option))


def outside_order(problem: Problem, device: Device, records: Records, option: str = "") -> str:
    """Why no kernel of the recorded order runs a problem, with the commands that forget the order
    and tune another; `option` ends the last, such as ` --device h100`."""
    ranges = _serving(problem, device, records)
    paths = (path_of(records.store.root, tuned) for tuned in ranges)
    most = max(problem.m, *(tuned.high for tuned in ranges))
    shape = str(replace(ranges[0].problem, m=problem.m)).partition("x")[2]
    return (
        f"no kernel of {ranges[0].order}, the order of summation of {ranges[0]}, can run {problem} "
        f"on {device.name}; `{shlex.join(['rm', *map(str, paths)])}` forgets the order, then "
        f"`autotune tune {problem.m}..{most}x{shape} --batch-invariant{option}` finds another"
    )


def range_command(problem: Problem, tuned: Range | None = None, option: str = "") -> str:
    """The command that tunes a batch-invariant range, by default one that serves a problem.

    Args:
        problem: the problem.
        tuned: the range.
        option: the end of the command, such as ` --device h100`.
    """
    most = max(problem.m, 8192)
    shape = str(replace(problem, epilogue="none")).partition("x")[2]
    return f"autotune tune {tuned or f'1..{most}x{shape}'} --batch-invariant{option}"


def range_of(record: FamilyRecord, records: Records) -> Range | None:
    """The batch-invariant range that a record is a point of."""
    ranges = records.invariant_ranges(record.device)
    own = (
        tuned for tuned in ranges if tuned.order == record.order and record.problem in tuned.points
    )
    return next(own, None)


def order_recorded(problem: Problem, device: Device, records: Records) -> str | None:
    """The order of summation of the ranges that serve a problem; None if there are none."""
    ranges = _serving(problem, device, records)
    return ranges[0].order if ranges else None


def ordered_by_time(problem: Problem, device: Device, order: str) -> list[tuple[float, Config]]:
    """Predicted microseconds and configurations of an order, the fastest first."""
    return cost.rank(sample(problem, device, order=order), problem, device)


def _serving(problem: Problem, device: Device, records: Records) -> list[Range]:
    """The batch-invariant ranges whose kernels serve a problem, whatever its M; those of its own
    epilogue and output first."""
    wanted = [sized(problem, "m", 1), _plain(problem)]
    ranges = records.invariant_ranges(device)
    own = [tuned for tuned in ranges if sized(tuned.problem, "m", 1) == wanted[0]]
    return own or [tuned for tuned in ranges if _plain(tuned.problem) == wanted[1]]


def _plain(problem: Problem) -> Problem:
    return replace(problem, m=1, epilogue="none", output="same")


def _points(tuned: Range, problem: Problem) -> Iterator[Problem]:
    """The tuned problems of a range, that of the problem's segment first, then the nearest."""
    inside = min(max(problem.m, tuned.low), tuned.high)
    first = tuned.point(sized(tuned.problem, "m", inside))
    rest = sorted(tuned.points, key=lambda point: abs(math.log2(point.m / problem.m)))
    yield from dict.fromkeys((*([first] if first else []), *rest))


def _recorded(
    tuned: Range, problem: Problem, device: Device, records: Records, objective: Objective
) -> Answer | None:
    """The answer of a recorded configuration of the range's order; None if none is legal."""
    for point in _points(tuned, problem):
        record = records.store.ordered(device, point, tuned.order or "")
        if record is None:
            continue
        decides = recorded_objective(record, objective)
        legal = Legality(problem, as_tuned(device, record.device), tuned.order or "")
        entry = best_legal(record, problem, device, decides, legal=legal)
        if entry is None:
            continue
        own, estimate = point == problem, decides.estimate(entry.measurement)
        return Answer(
            problem=problem,
            device=device,
            config=entry.config,
            how="range",
            evidence=record.evidence if own else "predicted",
            record=record,
            time_us=estimate.time_us if own and estimate else None,
            expected_loss=0.0 if own else None,
            note=f"{problem} on {device.name}: as {point.shape}, in the order of {tuned}",
            objective=decides,
        )
    return None


def _predicted(
    tuned: Range, problem: Problem, device: Device, objective: Objective
) -> Answer | None:
    """The cost model's choice in the order; None if no configuration has it."""
    ranked = ordered_by_time(problem, device, tuned.order or "")
    if not ranked or not math.isfinite(ranked[0][0]):
        return None
    time_us, config = ranked[0]
    return Answer(
        problem=problem,
        device=device,
        config=config,
        how="range",
        evidence="predicted",
        record=None,
        time_us=time_us,
        note=f"{problem} on {device.name}: the model's choice in the order of {tuned}",
        expected_loss=expected_loss("model", 0.0),
        objective=objective.time,
    )
