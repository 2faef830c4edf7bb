"""A study in an Optuna storage, which hosts share: a database, or Optuna's gRPC proxy for one.

A running trial is a claim: its user attributes are the configuration, the process and the time. A
finished one has its result as an attribute and is COMPLETE with its microseconds, or PRUNED for a
failure. Optuna's heartbeats do not work with ask and tell, so that a claim ends with its process,
or expires (see `trial_log.holding`).
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers import PartialFixedSampler, RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune import files, settings
from autotune.errors import AutotuneError, CacheError, MissingError, UsageError
from autotune.families.config import Config
from autotune.files.decoding import convert
from autotune.measure.measurement import Measurement
from autotune.tuning.search.axes import Axis
from autotune.tuning.search.proposer import study_of
from autotune.tuning.trial_log import BROKEN, Owner, TrialLog, decode, encode, holding
from autotune.tuning.trials import Trial

PROXY, PROXY_PORT, PROXY_S = "grpc://", 13000, 10.0
"""The URL of a gRPC proxy, its usual port, and how long it may take to answer at first."""

SQLITE, SQLITE_S = "sqlite:///", 60.0
"""The URL of an SQLite file, and how long another process may hold it."""

PACKAGES = {"MySQLdb": "mysqlclient", "grpc": "grpcio 'protobuf>=5.28.1'"}
"""The package of a module, if it has another name than the module."""

HIDDEN, SHORTEST = "***", 4
"""A password in a message; shorter ones are replaced only where they stand as a word."""

_USER = re.compile(r"://(?P<user>[^:/]*):(?P<password>.*)@")

_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key|cred|auth|odbc_connect")


def connected(url: str) -> BaseStorage:
    """Opens the storage at a URL, and creates its tables if needed.

    Raises:
        MissingError: if a driver is not installed; it names the package.
        UsageError: if it is not the URL of a storage.
    """
    from sqlalchemy.exc import ArgumentError

    try:
        if url.startswith(PROXY):
            return _proxy(url)
        if not url.startswith(SQLITE):
            return optuna.storages.RDBStorage(url)
        # Processes that create its tables at once break the file.
        with files.locked(settings.cache_dir()):
            waits = {"connect_args": {"timeout": SQLITE_S}}
            return optuna.storages.RDBStorage(url, engine_kwargs=waits)
    except ImportError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        module = (cause.name or "").partition(".")[0]
        package = PACKAGES.get(module, module)
        why = f"{without_secrets(str(cause), url)}; install its package: pip install {package}"
    except (ArgumentError, ValueError):  # the message has parts of the URL
        advice = "percent-encode :, /, ? and @ in the user's name and password"
        raise UsageError(
            f"{redacted(url)}: is not the URL of an Optuna storage; write sqlite:////DIR/FILE.db, "
            f"grpc://HOST:PORT or dialect+driver://user:password@host/name, and {advice}"
        ) from None
    raise MissingError(f"{redacted(url)}: {why}")


def _proxy(url: str) -> BaseStorage:
    """Optuna's gRPC proxy at a URL; `ValueError` for another form of URL."""
    parts = urlsplit(url)
    if not parts.hostname or parts.netloc.rpartition("@")[1] or parts.path not in ("", "/"):
        raise ValueError(url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        proxy = optuna.storages.GrpcStorageProxy(host=parts.hostname, port=parts.port or PROXY_PORT)
    proxy.wait_server_ready(PROXY_S)
    return proxy


def redacted(url: str) -> str:
    """The URL without the values that may be secret."""
    start, mark, query = _USER.sub(rf"://\g<user>:{HIDDEN}@", url).partition("?")
    pairs = [
        f"{name}={HIDDEN}" if _SECRET.search(unquote(name)) and value else name + equals + value
        for name, equals, value in (pair.partition("=") for pair in query.split("&"))
    ]
    return start + mark + "&".join(pairs)


def without_secrets(message: str, url: str) -> str:
    """An error message without the secrets of the URL, in any spelling."""
    message = message.replace(url, redacted(url))
    spellings = (str, unquote, unquote_plus, quote, quote_plus)
    spelled = {spell(secret) for secret in _secrets(url) for spell in spellings}
    for secret in sorted(spelled - {""}, key=len, reverse=True):
        edge = "" if len(secret) >= SHORTEST else r"\b"
        message = re.sub(f"{edge}{re.escape(secret)}{edge}", HIDDEN, message)
    return message


def _secrets(url: str) -> list[str]:
    """The password, and the values in the query that may be secret."""
    match = _USER.search(url)
    pairs = [pair.partition("=") for pair in url.partition("?")[2].split("&")]
    secrets = [value for name, _, value in pairs if _SECRET.search(unquote(name))]
    # A connection string of ODBC has the password among its parts.
    parts = [part.partition("=") for text in secrets for part in unquote_plus(text).split(";")]
    secrets += [value.strip("{}") for name, _, value in parts if _SECRET.search(name)]
    return [match["password"], *secrets] if match else secrets


CONFIG, OWNER, SINCE, RESULT = "config", "owner", "since", "result"
"""User attributes of a trial. A claim's owner is written last."""

PAUSE_S, PAUSES = 0.02, 100
"""Pauses while another process has begun a trial and not named its configuration yet."""


class SharedLog(TrialLog):
    """A trial log whose trials and claims are in an Optuna storage too.

    Args:
        path: the file of the log.
        study: name of the study in the log.
        url: URL of the storage.
        name: name of the study in the storage.
        axes: axes of the configurations; the storage has the numeric parameters of each trial.

    Raises:
        CacheError: if the storage or the file cannot be read and written.
        MissingError: if the driver of a database is not installed.
        UsageError: if the URL is not one of a storage.
    """

    def __init__(self, path: Path, study: str, url: str, name: str, axes: Sequence[Axis]) -> None:
        # A database accepts only the words that a study's first trial has, so that it gets none.
        numeric = IntDistribution | FloatDistribution
        self._space = {axis.name: axis.plain for axis in axes if isinstance(axis.plain, numeric)}
        self._url, self._asking = url, Lock()
        self._gone: CacheError | None = None
        self._running: dict[Config, optuna.Trial] = {}
        self._rivals: dict[tuple[int, Config], tuple[Owner, float]] = {}
        self._read: set[int] = set()  # numbers of trials that do not change any more
        # Numbers of trials whose process never named a configuration.
        self._silent: set[int] = set()
        with self._reaching():
            self._shared = study_of(name, connected(url))
        super().__init__(path, study)
        with self._reaching():
            self._look()
        self.told = (*self.told, *self.news().finished)

    def claim(self, config: Config, limit: int | None = None) -> bool:
        """Claims a configuration in the log and in the storage; see `TrialLog.claim`."""
        with self._reaching():
            self._look()
            if not super().claim(config, limit):
                return False
            if config in self._running or self._first(config, limit):
                return True
            self.release([config])
        return False

    def release(self, configs: Iterable[Config]) -> None:
        """Gives up claims on configurations that were not tried."""
        own = [*configs]
        super().release(own)
        started = [trial for config in own if (trial := self._running.pop(config, None))]
        with suppress(CacheError), self._reaching():  # they expire, or end with this process
            for trial in started:
                self._shared.tell(trial, state=TrialState.FAIL)

    def finish(self, trial: Trial) -> None:
        """Adds a finished trial, claimed or not, to the log and to the storage."""
        super().finish(trial)
        with suppress(CacheError), self._reaching():  # `check` raises it
            running = self._running.pop(trial.config, None) or self._begun(trial.config)
            running.set_user_attr(RESULT, encode(trial))
            if isinstance(trial.outcome, Measurement):
                self._shared.tell(running, trial.time_us)
            else:
                self._shared.tell(running, state=TrialState.PRUNED)

    def flush(self) -> None:
        """Waits until all trials are on the disk, and reads the storage."""
        super().flush()
        with self._reaching():
            self._look()

    def check(self) -> None:
        """Raises the failure of the file or of the storage, if there is one."""
        super().check()
        if self._gone is not None:
            raise self._gone

    def _claimed(self) -> set[Config]:
        running = {config for _, config in holding(self._rivals)}
        return super()._claimed() | (running - self._trials.keys())

    def _first(self, config: Config, limit: int | None) -> bool:
        """Whether no other process was first to begin a trial of the configuration, and the study
        has room for it."""
        running = self._begun(config)
        for _ in range(PAUSES):
            silent = self._look(running.number)
            if not silent:
                break
            time.sleep(PAUSE_S)
        self._silent |= silent
        rivals = holding(self._rivals)
        earlier = {tried for number, tried in rivals if number < running.number}
        study = (self._trials.keys() | self._mine | earlier) - {config}
        full = limit is not None and len(study) >= limit
        if full or config in self._trials or config in earlier:
            self._shared.tell(running, state=TrialState.FAIL)
            return False
        self._running[config] = running
        return True

    def _begun(self, config: Config) -> optuna.Trial:
        """A running trial of a configuration."""
        numbers = {
            name: value
            for name, value in config.values.items()
            if name in self._space and not isinstance(value, str)
        }
        with self._asking, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about values of other runs' axes, and experiments
            self._shared.sampler = PartialFixedSampler(numbers, RandomSampler())
            running = self._shared.ask({name: self._space[name] for name in numbers})
        running.set_user_attr(CONFIG, str(config))
        running.set_user_attr(SINCE, time.time())
        running.set_user_attr(OWNER, asdict(self._owner))
        return running

    def _look(self, before: int = 0) -> set[int]:
        """Reads trials and claims of other processes; returns the numbers of running trials below
        `before` that do not name their configuration yet."""
        listed = self._shared.get_trials(deepcopy=False)
        silent: set[int] = set()
        with self._lock:
            self._rivals = {}
            for trial in listed:
                if trial.number not in self._read:
                    with suppress(*BROKEN):  # trials of another program or version
                        self._hear_of(trial)
                    named = trial.state.is_finished() or OWNER in trial.user_attrs
                    if not named and trial.number < before:
                        silent.add(trial.number)
        return silent - self._silent

    def _hear_of(self, trial: FrozenTrial) -> None:
        attributes = trial.user_attrs
        if trial.state.is_finished():
            self._read.add(trial.number)
        owner = convert(attributes[OWNER], Owner, OWNER)
        if owner.run == self._owner.run or trial.state == TrialState.FAIL:
            return
        if RESULT in attributes:
            self._hear(decode(attributes[RESULT]))
        else:
            key = trial.number, Config.parse(attributes[CONFIG])
            self._rivals[key] = owner, float(attributes[SINCE])

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turns exceptions of Optuna, SQLAlchemy and drivers into an error of one line. Afterwards
        the storage is not used again."""
        if self._gone is not None:
            raise self._gone
        try:
            yield
        except AutotuneError:
            raise
        except Exception as error:
            cause: Any = error.__cause__ or error
            text = cause.details() if hasattr(cause, "details") else str(cause)
            line = (text or str(error)).partition("\n")[0] or type(error).__name__
            name, why = redacted(self._url), without_secrets(line, self._url)
            message = f"{name}: the storage failed: {why}; see whether it runs and has room"
            self._gone = CacheError(message)
        # A traceback would show the cause, whose message may contain a password.
        if self._gone is not None:
            raise self._gone from None
