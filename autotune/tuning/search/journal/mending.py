"""Keeps what can be understood of a damaged journal.

Optuna numbers studies and trials by their lines. A line that is left out would give every later
result to another trial, so each damaged line that began one becomes a trial that failed. A result
names its configuration: if that is not the one of the trial with its number, it becomes a trial of
its own. Replacements are as long as what they replace, where possible, so that processes that have
the journal open can go on.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotune import files
from autotune.families.config import Config
from autotune.files import limits
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import rescue, trials
from autotune.tuning.search.journal.journal_file import (
    BROKEN,
    START,
    decoded,
    encoded,
    is_of_user,
)
from autotune.tuning.search.journal.shared_study import FINISHED
from autotune.tuning.search.journal.trials import RESULT, SINCE

PADDED = 2**16
"""A longer damaged part is left out rather than blanked: the next line would become as long."""
CREATE_STUDY, CREATE_TRIAL, SET_USER_ATTRIBUTE = 0, 4, 8
"""Operations of Optuna's journal."""
OWNER = {"host", "pid", "started", "run"}
"""The keys of the process that every claim names."""

# Marks of a line that creates a study, or a trial. A flipped bit leaves the other marks.
_OF_STUDY = re.compile(rb'"study_name":|"directions":|^{"op_code":0,')
_OF_TRIAL = re.compile(
    rb'"distributions":|"user_attrs":|"system_attrs":|"intermediate_values":|^{"op_code":4,'
)
_PRINTABLE = bytes(range(0x20, 0x7F))
_NAME, _STUDY = re.compile(rb'"study_name":("[^"\\]*")'), re.compile(rb'"study_id":(\d{1,9})\b')


@dataclass
class Salvage:
    """The readable rest of a damaged journal.

    Attributes:
        data: the journal that can be read.
        left_out: damaged lines, and whole ones that mean nothing without them.
        lines: all lines.
        homeless: trials whose result is whole, while the trial that it belongs to is not.
    """

    data: bytes
    left_out: int
    lines: int
    homeless: list[Trial]


def mend(path: Path, place: str, study: str) -> bool:
    """Makes a damaged journal readable; the damaged one is kept as `<file>.broken-<n>`.

    Trials that only a whole journal can hold are put into the cache for the next opening.

    Returns:
        Whether anything was damaged.

    Raises:
        CacheError: if the copy cannot be written.
        OSError: if the journal cannot be read or written, or stays locked.
    """
    with files.locked_file(path, follow=is_of_user(path)):
        data = files.read(path, limits.JOURNAL)
        result = salvaged(data, study)
        if result.data == data:
            return False
        aside = files.copy_aside(path, BROKEN)
        _replace(path, data, result.data)
    if result.homeless:
        rescue.keep(place, study, result.homeless)
    counts = f"{result.left_out} of {result.lines} lines were damaged and left out"
    warnings.warn(f"{path}: broken, kept as {aside.name}: {counts}", stacklevel=6)
    return True


def salvaged(data: bytes, study: str) -> Salvage:
    """Recovers the readable lines of a journal; any part of it may be damaged."""
    replay, left_out = _Replay(study), 0
    parts = _parts(data)
    for part in parts:
        log = decoded(part)
        if log is None or not replay.take(part, log):
            left_out += 1
            replay.replace(part)
    useless, homeless = replay.judged()
    for line in replay.lines:
        if line.trial in useless and line.log is not None:
            left_out += line.text is not None
            line.replace_by(_failed(line.log) if line.log["op_code"] == CREATE_TRIAL else None)
    return Salvage(b"".join(map(_text, replay.lines)), left_out, len(parts), homeless)


@dataclass
class _Line:
    """A line of the new journal: its operation, None if it is blank, and the trial's number."""

    part: bytes
    log: dict[str, Any] | None
    text: bytes | None = None
    trial: int | None = None

    def replace_by(self, log: dict[str, Any] | None) -> None:
        self.log = log
        self.text = None if log is None else encoded(log)


