"""What the model of the times failed to foresee, for the stop rule."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from autotune.candidates.gaussian_process import Floats

# Proposals whose surprises count.
RECENT = 25
# Times up to this logarithm over the best are near it: there the model has to be right.
NEAR = 0.15
# The share of its errors that the model may yet be surprised by. Chosen with the bound of the stop
# rule on recorded and computed spaces; docs/search.md has what it gives.
SHARE = 0.1


class Foresight:
    """Holds the predicted times of proposals against the results."""

    def __init__(self) -> None:
        self._foreseen: dict[int, float] = {}
        # By how much recent proposals were faster than predicted, and their times as logarithms.
        self._surprises: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def propose(self, index: int, log: float) -> None:
        """A configuration is proposed; the logarithm of its time is predicted."""
        self._foreseen[index] = log

    def learn(self, index: int, log: float) -> None:
        """The logarithm of a configuration's time is measured; infinite for a failure."""
        foreseen = self._foreseen.pop(index, None)
        if foreseen is not None and log < math.inf:
            self._surprises.append((max(0.0, foreseen - log), log))

    def doubt(self, best: float, logs: Floats, errors: Floats) -> float:
        """The share by which what is left may beat the best time although the model denies it.

        A tenth of the errors near the best: those of recent proposals that were faster than
        predicted, and those of predicting each result from all others.

        Args:
            best: the logarithm of the best time.
            logs: those of all times, NaN or infinite where there is none.
            errors: of predicting each of them from the others.
        """
        surprises = [surprise for surprise, log in self._surprises if log < best + NEAR]
        return SHARE * (_size(np.array(surprises)) + _size(errors[logs < best + NEAR]))


def _size(errors: Floats) -> float:
    return math.sqrt(float(np.square(errors).mean())) if len(errors) else 0.0
