"""The log of a study: its trials and claims on configurations, one JSON object a line.

Any number of processes append to the log under a lock of the file, which the kernel releases when
its holder is killed. A line is

- `study`: the study's name, once, by the process that created the file;
- `claim`: a configuration that a process is about to try;
- `release`: a claim that was given up;
- `trial`: a finished trial, which ends the claim on its configuration.

All but the first name their process (`owner`) and the time (`at`). Each line ends with a checksum.
A line that is torn, broken or of another version is skipped and counted. Nothing is repaired.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from threading import RLock
from time import time
from typing import Any, BinaryIO, NamedTuple, TypeVar
from zlib import crc32

from autotune import files
from autotune.cuda import nvrtc as compile_limits
from autotune.device import Device
from autotune.errors import CacheError, UnsavedError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.families.source_text import hash_of, narrowed, shortened
from autotune.files import limits
from autotune.files.decoding import Seconds, Share, Text, convert
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.measure.recording import Origin
from autotune.records import TuningRecord
from autotune.records.merging import HasOrigin, sources_of
from autotune.records.record import folder_of
from autotune.tuning.trials import Trial

MEASURE_S = 150.0
"""Seconds in which a candidate is measured, unless the problem is larger than 7 TFLOP."""

EXPIRES_S = 2 * (compile_limits.SECONDS + MEASURE_S)
"""Age at which a claim expires if its process, on another host or in another container, cannot be
looked up: twice the time that a trial may take."""

SUFFIX = ".jsonl"

BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that decoding a broken line may raise."""

K = TypeVar("K")

_CHECKSUM = b',"crc":'

# The logs that this process has open. Claims that a full disk kept a log from releasing end when it
# closes.
_OPEN: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """A process that has opened a log.

    A host name and a PID do not identify a process: containers share a host name and have PIDs of
    their own, and PIDs are used again.

    Attributes:
        host: name of the host.
        boot: the host's boot; empty if it cannot be read.
        namespace: the PID namespace; empty if it cannot be read.
        pid: the process.
        started: when the process began, in ticks of the boot.
        run: the log that the process has opened.
    """

    host: Text
    boot: Text
    namespace: Text
    pid: int
    started: Text
    run: Text

    @classmethod
    def of_this_process(cls) -> Owner:
        """The process that calls this, as the owner of a log it opens."""
        pid = os.getpid()
        started = _started(pid) or ""
        return cls(socket.gethostname(), _boot(), _namespace(), pid, started, uuid.uuid4().hex)

    @property
    def alive(self) -> bool | None:
        """Whether the process runs and, if it is this one, has the log open. None if `/proc` cannot
        say, because the process has another host, boot or PID namespace."""
        own = socket.gethostname(), _boot(), _namespace()
        if "" in own or own != (self.host, self.boot, self.namespace):
            return None
        closed = self.pid == os.getpid() and self.run not in _OPEN
        return not closed and _started(self.pid) == self.started


def holding(claims: Mapping[K, tuple[Owner, float]]) -> dict[K, tuple[Owner, float]]:
    """The claims that still count, each by its process and the time when it was made.

    A claim ends with its process. One of a process that cannot be looked up expires.
    """
    alive, earliest = {owner: owner.alive for owner, _ in claims.values()}, time() - EXPIRES_S
    return {
        key: (owner, since)
        for key, (owner, since) in claims.items()
        if (since > earliest if alive[owner] is None else alive[owner])
    }


class News(NamedTuple):
    """Trials that other processes finished, and configurations that they are trying."""

    finished: tuple[Trial, ...]
    claimed: frozenset[Config]


@dataclass(frozen=True)
class FinishedTrial:
    """A trial and when it finished: seconds since the first claim or trial of its study, None if
    that is unknown."""

    trial: Trial
    seconds: float | None


@dataclass(frozen=True)
class LoggedTrials:
    """The content of a log.

    Attributes:
        study: the study's name; empty if its line is broken.
        trials: in the order in which they finished; a configuration that was tried twice counts
            with its last result.
        broken: the number of lines that were skipped.
    """

    study: str
    trials: tuple[FinishedTrial, ...]
    broken: int