@dataclass
class _Replay(BaseJournalBackend):
    """The journal as Optuna understands it, line by line."""

    study: str
    lines: list[_Line] = field(default_factory=list)
    _logs: list[dict[str, Any]] = field(default_factory=list)
    _trials: int = 0
    _sure: int | None = None  # trials from this number on may have another

    def __post_init__(self) -> None:
        self._storage = JournalStorage(self)
        self._studies = self._storage.get_all_studies()

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def take(self, part: bytes, log: dict[str, Any]) -> bool:
        """Adds a line, if Optuna understands it."""
        self._logs.append(log)
        try:
            self._studies = self._storage.get_all_studies()
        except Exception:  # Optuna trusts the file; it goes on with the next line
            return False
        line = _Line(part, log, part, log.get("trial_id"))
        if log["op_code"] == CREATE_TRIAL:
            line.trial = None
            if any(study._study_id == log["study_id"] for study in self._studies):
                line.trial, self._trials = self._trials, self._trials + 1
        self.lines.append(line)
        return True

    def replace(self, part: bytes) -> None:
        """Adds what stands for a damaged line, so that the numbers of the others stay the same."""
        log = None
        if self._sure is None and not _is_a_line(part):
            self._sure = self._trials
        if _OF_STUDY.search(part):
            names = {study.study_name for study in self._studies}
            match = _NAME.search(part)
            name = json.loads(match[1]) if match else self.study
            name = f"damaged-{len(names)}" if name in names else name
            log = {"study_name": name, "directions": [StudyDirection.MINIMIZE]}
            log = {"op_code": CREATE_STUDY, "worker_id": "", **log}
        elif _OF_TRIAL.search(part) and self._studies:
            match = _STUDY.search(part)
            numbers = [study._study_id for study in self._studies]
            number = int(match[1]) if match and int(match[1]) in numbers else numbers[-1]
            log = _failed({"study_id": number})
        if log is None:
            self.lines.append(_Line(part, None))
        elif self.take(part, log):
            self.lines[-1].replace_by(log)

    def judged(self) -> tuple[set[int], list[Trial]]:
        """The numbers of trials of the study that mean nothing, and results without their trial."""
        own = [item._study_id for item in self._studies if item.study_name == self.study]
        listed = self._storage.get_all_trials(own[0], deepcopy=False) if own else []
        by_number = {trial._trial_id: trial for trial in listed}
        useless = {number for number, trial in by_number.items() if not _is_ours(trial)}
        good = {
            trial.user_attrs.get("config")
            for number, trial in by_number.items()
            if number not in useless and (trial.state in FINISHED or RESULT in trial.user_attrs)
        }
        results = [
            log["user_attr"][RESULT]
            for line in self.lines
            if (log := line.log)
            and log["op_code"] == SET_USER_ATTRIBUTE
            # The study of a result is known only from the trial that it names.
            and (line.trial in by_number or len(self._studies) == len(own))
            and RESULT in log["user_attr"]
        ]
        finished = {
            line.trial
            for line in self.lines
            if line.log and RESULT in line.log.get("user_attrs", {})
        }
        useless |= {
            number
            for number, trial in by_number.items()
            if self._sure is not None
            and number >= self._sure
            and number not in finished
            # An earlier version wrote results that do not name their configurations.
            and "config" not in trial.user_attrs.get(RESULT, {"config": None})
        }
        named = [trial for result in results if (trial := _trial(result))]
        return useless, [trial for trial in named if str(trial.config) not in good]


def _is_a_line(part: bytes) -> bool:
    """Whether a damaged part was one line, as far as it shows: a bit of it was flipped."""
    strange = len(part.translate(None, _PRINTABLE))
    return part.startswith(START) and part.endswith(b"}") and strange <= 1


def _is_ours(trial: FrozenTrial) -> bool:
    """Whether a trial is one that this version wrote."""
    attributes = trial.user_attrs
    claim = trial.state == TrialState.RUNNING and SINCE in attributes
    try:
        if SINCE in attributes:
            float(attributes[SINCE])
        if trial.state in FINISHED or (claim and RESULT in attributes):
            trials.decode(attributes)
        elif claim:
            Config.parse(attributes["config"])
        return not claim or attributes.keys() >= OWNER
    except rescue.BROKEN:
        return False


def _trial(result: Any) -> Trial | None:
    """The trial of a result, if it is whole and names its configuration."""
    try:
        return trials.decode({RESULT: result, "config": result["config"]})
    except rescue.BROKEN:
        return None


def _failed(log: dict[str, Any]) -> dict[str, Any]:
    """The operation that creates a failed trial in the study of another one."""
    fields = {"study_id": log["study_id"], "datetime_start": None, "state": TrialState.FAIL}
    return {"op_code": CREATE_TRIAL, "worker_id": "", **fields}


def _parts(data: bytes) -> list[bytes]:
    """The lines, where a flipped bit made two of one or one of two: the lines as they were."""
    parts: list[bytes] = []
    torn = False
    for line in data.removesuffix(b"\n").split(b"\n"):
        whole = decoded(line) is not None
        if not whole and torn and not line.startswith(START[:2]):
            parts[-1] += b" " + line
            continue
        pieces = [line] if whole else re.split(rb"(?<=.)(?=%s)" % re.escape(START), line)
        # Where an end of line was damaged, a byte follows the object.
        glued = ((piece, piece[:-1]) for piece in pieces[:-1])
        parts += [shorter if decoded(shorter) is not None else piece for piece, shorter in glued]
        parts.append(pieces[-1])
        torn = not whole
    return parts


def _text(line: _Line) -> bytes:
    """A line of the new journal, as long as the old one if possible."""
    if line.text is not None:
        return line.text.ljust(len(line.part)) + b"\n"
    return b" " * (len(line.part) + 1) if len(line.part) < PADDED else b""


def _replace(path: Path, old: bytes, new: bytes) -> None:
    """Writes the new journal: in place, where whole lines stay where they are."""
    if len(new) != len(old):
        files.write(path, new)
        return
    with path.open("r+b") as file:
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
