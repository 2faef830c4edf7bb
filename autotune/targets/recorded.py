"""Recordings as devices: shipped ones by name, the user's own by path."""

from __future__ import annotations

from autotune.device import Device
from autotune.problem import Problem
from autotune.runners import recording
from autotune.runners.recording import Recording
from autotune.targets.sources import Replayed, ReplayedFile


def device_of(source: Replayed) -> Device:
    """The device that was recorded.

    Raises:
        NotFoundError: if there is no such recording.
        AutotuneError: if its file is broken.
    """
    if isinstance(source, ReplayedFile):
        return recording.device_in(source.path)
    first, *_ = recording.names().get(source.name, (Problem(1, 1, 1),))
    return recording.find(source.name, first).device


def recording_of(problem: Problem, source: Replayed) -> Recording:
    """The recording of a problem.

    Raises:
        NotFoundError: if there is none.
        AutotuneError: if its file is broken.
    """
    if isinstance(source, ReplayedFile):
        return recording.find_in(source.path, problem)
    return recording.find(source.name, problem)