def read(path: Path) -> LoggedTrials:
    """Reads a log without changing it.

    Raises:
        CacheError: if it cannot be read.
    """
    lines, rows, study = _Lines(), dict[Config, tuple[Trial, float]](), ""
    began: float | None = None
    try:
        with files.opened(path) as file:
            for line in lines.new(file):
                study = line.study or study
                began = line.at if began is None and line.study is None else began
                if (trial := line.trial) is not None:
                    rows.pop(trial.config, None)
                    rows[trial.config] = trial, line.at
    except OSError as error:
        raise CacheError(f"{path}: cannot be read: {error.strerror}") from error
    trials = (FinishedTrial(trial, max(0.0, at - (began or at))) for trial, at in rows.values())
    return LoggedTrials(study, tuple(trials), lines.broken + lines.torn)


def place(folder: Path, stem: str, study: str) -> Path:
    """The log of a study in a folder; `stem` names the tunable."""
    return folder / f"{stem}.{sha256(study.encode()).hexdigest()[:12]}{SUFFIX}"


def logs_in(folder: Path, stem: str) -> list[Path]:
    """The logs of all studies of the tunable that `stem` names, the last written one at the end."""
    start = f"{stem}."
    paths = [path for path in folder.glob(f"*{SUFFIX}") if path.name.startswith(start)]
    own = [path for path in paths if "." not in path.name[len(start) : -len(SUFFIX)]]
    return sorted(own, key=lambda path: (path.stat().st_mtime, path.name))


def encode(trial: Trial) -> dict[str, Any]:
    """A trial as JSON data, without the hash of its machine code."""
    data = asdict(trial) | {"config": str(trial.config)}
    del data["code"]
    return data


def decode(data: object) -> Trial:
    """The trial of JSON data.

    Raises:
        ValueError: if a field is missing, impossible, or unknown to this version.
    """
    written = convert(data, _TrialFields, "trial")
    kind: type[Measurement | Failure] = Failure if "stage" in written.outcome else Measurement
    # A field that this version does not know is an error, so that no other version is misread.
    names = {field.name for field in fields(kind)}
    if unknown := sorted(written.outcome.keys() - names):
        raise ValueError(f"outcome has {', '.join(unknown)}; this version does not know that")
    outcome = convert(written.outcome, kind, "outcome")
    config = Config.parse(written.config)
    return Trial(config, outcome, written.resources, written.occupancy, written.limiter)


