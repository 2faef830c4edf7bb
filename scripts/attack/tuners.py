"""Tuning runs on a recording in forked processes, which say what they told and can be killed.

Several of them work on one study, one of them killed: nothing is measured twice, the budget holds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from logging.handlers import BufferingHandler
from pathlib import Path
from random import Random, randrange
from time import monotonic, sleep
from typing import Any

from support.fake_runner import uncompiled

from autotune import settings
from autotune.families.config import Config
from autotune.measure import recording
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Store, TuningRecord
from autotune.records.inventory import scan
from autotune.tuning.loop import tune
from autotune.tuning.options import Search
from autotune.tuning.proposals import open_log
from autotune.tuning.search.axes import axes_of
from autotune.tuning.trials import Observer, Progress, Trial
from autotune.tuning.tunable import GemmTunable

FRAMES = 6
"""Frames of a traceback that are told."""

Send = Callable[[Any], None]
"""Sends a JSON value to the parent; a value that was sent survives the death of its sender."""


class Fork:
    """A forked process that runs a function.

    The function gets a `Send`. Its exception is sent as `{"raised": ...}`, with where.

    Attributes:
        pid: of the process.
        status: as `os.waitstatus_to_exitcode`; None while it runs.
    """

    def __init__(self, run: Callable[[Send], None]) -> None:
        reader, writer = os.pipe()
        self.status: int | None = None
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _run(run, writer)
        os.close(writer)
        self._reader = reader

    def messages(self, seconds: float) -> Iterator[Any]:
        """The messages until the process ends, or for so many seconds."""
        deadline = monotonic() + seconds
        while (line := self.line(deadline)) is not None:
            yield line

    def line(self, deadline: float) -> Any | None:
        """The next message; None at the end of the process or at the deadline."""
        while b"\n" not in self._buffer:
            left = deadline - monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return None
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal; a process that has ended ignores it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> int:
        """The exit status, or minus the number of the signal; waits for the process."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reader)
        return self.status


def answer(run: Callable[[Send], None], seconds: float = 60.0) -> list[Any]:
    """All messages of a forked process, which is killed after so many seconds."""
    fork = Fork(run)
    try:
        return [*fork.messages(seconds)]
    finally:
        fork.kill()
        fork.ended()


def _run(run: Callable[[Send], None], writer: int) -> None:
    """The whole life of a forked process."""

    def send(message: Any) -> None:
        os.write(writer, json.dumps(message).encode() + b"\n")

    status = 1
    try:
        run(send)
        status = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            what = f"{type(error).__name__}: {str(error)[:200]}"
            send({"raised": f"{what} ({_where(error)})"})
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _where(error: BaseException) -> str:
    """The innermost frames of a traceback, the last one first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )


@dataclass(frozen=True)
class Outcome:
    """The counts of a part and the promises it saw broken.

    Attributes:
        counts: how often something was tried or seen.
        peaks: the largest value of a figure, such as seconds or MB.
        broken: a line for each broken promise; it says how to repeat the case.
        skipped: why a part of the work could not be done here.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of all shares of a part: counts added, peaks kept."""
    outcomes = tuple(outcomes)
    counts: Counter[str] = Counter()
    peaks: dict[str, float] = {}
    for outcome in outcomes:
        counts.update(outcome.counts)
        for name, value in outcome.peaks.items():
            peaks[name] = max(value, peaks.get(name, value))
    return Outcome(
        counts=dict(counts),
        peaks=peaks,
        broken=tuple(line for outcome in outcomes for line in outcome.broken),
        skipped=tuple(dict.fromkeys(line for outcome in outcomes for line in outcome.skipped)),
    )


PROBLEM = Problem(1024, 1024, 1024)


TUNABLE = GemmTunable(PROBLEM, "auto")


@dataclass(frozen=True)
class Place:
    """Where a tuner keeps what it finds.

    Attributes:
        cache: the cache directory.
        storage: as `--storage`; None for the log in the cache alone.
    """

    cache: Path
    storage: str | None = None


@lru_cache(maxsize=1)
def recorded() -> Recording:
    """The recording that is tuned on."""
    return recording.find("h100", PROBLEM)


class SlowRunner(ReplayRunner):
    """A replay that says what it measures and takes its time.

    Args:
        measuring: called with the configuration when its measurement begins.
    """

    def __init__(self, measuring: Callable[[Config], None], seed: int) -> None:
        super().__init__(recorded(), seed)
        self._measuring = measuring

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        self._measuring(candidate.config)
        return super().measure(candidate, best, objective)


class Telling(Observer):
    """An observer that sends every trial it is told, and when the record was written."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del feasible, rejected
        self._send({"started": progress.trials})

    def trial(self, trial: Trial, progress: Progress) -> None:
        del progress
        timed = isinstance(trial.outcome, Measurement)
        self._send({"told": str(trial.config), "timed": timed})

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del record, progress
        self._send({"recorded": True})


