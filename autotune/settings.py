"""Directories and programs of this machine; `VARIABLES` lists the environment variables of the
package."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from autotune.errors import AutotuneError, CacheError, FrozenError, MissingError, UsageError


def _word(name: str, *words: str) -> str | None:
    """The value of a variable that is one of some words; None if it is not set."""
    text = os.environ.get(name) or None
    if text is not None and text not in words:
        raise UsageError(f"{name} is {text}; give {' or '.join(words)}, or unset it")
    return text


def _path(name: str) -> Path | None:
    """The path that a variable holds; None if it is not set or empty."""
    text = os.environ.get(name)
    return _absolute(name, text) if text else None


def _directory(name: str) -> Path | None:
    """The directory that a variable names, which need not exist; None if it is not set."""
    place = _path(name)
    with suppress(OSError):
        if place and not stat.S_ISDIR(place.stat().st_mode):
            raise UsageError(f"{name} is {place}, not a directory; give a directory, or unset it")
    return place


def _directories(name: str) -> list[Path]:
    """The directories in a variable, with the separator of PATH; they need not exist."""
    return [_absolute(name, text) for text in os.environ.get(name, "").split(os.pathsep) if text]


def _require_directories(name: str) -> None:
    """Refuses a variable that names a directory that cannot be read."""
    for path in _directories(name):
        if not os.access(f"{path}/.", os.R_OK):
            raise UsageError(f"{name} names {path}, which is not a readable folder; correct it")


def misspelt() -> list[str]:
    """A line for each variable that has the package's prefix and is unknown."""
    from difflib import get_close_matches

    unknown = sorted(
        name for name in os.environ.keys() - {*VARIABLES} if name.startswith("AUTOTUNE_")
    )
    near = {name: get_close_matches(name, VARIABLES, 1, 0.8) for name in unknown}
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
    """Logs a warning to the logger `autotune`, once in a process."""
    logging.getLogger("autotune").warning("%s", message)


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


MODES = ("auto", "quick", "frozen")
MISSING = ("vendor", "raise")


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


class Policy(NamedTuple):
    """The policy of `matmul`, `kernel`, `warmup` and patched layers: an argument of one call, or of
    all calls of a block by `with autotune.policy(...)`.

    Attributes:
        tune: first tunes a shape that is not tuned, for at most 60 s; `quick` races the most
            promising configurations and cuBLAS instead, of a shape without a record. Nothing is
            tuned in the frozen mode.
        vendor: whether cuBLAS may multiply, by its own choice or by a recorded algorithm of
            cuBLASLt. By its own choice it never does in fp32 if PyTorch's setting of TF32 differs
            from the compute.
        cold: whether to run what is fastest with operands that are not in L2, such as weights that
            are read once between two calls; `tune` then minimises that time.
        batch_invariant: whether to run a kernel of a batch-invariant range (see `autotune.tune`),
            so that the bits of a row do not depend on the rows beside it. cuBLAS is not used, and
            nothing is tuned.
        verify: first checks a kernel that this process has not checked yet: it has to compute a
            product of small integers bit for bit. That takes memory for a second set of operands,
            and seconds for large ones. cuBLAS by its own choice is not checked.
        dependent: whether a kernel may start before its predecessor on the stream has ended
            (programmatic dependent launch): it then sets itself up and waits on the GPU, which
            hides the time between two kernels. Needs compute capability 9.0. No algorithm of
            cuBLASLt runs then; cuBLAS by its own choice ignores it.
        frozen: whether nothing is tuned, guessed, compiled or written. A product then runs the
            kernel that is recorded for its shape, or for a tuned range around it, if the cache has
            it compiled. Other products go to cuBLAS through their library, or with `raise` raise
            a `FrozenError`, as does a call that cuBLAS cannot serve.
    """

    # A tuple, whose hash and equality a warm call takes in C.
    tune: bool | Literal["quick"] = False
    vendor: bool = True
    cold: bool = False
    batch_invariant: bool = False
    verify: bool = False
    dependent: bool = False
    frozen: bool | Literal["raise"] = False

    @property
    def mode(self) -> Mode | None:
        """The mode that the policy puts the process into; None for none."""
        if not self.frozen:
            return None
        return Mode("frozen", "raise" if self.frozen == "raise" else "vendor")

    @property
    def library(self) -> bool:
        """Whether a recorded algorithm of cuBLASLt may multiply: it is the vendor's, and it does
        not start before its predecessor has ended."""
        return self.vendor and not self.dependent

    def check(self) -> None:
        """Refuses values that a field does not have. A policy is checked where it is entered, and
        where a new call is bound: a warm call has no time for it.

        Raises:
            UsageError: with the field and its values, or for both `tune` and `batch_invariant`.
        """
        for name, value in zip(self._fields, self, strict=True):
            word = _WORDS.get(name)
            if value not in (True, False) and (word is None or value != word):
                words = "True or False" if word is None else f"True, False or {word!r}"
                raise UsageError(f"{name} is {value!r}; give {words}")
        if self.tune and self.batch_invariant:
            raise UsageError(
                "a batch-invariant kernel is not tuned alone; tune its range: "
                "autotune.tune(..., batch_invariant=True)"
            )


