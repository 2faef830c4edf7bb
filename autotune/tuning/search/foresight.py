"""The errors of the model of the times, for the stop rule."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from autotune.candidates.gaussian_process import Floats

# Proposals whose surprises count.
RECENT = 25
# Times up to this logarithm over the best are near it: there the model has to be right.
NEAR = 0.15
# The share of its errors that the model may yet be surprised by, and the results without a gain
# after which half of that is believed. Chosen with the bound of the stop rule on recorded and
# computed spaces; docs/search.md has what they give.
SHARE, CALM = 0.2, 40
# The least gain that counts, as a share of the time: less is within the noise of a trial.
GAIN = 0.005


class Foresight:
    """Holds the predicted times of proposals against the results."""

    def __init__(self) -> None:
        self._foreseen: dict[int, float] = {}
        # By how much recent proposals were faster than predicted, and their times as logarithms.
        self._surprises: deque[tuple[float, float]] = deque(maxlen=RECENT)
        # The logarithm of the best time, and the number of results since it fell by a gain.
        self._best, self._calm = math.inf, 0

    def propose(self, index: int, log: float) -> None:
        """A configuration is proposed; the logarithm of its time is predicted."""
        self._foreseen[index] = log

    def learn(self, index: int, log: float) -> None:
        """The logarithm of a configuration's time is measured; infinite for a failure."""
        self._calm = 0 if log < self._best - GAIN else self._calm + 1
        self._best = min(self._best, log)
        foreseen = self._foreseen.pop(index, None)
        if foreseen is not None and log < math.inf:
            self._surprises.append((max(0.0, foreseen - log), log))

    def doubt(self, best: float, logs: Floats, errors: Floats) -> float:
        """The share by which what is left may beat the best time although the model denies it.

        A part of the errors near the best: those of recent proposals that were faster than
        predicted, and those of predicting each result from all others. It shrinks with each result
        that brings no gain, since errors that were going to help would have.

        Args:
            best: the logarithm of the best time.
            logs: those of all times, NaN or infinite where there is none.
            errors: of predicting each of them from the others.
        """
        surprises = [surprise for surprise, log in self._surprises if log < best + NEAR]
        size = _size(np.array(surprises)) + _size(errors[logs < best + NEAR])
        return SHARE * size * CALM / (CALM + self._calm)


def _size(errors: Floats) -> float:
    return math.sqrt(float(np.square(errors).mean())) if len(errors) else 0.0
