"""The exceptions of the package.

Every message is one line that says what was wrong, with the numbers, and what to do about it.
`exit_status` is what the command line returns for the error: 1 failed, 2 usage, 3 nothing found.
"""


class AutotuneError(Exception):
    """Base of every error that the package raises on purpose."""

    exit_status = 1


class UsageError(AutotuneError, ValueError):
    """The caller asked for something malformed, unknown or impossible."""

    exit_status = 2


class ProblemError(UsageError):
    """A shape, precision or layout that is malformed or too large."""


class ConfigError(UsageError):
    """A configuration text that is malformed or names unknown parameters."""


class DeviceError(UsageError):
    """An unknown device, or a device description that is malformed."""


class ArrayError(UsageError):
    """An array that a kernel cannot take: shape, type, strides or place."""


class MissingError(AutotuneError):
    """Something that has to be installed is not: the driver, PyCUDA, NVRTC."""


class CacheError(AutotuneError):
    """The cache cannot be written: read-only, full, or not ours."""


class RunnerError(AutotuneError):
    """The measuring side failed as a whole, not for one candidate."""


class NotFoundError(AutotuneError):
    """Nothing is recorded for what was asked."""

    exit_status = 3
