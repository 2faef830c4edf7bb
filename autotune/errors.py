"""The exceptions of the package.

Every message is one line that says what was wrong, with numbers, and what to do about it.
`exit_status` is what the command line returns for the error: 1 failed, 2 usage, 3 nothing found.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    Word = TypeVar("Word", bound=str)


class AutotuneError(Exception):
    """Base of every error that the package raises on purpose."""

    exit_status = 1


class UsageError(AutotuneError, ValueError):
    """The caller asked for something malformed, unknown or impossible."""

    exit_status = 2


class ProblemError(UsageError):
    """A malformed or too large shape, precision or layout."""


class ConfigError(UsageError):
    """A configuration text that is malformed or names unknown parameters."""


class DeviceError(UsageError):
    """An unknown device, or a malformed device description."""


class ArrayError(UsageError):
    """An array that a kernel cannot take: its shape, type, strides or device."""


class MissingError(AutotuneError):
    """A missing installation: the driver, PyCUDA, NVRTC."""


class CacheError(AutotuneError):
    """A cache that cannot be written: read-only, full, or owned by another user."""


class UnsavedError(CacheError):
    """Results of a tuning run that could not be written where they belong.

    Attributes:
        record: the `TuningRecord`, if it is in no file at all; else None.
        trials: each `Trial` that was measured and is in no file at all.
    """

    def __init__(self, message: str, *, record: Any = None, trials: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.record, self.trials = record, trials


class RunnerError(AutotuneError):
    """The runner failed as a whole, not for one candidate."""


class BudgetError(AutotuneError):
    """The time limit was over before anything was timed."""


class VerificationError(AutotuneError):
    """A recorded kernel computed a wrong result in the check that its user asked for."""


class NotFoundError(AutotuneError):
    """No record, recording or kernel exists for the request."""

    exit_status = 3


class FrozenError(NotFoundError):
    """The frozen mode forbids the search, the guess or the compilation that a call needs."""


def require_list(name: str, values: object) -> None:
    """Refuses a single value in place of a list; a text would be read letter by letter.

    Raises:
        UsageError: if the values are a text, or no series of values.
    """
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise UsageError(f"{name} is {values!r}; give a list: [{values!r}]")


def one_of(kind: str, name: object, among: Sequence[Word]) -> Word:
    """The member of `among` that equals a name.

    Raises:
        UsageError: if there is none.
    """
    for word in among:
        if name == word:
            return word
    raise UsageError(f"unknown {kind} {name!r}; give one of {', '.join(among)}")
