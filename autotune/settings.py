"""Directories and programs of this machine. Only this module reads environment variables."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import CacheError, FrozenError, MissingError, UsageError

MODES = ("auto", "quick", "frozen")
MISSING = ("vendor", "raise")
SESSIONS = ("pycuda", "bindings")


@dataclass(frozen=True)
class Mode:
    """The answer to a call without a record.

    Attributes:
        name: `auto`; `quick`, which tunes a new shape for a moment first; or `frozen`: nothing is
            tuned, guessed, compiled or written.
        missing: in the frozen mode, whether a product without a record goes to the `vendor`'s
            library, or is to `raise` an error.

    Raises:
        UsageError: for other words.
    """

    name: str = "auto"
    missing: str = "vendor"

    def __post_init__(self) -> None:
        if self.name not in MODES or self.missing not in MISSING:
            raise UsageError(
                f"mode is {self.name}:{self.missing}; give auto, quick, frozen (products without "
                "a record go to cuBLAS) or frozen:raise"
            )

    @property
    def quick(self) -> bool:
        """Whether a product without a record is raced first."""
        return self.name == "quick"

    @property
    def frozen(self) -> bool:
        """Whether nothing may be tuned, guessed, compiled or written."""
        return self.name == "frozen"


# Modes that the program has entered. They hold for all threads: autograd runs in its own.
_ENTERED: list[Mode] = []


def mode() -> Mode:
    """The mode that the program has entered last, else that of `AUTOTUNE_MODE`: `auto`, `quick`,
    `frozen` or `frozen:raise`. `AUTOTUNE_TUNE=quick` is the mode `quick` too.

    Raises:
        UsageError: for another text.
    """
    if _ENTERED:
        return _ENTERED[-1]
    name, _, missing = os.environ.get("AUTOTUNE_MODE", "").partition(":")
    return Mode(name or os.environ.get("AUTOTUNE_TUNE") or "auto", missing or "vendor")


@contextmanager
def entered(mode: Mode) -> Iterator[None]:
    """Sets the mode of the process within a `with` block."""
    _ENTERED.append(mode)
    try:
        yield
    finally:
        _ENTERED.remove(mode)


def refuse_frozen(action: str) -> None:
    """Refuses an action in the frozen mode.

    Raises:
        FrozenError: with the action.
    """
    if mode().frozen:
        raise FrozenError(f"{action}: the mode is frozen; unset AUTOTUNE_MODE or leave frozen()")


def cache_dir() -> Path:
    """The cache directory, of records and compiled programs; it may not exist yet.

    `AUTOTUNE_CACHE_DIR`, else the user's cache directory (`$XDG_CACHE_HOME/autotune` on Linux).
    """
    chosen = os.environ.get("AUTOTUNE_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("autotune", appauthor=False)


def spare_dirs() -> list[Path]:
    """Directories for temporary files, the most lasting first: what does not fit into the cache may
    fit there."""
    named = (os.environ.get("TMPDIR"), os.environ.get("XDG_RUNTIME_DIR"))
    places = (Path(place) for place in ("/var/tmp", *named, "/tmp", "/dev/shm") if place)
    return [*dict.fromkeys(place for place in places if place.is_absolute() and place.is_dir())]


def shipped_dir() -> Path:
    """The directory of the shipped records.

    `AUTOTUNE_SHIPPED_DIR` names another one, for a site that ships its own records or none.
    """
    chosen = os.environ.get("AUTOTUNE_SHIPPED_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(__file__).resolve().parent / "data" / "shipped"


def programs_dir() -> Path:
    """The directory of the programs that came with the package; `AUTOTUNE_PROGRAMS_DIR` names
    another one."""
    chosen = os.environ.get("AUTOTUNE_PROGRAMS_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(__file__).resolve().parent / "data" / "programs"


def wisdom_dirs() -> list[Path]:
    """Directories of a site's records, in `AUTOTUNE_WISDOM_DIR` with the separator of PATH.

    Look-ups read them after the user's records and before the shipped ones, the first of them
    first.
    """
    places = os.environ.get("AUTOTUNE_WISDOM_DIR", "").split(os.pathsep)
    return [Path(place).expanduser().absolute() for place in places if place]


def source_dir() -> Path:
    """The directory of the CUDA sources: inside the package in a wheel, else beside it.

    Raises:
        MissingError: if the installation has neither.
    """
    package = Path(__file__).resolve().parent
    places = (package / "_cuda_src", package.parent / "cuda_src")
    for place in places:
        if place.is_dir():
            return place
    raise MissingError(
        f"no CUDA sources in {places[0]} or {places[1]}; run `pip install --force-reinstall "
        "tile-autotune`"
    )


def nvcc() -> Path | None:
    """The CUDA compiler from PATH, `CUDA_HOME` or `/usr/local/cuda`; None if there is none."""
    homes = (os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    places = [os.environ.get("PATH", ""), *(f"{home}/bin" for home in homes if home)]
    program = shutil.which("nvcc", path=os.pathsep.join(places))
    return Path(program) if program else None


def session() -> str | None:
    """The library that a tuning session calls the driver through, `pycuda` or `bindings`: that of
    `AUTOTUNE_SESSION`; None if it is not set.

    Raises:
        UsageError: for another text.
    """
    name = os.environ.get("AUTOTUNE_SESSION") or None
    if name is not None and name not in SESSIONS:
        raise UsageError(f"AUTOTUNE_SESSION is {name}; give {' or '.join(SESSIONS)}, or unset it")
    return name


def nvrtc() -> int | None:
    """The major version of NVRTC that `AUTOTUNE_NVRTC` asks for, 12 or 13; None if it is not set.

    Raises:
        UsageError: for another text.
    """
    text = os.environ.get("AUTOTUNE_NVRTC") or None
    if text is not None and text not in ("12", "13"):
        raise UsageError(f"AUTOTUNE_NVRTC is {text}; give 12 or 13, or unset it")
    return int(text) if text else None


def native() -> bool:
    """Whether warm calls may run in machine code: unless `AUTOTUNE_NATIVE=0`."""
    return os.environ.get("AUTOTUNE_NATIVE") != "0"


def cupy_tf32() -> bool:
    """Whether CuPy multiplies fp32 matrices in TF32 (its variable `CUPY_TF32`)."""
    return os.environ.get("CUPY_TF32", "0") not in ("", "0")


def ensure(directory: Path) -> Path:
    """Creates a directory of the cache and its parents.

    The umask decides who else has access. In a home it is this user only (0700); but what is made
    in a directory that a group may write is the group's too.

    Raises:
        CacheError: if it cannot be created, is no directory, or cannot be written to.
    """
    try:
        if not directory.parent.exists():
            ensure(directory.parent)
        directory.mkdir(mode=0o700 if _is_of_a_home(directory) else 0o777, exist_ok=True)
    except OSError as error:
        raise unwritable(directory, error) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise CacheError(_message(directory, "not writable"))
    return directory


def _is_of_a_home(directory: Path) -> bool:
    """Whether a new directory lies in this user's home, outside what is shared with a group."""
    try:
        inside = directory.absolute().is_relative_to(Path.home())
    except RuntimeError:  # no home is known
        return True
    return inside and not directory.parent.stat().st_mode & stat.S_IWGRP


def unwritable(directory: Path, error: OSError) -> CacheError:
    """The error to raise when writing below a directory of the cache failed with `error`."""
    blocked = isinstance(error, FileExistsError | NotADirectoryError)
    return CacheError(
        _message(directory, "not a directory" if blocked else error.strerror or error)
    )


def _message(directory: Path, reason: object) -> str:
    return (
        f"cannot write to the cache {directory}: {reason}; "
        "set AUTOTUNE_CACHE_DIR to a directory that you can write to"
    )
