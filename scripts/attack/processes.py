"""Several tuners of one study, one of them killed: nothing is measured twice, the budget holds."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, randrange
from time import monotonic, sleep
from typing import Any

import tuners
from tuners import Fork, Outcome, Place

from autotune.families.config import Config
from autotune.tuning.options import Search

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
        return wrong + self.miscounted(tuners.found(self.place))

    def _started(self, number: int) -> Fork:
        options = Search(trials=TRIALS, seed=number, sampler="random")
        measuring = partial(_log, self.folder / f"tuner-{number}")
        return Fork(tuners.tuner(self.place, options, measuring))

    def _kill(self, fork: Fork, received: list[Any]) -> None:
        """Kills a tuner after some of its trials."""
        wanted, deadline = self.random.randrange(1, TRIALS // TUNERS), monotonic() + SECONDS
        while len(received) < wanted and (message := fork.line(deadline)) is not None:
            received.append(message)
        sleep(self.random.uniform(0, 4 * MEASURING_S))
        fork.kill()
        if fork.ended() == -9:
            self.killed.add(0)

    def miscounted(self, kept: tuners.Found, trials: int = TRIALS) -> list[str]:
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
    tuners.warm(folder / "warm")
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
    _run([programs / "initdb", "-D", data, *authentication], owner)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    control: list[Path | str] = [programs / "pg_ctl", "-D", data]
    _run([*control, "-w", "-l", folder / "log", "-o", options, "start"], owner)
    try:
        yield f"postgresql+{driver}://{USER}@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(NoServerError):
            _run([*control, "-m", "immediate", "stop"], owner)


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


def _run(command: Sequence[Path | str], owner: str | None) -> None:
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