class TrialLog:
    """The log of a study, open for trials and claims; threads may share it, a fork may not.

    A finished trial is in the file when `finish` returns, so that a kill costs at most the trial at
    hand. If the file cannot be written, the trial waits in `unwritten` and `failure` says why: the
    search should end.

    Attributes:
        told: the study's trials when the log was opened, in the order in which they finished.
        unwritten: finished trials that are not in the file.
        failure: why trials are unwritten; None if none are.

    Args:
        path: the file, created if missing.
        study: name of the study.

    Raises:
        CacheError: if the file cannot be read and written.
    """

    def __init__(self, path: Path, study: str) -> None:
        self.path, self._study, self._owner = path, study, Owner.of_this_process()
        self.unwritten: list[Trial] = []
        self.failure: CacheError | None = None
        self._lines, self._lock = _Lines(), RLock()
        self._trials: dict[Config, Trial] = {}
        self._mine: set[Config] = set()
        self._claims: dict[tuple[str, Config], tuple[Owner, float]] = {}  # of other processes
        self._news: list[Trial] = []
        self._opened = False
        _OPEN.add(self._owner.run)
        with self._locked() as file:
            self._append(file)
        self._opened = True
        self.told = self.news().finished

    def claim(self, config: Config, limit: int | None = None) -> bool:
        """Claims a configuration; False if another process has tried it or is trying it.

        Args:
            config: the configuration.
            limit: most configurations of the study, finished or claimed.

        Raises:
            CacheError: if the file cannot be read and written.
        """
        with self._locked() as file:
            claimed = self._claimed()
            if config in self._mine:
                return True
            if config in self._trials or config in claimed:
                return False
            study = self._trials.keys() | self._mine | claimed
            if limit is not None and len(study) >= limit:
                return False
            self._mine.add(config)
            self._append(file, {"claim": str(config)})
            return True

    def release(self, configs: Iterable[Config]) -> None:
        """Gives up claims on configurations that were not tried."""
        with self._lock:
            own = [config for config in configs if config in self._mine]
            self._mine.difference_update(own)
            with suppress(CacheError):  # they expire, or end with this process
                if own:
                    with self._locked() as file:
                        self._append(file, *({"release": str(config)} for config in own))

    def finish(self, trial: Trial) -> None:
        """Adds a finished trial, claimed or not."""
        with self._lock:
            self._trials[trial.config] = trial
            self.unwritten.append(trial)
            self._write()

    def news(self) -> News:
        """The news since the last call."""
        with self._lock:
            with suppress(OSError), files.opened(self.path, follow=False) as file:
                self._catch_up(file)
            finished, self._news = tuple(self._news), []
            return News(finished, frozenset(self._claimed()))

    def flush(self) -> None:
        """Waits until all trials are on the disk, where a power cut leaves them.

        Raises:
            CacheError: if they cannot be written.
        """
        with self._lock:
            self._write()
            self.check()
            with self._locked() as file:
                os.fsync(file.fileno())

    def check(self) -> None:
        """Raises the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Releases all claims. May be called twice, and trials may be added afterwards.

        Raises:
            CacheError: if trials could not be written; an `UnsavedError`, which has them, if they
                are in no file.
        """
        with self._lock:
            self.release([*self._mine])
            _OPEN.discard(self._owner.run)
            if self.unwritten:
                self._write()
            if lost := tuple(self.unwritten):
                message = f"{self.failure}; measured trials in no file: {len(lost)}"
                raise UnsavedError(message, trials=lost)
            self.check()

    def _write(self) -> None:
        """Writes the unwritten trials, or notes the failure."""
        try:
            with self._locked() as file:
                self._append(file, *({"trial": encode(trial)} for trial in self.unwritten))
        except CacheError as error:
            self.failure = error
        else:
            self._mine.difference_update(trial.config for trial in self.unwritten)
            self.unwritten.clear()
            self.failure = None

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The file, locked against other processes, with all its lines read."""
        try:
            with self._lock, files.locked_file(self.path) as file:
                self._catch_up(file)
                yield file
        except OSError as error:
            if os.path.lexists(self.path) and (self.path.is_symlink() or not self.path.is_file()):
                message = f"{self.path}: cannot be written: {error.strerror}; move it away"
                raise CacheError(message) from error
            raise files.unwritable(self.path, 0, error) from error

    def _append(self, file: BinaryIO, *lines: dict[str, Any]) -> None:
        """Appends lines to the locked file, all or none."""
        name = () if self._lines.named else ({"study": self._study, "at": time()},)
        facts = {"at": time(), "owner": asdict(self._owner)}
        data = b"".join(_encoded(line) for line in (*name, *(line | facts for line in lines)))
        if not data:
            return
        if self._lines.torn:
            data = b"\n" + data
        self._lines.skip(files.append(file, data, sync=False))

    def _catch_up(self, file: BinaryIO) -> None:
        """Reads the lines that other processes have appended."""
        for line in self._lines.new(file):
            owner, config = line.owner, line.config
            if owner is None or config is None or owner.run == self._owner.run:
                continue
            if line.claims:
                # Other hosts' clocks may be wrong: claims made from now on are timed by this one.
                since = time() if self._opened else min(line.at, time())
                self._claims[owner.run, config] = owner, since
                continue
            self._claims.pop((owner.run, config), None)
            if line.trial is not None:
                self._hear(line.trial)

    def _hear(self, trial: Trial) -> None:
        """Takes a trial of another process as news, once."""
        if self._trials.get(trial.config) != trial:
            self._trials[trial.config] = trial
            self._news.append(trial)

    def _claimed(self) -> set[Config]:
        """The configurations that other processes are trying."""
        self._claims = holding(self._claims)
        return {config for _, config in self._claims if config not in self._trials}


@dataclass(frozen=True)
class _TrialFields:
    """A trial as it is written."""

    config: Text
    outcome: dict[str, Any]
    resources: Resources | None
    occupancy: Share | None
    limiter: Text | None


@dataclass(frozen=True)
class _WrittenLine:
    """A line as it is written."""

    at: Seconds
    owner: Owner | None = None
    study: str | None = None
    claim: Text | None = None
    release: Text | None = None
    trial: dict[str, Any] | None = None


class _Line(NamedTuple):
    """A line: the name of the study, or what a process did with a configuration."""

    at: float
    study: str | None = None
    owner: Owner | None = None
    config: Config | None = None
    claims: bool = False
    trial: Trial | None = None


class _Lines:
    """Reads the whole lines of a file, each once; if another file takes its place, from its start.

    Attributes:
        named: whether a line with the study's name was read or written.
        broken: the number of lines that were skipped.
        torn: whether the file ends with a part of a line, which a kill has left or another process
            is writing.
    """

    def __init__(self) -> None:
        self.named, self.broken, self.torn = False, 0, False
        self._file, self._offset = (0, 0), 0

    def new(self, file: BinaryIO) -> Iterator[_Line]:
        """The lines since the last call.

        Raises:
            OSError: if the file cannot be read, or has more than `limits.TRIAL_LOG` bytes.
        """
        status = os.fstat(file.fileno())
        if status.st_size > limits.TRIAL_LOG:
            most = f"at most {limits.TRIAL_LOG} are read"
            raise OSError(errno.EFBIG, f"File has {status.st_size} bytes; {most}")
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._offset:
            self._file, self._offset = (status.st_dev, status.st_ino), 0
            self.named, self.broken = False, 0
        file.seek(self._offset)
        self.torn = False
        while data := file.readline(limits.TRIAL_LOG):
            if not data.endswith(b"\n"):
                self.torn = True
                return
            self._offset += len(data)
            try:
                line = _parsed(data)
            except BROKEN:
                self.broken += 1
                continue
            self.named |= line.study is not None
            yield line

    def skip(self, offset: int) -> None:
        """Continues at the end of lines that this process has written."""
        self.named, self.torn, self._offset = True, False, offset


def _encoded(line: Mapping[str, Any]) -> bytes:
    """A line with its checksum."""
    text = json.dumps(line, separators=(",", ":")).encode()[:-1]
    return text + _CHECKSUM + b"%d}\n" % crc32(text)


def _parsed(data: bytes) -> _Line:
    """The line; one of `BROKEN` is raised if it is not whole."""
    if len(data) > limits.LINE:
        raise ValueError(f"line has {len(data)} bytes; at most {limits.LINE} are read")
    text, mark, checksum = data.rpartition(_CHECKSUM)
    if not mark or checksum != b"%d}\n" % crc32(text):
        raise ValueError("its checksum is wrong")
    line = convert(json.loads(data), _WrittenLine, "line")
    if line.study is not None:
        return _Line(line.at, line.study)
    if line.owner is None:
        raise ValueError("owner is missing")
    if line.trial is not None:
        trial = decode(line.trial)
        return _Line(line.at, None, line.owner, trial.config, trial=trial)
    config = Config.parse(line.claim or line.release or "")
    return _Line(line.at, None, line.owner, config, claims=line.claim is not None)


def _namespace() -> str:
    """The PID namespace of this process; empty if /proc is missing or is of another namespace."""
    try:
        own = str(Path("/proc/self").readlink()) == str(os.getpid())
        return str(Path("/proc/self/ns/pid").readlink()) if own else ""
    except OSError:
        return ""


def _boot() -> str:
    """The boot of the host; empty if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """The start of a process, in ticks of the boot; None if it has ended."""
    try:
        # The name in front of the last bracket may hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A killed process that its parent has not waited for does nothing more.
    return None if fields[0] in "ZX" else fields[19]


