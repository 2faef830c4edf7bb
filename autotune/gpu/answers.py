"""Answers of worker processes, and what stands in for those that do not come."""

from __future__ import annotations

from autotune.errors import RunnerError
from autotune.gpu.process import RestartingWorker
from autotune.runners.base import Failure


def request_from(
    worker: RestartingWorker,
    rival: RestartingWorker | None,
    method: str,
    arguments: tuple[object, ...],
    limit: float,
) -> object:
    """The answer of a worker; if it cannot start, its rival for the GPU ends and it tries again."""
    try:
        return worker.request(method, arguments, limit)
    except RunnerError:
        if rival is None or rival.ended:
            raise
        rival.stop()
        return worker.request(method, arguments, limit)


def unexpected(answer: object) -> Failure:
    """The failure of a candidate whose worker gave another answer than it has to."""
    return Failure("crash", reason_of(answer))


def reason_of(answer: object) -> str:
    """Why an answer is none."""
    if isinstance(answer, Failure):
        return answer.reason
    return f"the worker answered {answer!r}, neither a measurement nor a failure"