def tuner(
    place: Place, options: Search, measuring: Callable[[Config], None] = lambda _: None
) -> Callable[[Send], None]:
    """The life of a tuning process."""

    def run(send: Send) -> None:
        os.environ["AUTOTUNE_CACHE_DIR"] = str(place.cache)
        tune(
            TUNABLE,
            SlowRunner(measuring, options.seed),
            Store(place.cache),
            replace(options, storage=place.storage),
            compile=uncompiled,
            origin=recorded().origin,
            observer=Telling(send),
        )
        send({"ended": True})

    return run


def warm(folder: Path) -> None:
    """Imports and computes in this process what every tuner needs, so that forks start fast."""
    place = Place(folder / "cache", f"sqlite:///{folder}/study.db")
    folder.mkdir()
    tuner(place, Search(trials=2, sampler="gp"))(lambda _: None)


def started(place: Place, options: Search) -> Fork:
    """A running tuner."""
    return Fork(tuner(place, options))


@dataclass(frozen=True)
class Found:
    """The content of the disk as a later process finds it.

    Attributes:
        trials: the configurations of the trials, in the log's order.
        timed: how many of them have a time.
        record: whether there is a record.
        faults: logged warnings, broken files, and what was raised.
    """

    trials: Sequence[str]
    timed: int
    record: bool
    faults: tuple[str, ...]


def found(place: Place, prepare: Callable[[], None] = lambda: None) -> Found:
    """Reads the disk with the package, in a process of its own.

    Args:
        place: where to look.
        prepare: called in that process first.
    """
    messages = answer(partial(_look, place, prepare))
    faults = [message["raised"] for message in messages if "raised" in message]
    looks = [message for message in messages if "trials" in message]
    if not looks:
        return Found((), 0, False, (*faults, "the log could not be read within 60 s"))
    look = looks[0]
    return Found(look["trials"], look["timed"], look["record"], (*faults, *look["faults"]))


def _look(place: Place, prepare: Callable[[], None], send: Send) -> None:
    prepare()
    os.environ["AUTOTUNE_CACHE_DIR"] = str(place.cache)
    store, runner = Store(place.cache), ReplayRunner(recorded())
    settings.warn_once.cache_clear()
    logged = BufferingHandler(sys.maxsize)
    logging.getLogger("autotune").addHandler(logged)
    log = open_log(
        TUNABLE, runner, store, recorded().origin, axes_of(runner.known()), place.storage
    )
    trials = log.told
    log.close()
    record = store.load(runner.device, PROBLEM)
    broken = [
        f"{item.path.name}: {item.fault}" for item in scan(place.cache, thorough=True) if item.fault
    ]
    send(
        {
            "trials": [str(trial.config) for trial in trials],
            "timed": sum(isinstance(trial.outcome, Measurement) for trial in trials),
            "record": record is not None,
            "faults": [*broken, *(entry.getMessage() for entry in logged.buffer)],
        }
    )


TUNERS = 4
TRIALS = 60
SECONDS = 120.0
MEASURING_S = 0.005


