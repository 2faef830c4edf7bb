"""Values of environment variables, checked. Only `settings`, and this module for it, reads them."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path

from autotune.errors import UsageError


def word(name: str, *words: str) -> str | None:
    """The value of a variable that is one of some words; None if it is not set.

    Raises:
        UsageError: for another value.
    """
    text = os.environ.get(name) or None
    if text is not None and text not in words:
        raise UsageError(f"{name} is {text}; give {' or '.join(words)}, or unset it")
    return text


def path(name: str) -> Path | None:
    """The path that a variable holds; None if it is not set or empty.

    Raises:
        UsageError: if it is below a home or a working directory that does not exist.
    """
    text = os.environ.get(name)
    return _absolute(name, text) if text else None


def directory(name: str) -> Path | None:
    """The directory that a variable names, which need not exist; None if it is not set.

    Raises:
        UsageError: as `path`, and if it is a file.
    """
    place = path(name)
    with suppress(OSError):
        if place and not stat.S_ISDIR(place.stat().st_mode):
            raise UsageError(f"{name} is {place}, not a directory; give a directory, or unset it")
    return place


def directories(name: str) -> list[Path]:
    """The directories in a variable, with the separator of PATH; they need not exist.

    Raises:
        UsageError: as `path`.
    """
    return [_absolute(name, text) for text in os.environ.get(name, "").split(os.pathsep) if text]


def require_directories(name: str) -> None:
    """Refuses a variable that names a directory that cannot be read.

    Raises:
        UsageError: with the first.
    """
    for path in directories(name):
        if not os.access(f"{path}/.", os.R_OK):
            raise UsageError(f"{name} names {path}, which is not a readable folder; correct it")


def misspelt(names: Collection[str]) -> list[str]:
    """A line for each variable that has the package's prefix and is none of these."""
    from difflib import get_close_matches

    unknown = sorted(name for name in os.environ.keys() - {*names} if name.startswith("AUTOTUNE_"))
    near = {name: get_close_matches(name, names, 1, 0.8) for name in unknown}
    return [
        f"{name} is not a variable of autotune" + (f"; did you mean {close[0]}?" if close else "")
        for name, close in near.items()
    ]


def home() -> Path | None:
    """The user's home; None if neither `HOME` nor the system's list of users tells."""
    with suppress(RuntimeError):
        return Path.home()
    return None


@cache
def warn_once(message: str) -> None:
    """Warns once in a process; the filter of warnings forgets what it has shown."""
    warnings.warn(message, stacklevel=1)


def _absolute(name: str, text: str) -> Path:
    """A path that means the same wherever the process, or a child of it, works."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{name} is {text!r}, a home that nobody has; correct it") from error
    except FileNotFoundError as error:
        raise UsageError(
            f"{name} is {text!r}, and the working directory is gone; give an absolute path"
        ) from error
