"""Specifications: Python files whose `KERNEL` has the keywords of `tune_kernel`."""

from __future__ import annotations

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from autotune.api.kernels import VALUES, kernel_occupancy, tune_kernel
from autotune.api.words import hint_for
from autotune.errors import AutotuneError, UsageError
from autotune.records import KernelRecord
from autotune.tuning.options import Search
from autotune.user_kernels.table import KernelTable

NAME = "KERNEL"
"""The variable of a specification."""

MODULE = "autotune_spec"
"""The `__name__` of a specification while it runs."""


def tune_spec(
    path: Path, changes: Mapping[str, object], fields: Mapping[str, object]
) -> KernelRecord:
    """Tunes the kernel of a specification.

    Args:
        path: a Python file whose `KERNEL` is a mapping of keywords of `tune_kernel` to their
            values, or a function that returns one. A relative path of a source is looked for
            beside it.
        changes: keywords that replace the file's.
        fields: replacements for fields of the file's `search`. An objective replaces a score too.

    Raises:
        UsageError: for a file that is not a specification, and as `tune_kernel`.
        AutotuneError: as `tune_kernel`.
    """
    keywords = {**read_spec(path), **changes}
    own = dict(fields) | ({"score": None} if "objective" in fields else {})
    keywords["search"] = replace(keywords.get("search") or Search(), **own)
    _require(path, keywords, "arguments")
    record: KernelRecord = tune_kernel(**keywords)
    return record


def spec_occupancy(path: Path, device: str | None) -> KernelTable:
    """The occupancy of the kernel of a specification; needs no GPU if the device is named.

    Raises:
        UsageError: for a file that is not a specification, and as `kernel_occupancy`.
    """
    keywords = read_spec(path)
    names = inspect.signature(kernel_occupancy).parameters
    chosen = {name: value for name, value in keywords.items() if name in names}
    return kernel_occupancy(**chosen | ({"device": device} if device else {}))


def read_spec(path: Path) -> dict[str, Any]:
    """The keywords of a specification, with its source beside it.

    Raises:
        UsageError: for a file that cannot be run or has no `KERNEL`, and for one that lacks or
            misspells a keyword.
    """
    spec = _run(path).get(NAME)
    if callable(spec):
        spec = _called(path, spec)
    if not isinstance(spec, Mapping):
        raise UsageError(
            f"{path} has no {NAME}; set it to a dict of the keywords of autotune.tune_kernel, or "
            "to a function that returns such a dict"
        )
    known_names = [*inspect.signature(tune_kernel).parameters]
    for name in spec:
        if name not in known_names:
            close = get_close_matches(str(name), known_names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            hint = hint_for(str(name), known_names, VALUES) or hint
            raise UsageError(f"{path}: {NAME} has {name!r}, no keyword of tune_kernel{hint}")
    keywords = dict(spec)
    _require(path, keywords, "source", "name", "parameters")
    source, beside = keywords["source"], path.resolve().parent
    if isinstance(source, Path):
        keywords["source"] = beside / source
    elif isinstance(source, list | tuple):
        keywords["source"] = [beside / file for file in source]
    return keywords


def _require(path: Path, keywords: Mapping[str, object], *names: str) -> None:
    if missing := [name for name in names if name not in keywords]:
        raise UsageError(f"{path}: {NAME} lacks {', '.join(missing)}")


def _run(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give a Python file with {NAME}")
    file = path.resolve()
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        names: dict[str, Any] = _called(path, lambda: runpy.run_path(str(file), run_name=MODULE))
        return names
    finally:
        sys.path.remove(folder)


def _called(path: Path, function: Callable[[], Any]) -> Any:
    """The result of the user's code; a failure in a line that says where."""
    try:
        return function()
    except AutotuneError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == path.name]
        where = f"{path}:{lines[-1]}" if lines else f"{path}"
        raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