@dataclass
class Team:
    """Tuners that work on one study at the same time.

    Attributes:
        place: of the study.
        folder: of the logs of what each tuner measured.
        random: draws when a tuner is killed.
        killed: tuners that were killed.
    """

    place: Place
    folder: Path
    random: Random
    killed: set[int] = field(default_factory=set)

    def work(self, *, kill: bool) -> list[str]:
        """Lets all work to the end, and returns what is wrong with that."""
        forks = [self._started(number) for number in range(TUNERS)]
        messages: list[list[Any]] = [[] for _ in forks]
        if kill:
            self._kill(forks[0], messages[0])
            forks.append(self._started(TUNERS))
            messages.append([])
        deadline = monotonic() + SECONDS
        for fork, received in zip(forks, messages, strict=True):
            received += fork.messages(deadline - monotonic())
        wrong = []
        for number, (fork, received) in enumerate(zip(forks, messages, strict=True)):
            fork.kill()
            status = fork.ended()
            wrong += [f"raised {message['raised']}" for message in received if "raised" in message]
            if status and number not in self.killed and not wrong:
                wrong.append(f"tuner {number} ended with {status}")
        return wrong + self.miscounted(found(self.place))

    def _started(self, number: int) -> Fork:
        options = Search(trials=TRIALS, seed=number, sampler="random")
        measuring = partial(_log, self.folder / f"tuner-{number}")
        return Fork(tuner(self.place, options, measuring))

    def _kill(self, fork: Fork, received: list[Any]) -> None:
        """Kills a tuner after some of its trials."""
        wanted, deadline = self.random.randrange(1, TRIALS // TUNERS), monotonic() + SECONDS
        while len(received) < wanted and (message := fork.line(deadline)) is not None:
            received.append(message)
        sleep(self.random.uniform(0, 4 * MEASURING_S))
        fork.kill()
        if fork.ended() == -9:
            self.killed.add(0)

    def miscounted(self, kept: Found, trials: int = TRIALS) -> list[str]:
        """The faults of the measurements: made twice, too many, or not enough."""
        logs = {path.name: path.read_text().splitlines() for path in self.folder.glob("tuner-*")}
        times = Counter(config for log in logs.values() for config in log)
        # Only what a killed tuner was measuring may be measured again.
        last = {logs[f"tuner-{number}"][-1] for number in self.killed if f"tuner-{number}" in logs}
        twice = [config for config, count in times.items() if count > 1 + (config in last)]
        wrong = [f"{len(twice)} of {len(times)} measured twice: {twice[0]}"] if twice else []
        if times.total() > trials + len(self.killed):
            wrong.append(f"{times.total()} measurements for --trials {trials}")
        if missing := len(times.keys() - {*kept.trials} - last):
            wrong.append(f"{missing} of {len(times)} measured trials are not in the storage")
        if len(kept.trials) < trials:
            wrong.append(f"ended with {len(kept.trials)} of {trials} trials")
        return [*wrong, *kept.faults]


def run_processes(count: int, seed: int, folder: Path) -> Outcome:
    """Lets `count` teams work: with a log alone, with SQLite, with PostgreSQL; every other with a
    tuner killed."""
    warm(folder / "warm")
    counts: Counter[str] = Counter(teams=count, tuners=TUNERS * count)
    broken: list[str] = []
    skipped: list[str] = []
    with ExitStack() as stack:
        urls = ["log", "sqlite"]
        server = folder / "server"
        server.mkdir()
        if count > len(urls):
            try:
                urls.append(stack.enter_context(serving(server)))
            except NoServerError as error:
                skipped.append(f"PostgreSQL: {error}")
        for number in range(count):
            root = folder / f"team-{number}"
            root.mkdir()
            url = urls[number % len(urls)]
            name = url.partition(":")[0]
            storage = {"log": None, "sqlite": f"sqlite:///{root}/study.db"}.get(name, url)
            # A study of PostgreSQL is named after the tunable, so each team needs a database.
            if storage == url:
                storage = _database(url, f"team{number}")
            team = Team(Place(root / "cache", storage), root, Random(f"{seed} {number}"))
            wrong = team.work(kill=number // len(urls) % 2 == 1)
            counts[f"{name.partition('+')[0]} teams"] += 1
            counts["killed"] += len(team.killed)
            broken += [f"seed {seed}, team {number} ({name}): {line}" for line in wrong]
    return Outcome(dict(counts), broken=tuple(broken), skipped=tuple(skipped))


def _database(url: str, name: str) -> str:
    """The URL of a new database of a server."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.rpartition("/")[0] + f"/{name}"


def _log(path: Path, config: Config) -> None:
    """Notes a configuration that is about to be measured, and takes the time of a measurement."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{config}\n".encode())
    finally:
        os.close(file)
    sleep(MEASURING_S)


PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")
USER = "autotune"


class NoServerError(Exception):
    """There is no server, for the reason in the message."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of an empty database; the server is stopped at the end.

    Raises:
        NoServerError: if PostgreSQL or a driver of it is missing, or the server does not start.
    """
    programs = _programs()
    driver = _driver()
    data, port = folder / "data", randrange(20_000, 60_000)
    owner = _owner(folder)
    authentication = ("--auth=trust", f"--username={USER}", "--no-sync")
    _ended([programs / "initdb", "-D", data, *authentication], owner)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    control: list[Path | str] = [programs / "pg_ctl", "-D", data]
    _ended([*control, "-w", "-l", folder / "log", "-o", options, "start"], owner)
    try:
        yield f"postgresql+{driver}://{USER}@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(NoServerError):
            _ended([*control, "-m", "immediate", "stop"], owner)


def _programs() -> Path:
    """The folder of the server's programs."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += [path for place in PLACES for path in sorted(Path("/").glob(place[1:]))]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise NoServerError("PostgreSQL is not installed: no initdb")


def _driver() -> str:
    """A driver of PostgreSQL for SQLAlchemy."""
    from importlib.util import find_spec

    for name in ("psycopg2", "psycopg"):
        if find_spec(name) is not None:
            return name
    raise NoServerError("no driver of PostgreSQL: neither psycopg2 nor psycopg")


def _owner(folder: Path) -> str | None:
    """The user that the server runs as, who then owns the folder: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            for parent in folder.parents:  # a folder of mkdtemp lets nobody else pass
                if parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o011)
            return name
    raise NoServerError("this is root, and there is no user to run PostgreSQL as")


def _ended(command: Sequence[Path | str], owner: str | None) -> None:
    result = subprocess.run(
        command,
        user=owner,
        group=None if owner is None else pwd.getpwnam(owner).pw_gid,
        extra_groups=None if owner is None else [],
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )
    if result.returncode:
        raise NoServerError(f"{Path(command[0]).name}: {result.stderr.strip()[-200:]}")
