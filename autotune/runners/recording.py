"""Recorded sweeps of a problem on a real device, one compressed JSON file each.

    <root>/<name>/4096x4096x4096-f32-nn.json.gz

`<root>` is the package's `data/recordings` by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.files.decoding import Text, convert
from autotune.problem import Problem
from autotune.runners.base import Measurement
from autotune.runners.recording_file import (
    SUFFIX,
    Origin,
    RecordedSweep,
    SweepFields,
    SweepRow,
    device_of,
    document_of,
    parsed,
    reading,
    write,
)

__all__ = [
    "ROOT",
    "Origin",
    "Recording",
    "SweepRow",
    "device_in",
    "find",
    "find_in",
    "names",
    "path_of",
]

ROOT = Path(__file__).parents[1] / "data" / "recordings"


@dataclass(frozen=True)
class Recording:
    """The outcomes of many configurations of a problem on a device; `date` is UTC, ISO 8601.

    `baseline` is the vendor library's measurement, if it was timed.
    """

    problem: Problem
    device: Device
    origin: Origin
    date: str
    baseline: Measurement | None
    rows: tuple[SweepRow, ...]

    def save(self, path: Path) -> None:
        """Writes the file whole; the same recording always gives the same bytes.

        Raises:
            AutotuneError: if it cannot be written.
        """
        write(self.document(), path)

    def document(self) -> dict[str, Any]:
        """The recording as JSON data."""
        baseline = self.baseline and self.baseline.fields()
        subject = {"problem": str(self.problem), "baseline": baseline}
        return document_of(subject, RecordedSweep(self.device, self.origin, self.date, self.rows))

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken, of another schema or of a user kernel.
        """
        with reading(path) as data:
            return cls.loads(data)

    @classmethod
    def loads(cls, data: bytes) -> Recording:
        """The recording in the bytes of a file.

        Raises:
            ValueError: if they are anything but a recording of this schema.
        """
        document = parsed(data)
        if "call" in document:
            raise ValueError("it is of a user kernel; give it to `tune_kernel`")
        written = convert(document, _RecordingFields, "recording")
        sweep, problem = written.sweep(), Problem.parse(written.problem)
        made = sweep.device, sweep.origin, sweep.date
        return cls(problem, *made, written.baseline, sweep.rows)


@dataclass(frozen=True)
class _RecordingFields(SweepFields):
    """A recording as it is written."""

    problem: Text
    baseline: Measurement | None


def path_of(name: str, problem: Problem, root: Path = ROOT) -> Path:
    """The file of a problem's recording."""
    return root / name / f"{problem.slug}{SUFFIX}"


def names(root: Path = ROOT) -> dict[str, tuple[Problem, ...]]:
    """The names of all recordings with the problems of each, smallest first."""
    recordings = {
        directory.name: tuple(sorted(map(_problem, directory.glob(f"*{SUFFIX}")), key=_size))
        for directory in (sorted(root.iterdir()) if root.is_dir() else ())
    }
    return {name: problems for name, problems in recordings.items() if problems}


def find(name: str, problem: Problem, root: Path = ROOT) -> Recording:
    """The recording of a problem.

    Raises:
        NotFoundError: if there is none; the message lists the recordings or problems.
        AutotuneError: if the file is broken.
    """
    recordings = names(root)
    if name not in recordings:
        listed = ", ".join(recordings) or "none"
        raise NotFoundError(f"no recording is named {name!r}; there is {listed}")
    if problem not in recordings[name]:
        listed = ", ".join(map(str, recordings[name]))
        raise NotFoundError(f"recording {name!r} does not hold {problem}; it holds {listed}")
    return Recording.load(path_of(name, problem, root))


def _problem(path: Path) -> Problem:
    return Problem.parse(path.name.removesuffix(SUFFIX).replace("-", ":"))


def _size(problem: Problem) -> tuple[int, Problem]:
    return problem.flops, problem


def find_in(path: Path, problem: Problem) -> Recording:
    """The recording of a problem in a file, or in a folder of such files.

    Raises:
        NotFoundError: if there is none; with the problems that there are.
        AutotuneError: if the file is broken.
    """
    file = path / f"{problem.slug}{SUFFIX}" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        listed = ", ".join(each.name for each in _files(path)) or "none"
        raise NotFoundError(f"{path} has no recording {file.name}; it has {listed}")
    recording = Recording.load(file)
    if recording.problem != problem:
        raise NotFoundError(f"{file} is a recording of {recording.problem}, not of {problem}")
    return recording


def device_in(path: Path) -> Device:
    """The device of a recording of any kind, or of the first in a folder.

    Raises:
        NotFoundError: if there is none.
        AutotuneError: if the file is broken.
    """
    file = path
    if path.is_dir():
        files = _files(path)
        if not files:
            raise NotFoundError(f"{path} has no recordings, which end with {SUFFIX}")
        file = files[0]
    return device_of(file)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))