_WORDS = {"tune": "quick", "frozen": "raise"}
"""The words of the fields of a policy that are more than true or false."""


class PolicyChanges(TypedDict, total=False):
    """The fields of `Policy` as keywords."""

    tune: bool | Literal["quick"]
    vendor: bool
    cold: bool
    batch_invariant: bool
    verify: bool
    dependent: bool
    frozen: bool | Literal["raise"]


DEFAULT_POLICY = Policy()
"""The policy outside any block."""

_POLICY: ContextVar[Policy] = ContextVar("autotune.policy", default=DEFAULT_POLICY)

policy: Callable[[], Policy] = _POLICY.get
"""Returns the policy of the innermost `with autotune.policy(...)` block of this context."""


@contextmanager
def following(policy: Policy) -> Iterator[None]:
    """Makes a policy the current one within a `with` block, but does not freeze the process."""
    token = _POLICY.set(policy)
    try:
        yield
    finally:
        _POLICY.reset(token)


def followed(policy: Policy, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function that runs as in `following`, 1 us sooner."""
    token = _POLICY.set(policy)
    try:
        return function(*arguments)
    finally:
        _POLICY.reset(token)


# Modes that the program has entered. They hold for all threads: autograd runs in its own.
_ENTERED: list[Mode] = []


def mode() -> Mode:
    """The mode that the program has entered last, else that of `AUTOTUNE_MODE`: `auto`, `quick`,
    `frozen` or `frozen:raise`.

    Raises:
        UsageError: for another text.
    """
    if _ENTERED:
        return _ENTERED[-1]
    name, _, missing = os.environ.get("AUTOTUNE_MODE", "").partition(":")
    return Mode(name or "auto", missing or "vendor")


@contextmanager
def entered(mode: Mode) -> Iterator[None]:
    """Sets the mode of the process within a `with` block."""
    _ENTERED.append(mode)
    try:
        yield
    finally:
        _ENTERED.remove(mode)


def froze(policy: Policy) -> bool:
    """Whether the process is in the mode of a frozen policy already, or in the stricter one."""
    now = mode()
    return now.frozen and (policy.frozen != "raise" or now.missing == "raise")


def refuse_frozen(action: str) -> None:
    """Refuses an action in the frozen mode.

    Raises:
        FrozenError: with the action.
    """
    if mode().frozen:
        raise FrozenError(
            f"{action}: the mode is frozen; unset AUTOTUNE_MODE or leave policy(frozen=True)"
        )


def cache_dir() -> Path:
    """The cache directory, of records and compiled programs; it may not exist yet.

    Raises:
        CacheError: if it is not a directory or cannot be read.
    """
    directory = cache_place()
    try:
        os.scandir(f"{directory}/.").close()  # it can be read and searched
    except FileNotFoundError:
        pass
    except OSError as error:
        raise unusable(directory, "read", error) from error
    return directory


def cache_place() -> Path:
    """The path of the cache directory, whether or not it can be used.

    `AUTOTUNE_CACHE_DIR`, else the user's cache directory (`$XDG_CACHE_HOME/autotune` on Linux).
    Without a home it is a private directory of this user among the temporary ones.

    Raises:
        CacheError: if the variable is wrong, or there is neither a home nor such a directory.
    """
    try:
        return _path("AUTOTUNE_CACHE_DIR") or _user_cache_dir()
    except UsageError as error:
        raise CacheError(str(error)) from error


def _user_cache_dir() -> Path:
    import tempfile

    import platformdirs

    with suppress(RuntimeError):  # no home is known
        directory = platformdirs.user_cache_path("autotune", appauthor=False)
        if directory.is_absolute():
            return directory
    try:
        directory = Path(tempfile.gettempdir(), f"autotune-{os.geteuid()}")
    except OSError as error:
        raise CacheError(
            "no home for the cache, and no directory for temporary files; set AUTOTUNE_CACHE_DIR"
        ) from error
    with suppress(OSError):
        directory.mkdir(mode=0o700)
    # Others can write to its parent, and may have made it.
    if not _is_private(directory):
        raise unusable(directory, "use", "not a directory of this user alone (mode 0700)")
    warn_once(f"no home is known, so the cache is {directory}; set AUTOTUNE_CACHE_DIR to keep it")
    return directory


def _is_private(directory: Path) -> bool:
    """Whether only this user can enter a directory; False for a link and for a file."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    owned = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return owned and not status.st_mode & 0o077


def shipped_dir() -> Path:
    """The directory of the shipped records.

    `AUTOTUNE_SHIPPED_DIR` names another one, for a site that ships its own records or none.
    """
    return _directory("AUTOTUNE_SHIPPED_DIR") or _data("shipped")


def programs_dir() -> Path:
    """The directory of the programs that came with the package; `AUTOTUNE_PROGRAMS_DIR` names
    another one."""
    return _directory("AUTOTUNE_PROGRAMS_DIR") or _data("programs")


def _data(name: str) -> Path:
    return Path(__file__).resolve().parent / "data" / name


def site_dirs() -> list[Path]:
    """Directories of a site's records, in `AUTOTUNE_SITE_DIR` with the separator of PATH.

    Look-ups prefer the user's records of the same evidence, and prefer these to shipped ones, the
    first directory first.
    """
    if former := _directories(FORMER_SITE_DIR):
        warn_once(f"{FORMER_SITE_DIR} is now AUTOTUNE_SITE_DIR; rename it")
    return _directories("AUTOTUNE_SITE_DIR") + former


FORMER_SITE_DIR = "AUTOTUNE_WISDOM_DIR"
"""The former name of `AUTOTUNE_SITE_DIR`, which this release still reads."""


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


def session() -> str | None:
    """The library that a tuning session calls the driver through, `pycuda` or `bindings`: that of
    `AUTOTUNE_SESSION`; None if it is not set.

    Raises:
        UsageError: for another text.
    """
    return _word("AUTOTUNE_SESSION", "pycuda", "bindings")


def nvrtc() -> int | None:
    """The major version of NVRTC that `AUTOTUNE_NVRTC` asks for, 12 or 13; None if it is not set.

    Raises:
        UsageError: for another text.
    """
    version = _word("AUTOTUNE_NVRTC", "12", "13")
    return int(version) if version else None


def native() -> bool:
    """Whether warm calls may run in machine code: unless `AUTOTUNE_NATIVE=0`.

    Raises:
        UsageError: for another text than 0 and 1.
    """
    return _word("AUTOTUNE_NATIVE", "0", "1") != "0"


def cupy_tf32() -> bool:
    """Whether CuPy multiplies fp32 matrices in TF32 (its variable `CUPY_TF32`)."""
    return os.environ.get("CUPY_TF32", "0") not in ("", "0")


def unusable(directory: Path, action: str, reason: OSError | str) -> CacheError:
    """The error to raise when the cache cannot be used as it has to be, such as `write to`."""
    if isinstance(reason, FileExistsError | NotADirectoryError):
        reason = "not a directory"
    elif isinstance(reason, OSError):
        reason = reason.strerror or str(reason)
    return CacheError(
        f"cannot {action} the cache {directory}: {reason}; "
        "set AUTOTUNE_CACHE_DIR to a directory that you can write to"
    )


VARIABLES: dict[str, Callable[[], object]] = {
    "AUTOTUNE_CACHE_DIR": cache_dir,
    "AUTOTUNE_MODE": mode,
    "AUTOTUNE_NATIVE": native,
    "AUTOTUNE_NVRTC": nvrtc,
    "AUTOTUNE_PORTFOLIO": str,  # architectures that the build of a wheel compiles kernels for
    "AUTOTUNE_PROGRAMS_DIR": programs_dir,
    "AUTOTUNE_SESSION": session,
    "AUTOTUNE_SHIP_STALE": str,  # 1 lets `make wheel` ship stale records
    "AUTOTUNE_SHIPPED_DIR": shipped_dir,
    "AUTOTUNE_SITE_DIR": partial(_require_directories, "AUTOTUNE_SITE_DIR"),
    FORMER_SITE_DIR: partial(_require_directories, FORMER_SITE_DIR),
    "CC": str,  # compiles the warm calls when the package is built
    "CUPY_TF32": cupy_tf32,
    "_AUTOTUNE_COMPLETE": str,  # by which a shell asks for completions
}
"""The environment variables that the package reads, each with the function that checks it."""


def value(name: str) -> str | None:
    """The text of a variable of `VARIABLES`; None if it is not set."""
    return os.environ.get(name)


def fault(name: str) -> str:
    """The fault of a variable's value; empty if it is right."""
    try:
        VARIABLES[name]()
    except AutotuneError as error:
        return str(error) if name in str(error) else f"{name}: {error}"
    return ""