def studies_of(root: Path, device: Device, evidence: Evidence, slug: str) -> tuple[Path, str]:
    """The folder of the trial logs of a tunable in the cache `root`, and how their names begin."""
    return root / "studies" / folder_of(device, evidence), f"{slug}.{evidence}"


def study_of(kinds: str, origin: Origin) -> str:
    """The name of the study whose trials can be compared: kernels of these kinds and sources, made
    by one compiler and run by one driver.

    The hashes of several families are shortened: a database takes names of 512 characters.
    """
    source = narrowed(origin.source, kinds.split("+")) or origin.source
    named = source if ":" not in source else shortened(source)
    return "@".join((kinds, named, *tools_of(origin)))


def tools_of(origin: HasOrigin) -> tuple[str, ...]:
    """The compiler and the driver that end a study's name, each if it is known."""
    return tuple(tool for tool in (origin.compiler, origin.driver) if tool)


def led_to(study: str, record: TuningRecord) -> bool:
    """Whether a study, by its name, has the record's driver, compiler and kernel sources."""
    source, *tools = study.partition("@")[2].split("@")
    if tuple(tools) != tools_of(record.provenance):
        return False
    return all(
        shortened(hash_of(source, family)) == shortened(own)
        for family, own in sources_of(record).items()
    )
