"""The journal of a tuning run: finished trials, and claims on configurations being tried."""

from __future__ import annotations

import errno
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock
from time import monotonic, sleep
from typing import NamedTuple

from optuna.storages import BaseStorage

from autotune.errors import CacheError
from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.axes import Axis
from autotune.tuning.search.journal import rescue, trials
from autotune.tuning.search.journal.places import Place
from autotune.tuning.search.journal.shared_study import SharedStudy

PATIENCE_S = 60.0
# A claim may take this long. After one that failed, a process that tunes alone makes none for the
# same time.
CLAIM_S = 5.0
# Between attempts to write a trial or a claim.
RETRY_S = 0.1


class News(NamedTuple):
    """Trials that other processes finished, as begun, and configurations that they are trying."""

    finished: tuple[Trial, ...]
    claimed: frozenset[Config]


class Journal:
    """An Optuna study in a storage, for any number of processes, which optuna-dashboard shows.

    A configuration is claimed before it is tried, as a running trial that names its process; the
    outcome completes the trial (prunes it, for a failure). Opening a journal fails the claims of
    processes that are gone. Do not use a journal across a fork.

    A thread writes, in order. A kill loses only what the thread had not reached: milliseconds'
    worth, unless the storage is gone. While it is, trials are kept and tried again at each call. A
    process that tunes alone then gets every claim; one of several waits for the storage, since
    they would try the same. So does every process whose storage is on a server: others may have
    joined since it last heard. What is still unwritten in the end goes to a file of the default
    cache or of a temporary folder, and from there to the storage when it is next opened.

    Attributes:
        told: the study's trials when it was opened, in the order they began.

    Args:
        where: path of a journal file, or a storage's URL; see `places.Place`.
        study: name of the study; a storage may hold several.
        axes: of the configurations.
        patience_s: seconds that the storage may be gone before that is an error.

    Raises:
        CacheError: if the storage cannot be opened and written.
        MissingError: if the driver of a database is not installed.
        UsageError: if `where` is not a storage.
    """

    def __init__(
        self, where: Path | str, study: str, axes: Sequence[Axis], *, patience_s: float = PATIENCE_S
    ) -> None:
        self._place, self._name, self._patience_s = Place(where), study, patience_s
        owner, space = trials.owner(), {axis.name: axis.plain for axis in axes}

        def read(storage: BaseStorage) -> SharedStudy:
            shared = SharedStudy(storage, study, space, owner)
            rescue.restore(self._place.name, study, shared.restore)
            return shared

        self._study = self._place.opened(study, read)
        self.told = self._study.news()
        self._pool = ThreadPoolExecutor(1, trials.THREAD + owner["run"])
        self._writing = Lock()
        self._pending: deque[Trial] = deque()
        self._error: Exception | None = None
        self._failing_since, self._tried, self._blind_until = 0.0, 0.0, 0.0
        self._look: Future[None] | None = None
        self._asked: Future[bool] | None = None
        self._finished = self._written = self._kept = 0  # numbers of trials
        self._keeping = Condition()

    def claim(self, config: Config, limit: int | None = None) -> bool:
        """Whether this process may try the configuration: no other has tried it or is trying it.

        Waits for the storage, usually milliseconds. If it is gone or takes seconds, a process that
        tunes alone does not wait.

        Args:
            config: the configuration.
            limit: of the study's configurations, finished or claimed.

        Raises:
            CacheError: if the storage was gone for `patience_s`, and it is on a server or the study
                is shared.
        """
        deadline = monotonic() + self._patience_s
        while not self._unavailable or self._shared:
            answer = self._answer(config, limit, deadline)
            if answer is not None:
                return answer
        return True

    def release(self, configs: Iterable[Config]) -> None:
        """Gives up claims on configurations that were not tried; does not wait."""
        for config in configs:
            self._pool.submit(self._study.give_up, config)

    def finish(self, trial: Trial) -> None:
        """Adds a finished trial, claimed or not; returns at once, unless the journal was closed.

        Raises:
            CacheError: if nothing could be written for `patience_s`. The trial is kept until
                `close`.
        """
        with self._keeping:
            self._pending.append(trial)
            self._finished += 1
        try:
            self._pool.submit(self._write)
        except RuntimeError:  # a device was still measuring when the run was interrupted
            self._write(now=True)
            self._rescue_with_warning()
        if self._overdue:
            raise self._unwritable()

    def settle(self) -> None:
        """Waits until a kill would lose no finished trial, unless the storage is gone or late.

        A journal file takes a fraction of a millisecond; its disk is not waited for.
        """
        with self._keeping:
            finished = self._finished
            if not self._keeping.wait_for(lambda: self._failing or self._kept >= finished, CLAIM_S):
                self._blind_until = monotonic() + CLAIM_S

    @property
    def unwritten(self) -> frozenset[Config]:
        """The configurations of finished trials that a kill would lose."""
        return frozenset(trial.config for trial in [*self._pending])

    def news(self) -> News:
        """The news as of the last call or claim; returns at once."""
        if self._look is None or self._look.done():
            self._look = self._pool.submit(self._catch_up)
        claimed = self._study.claimed
        return News(tuple(self._study.news()), claimed)

    def flush(self) -> None:
        """Waits until everything is on the disk, and catches up with the news.

        Raises:
            CacheError: if the storage was gone for `patience_s`.
        """
        while True:
            self._pool.submit(self._write, now=True).result()
            if self._overdue:
                raise self._unwritable()
            if not self._pending:
                return self._pool.submit(self._catch_up).result()
            sleep(min(RETRY_S, self._patience_s))

    def close(self) -> None:
        """Flushes and releases all claims. May be called twice; an interrupt ends the waiting.

        Raises:
            CacheError: if trials could not be written; it says how many, and where they are now.
            UnsavedError: if they could be written nowhere; it has them.
        """
        try:
            with suppress(CacheError, RuntimeError):  # overdue, or closed before
                self.flush()
                # Whoever opens the storage next sees that this process is gone.
                with suppress(Exception):
                    self._pool.submit(self._study.release).result(CLAIM_S)
        except KeyboardInterrupt:
            # Writing takes milliseconds, unless the storage is gone or another interrupt comes.
            with suppress(Exception, KeyboardInterrupt):
                self._pool.submit(self._write).result(CLAIM_S)
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._rescue_with_warning()
            raise
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._write(now=True)  # a device may have finished a trial since
        self._rescue()

    @property
    def _unavailable(self) -> bool:
        """Whether the storage is gone or late."""
        return self._failing or (self._asked is not None and not self._asked.done())

    @property
    def _shared(self) -> bool:
        """Whether another process may be working on the study."""
        return self._place.served or self._study.shared

    @property
    def _failing(self) -> bool:
        return self._error is not None or monotonic() < self._blind_until

    def _answer(self, config: Config, limit: int | None, deadline: float) -> bool | None:
        """The storage's answer to a claim; None if it is gone or late, until the deadline."""
        try:
            if self._asked is not None and not self._asked.done():
                self._asked.exception(CLAIM_S)
            self._asked = self._pool.submit(self._claim, config, limit)
            return self._asked.result(CLAIM_S)
        except Exception as error:
            self._blind_until = monotonic() + CLAIM_S
            if self._shared and monotonic() >= deadline:
                late = TimeoutError(errno.ETIMEDOUT, f"no answer for {CLAIM_S:.0f} s")
                reason = late if isinstance(error, LateError) else error
                raise self._place.unwritable(reason) from None
        if self._shared:
            sleep(RETRY_S)
        return None

    def _claim(self, config: Config, limit: int | None) -> bool:
        self._write(now=True)
        if self._error is not None:
            raise self._error
        return self._study.claim(config, limit)

    @property
    def _overdue(self) -> bool:
        """Whether nothing could be written for as long as the patience lasts."""
        return self._error is not None and monotonic() >= self._failing_since + self._patience_s

    def _write(self, *, now: bool = False) -> None:
        """Writes what is pending; after a failure only once in `RETRY_S`, unless `now`."""
        with self._writing:
            while self._pending:
                if self._error is not None and not now and monotonic() < self._tried + RETRY_S:
                    return
                self._tried = monotonic()
                try:
                    self._study.finish(self._pending[0], lambda: self._keep(self._written + 1))
                except Exception as error:  # of any kind: no measured trial may be lost
                    if self._error is None:
                        self._failing_since = monotonic()
                    self._error = error
                    self._keep(self._written)
                    return
                self._error = None
                self._pending.popleft()
                self._written += 1
                self._keep(self._written)

    def _keep(self, count: int) -> None:
        with self._keeping:
            self._kept = count
            self._keeping.notify_all()

    def _catch_up(self) -> None:
        self._write()
        if self._error is None:
            with suppress(Exception):  # news are not worth an error
                self._study.look()

    def _unwritable(self) -> CacheError:
        return self._place.unwritable(self._error or InterruptedError(4, "interrupted"))

    def _rescue(self) -> None:
        """Keeps what is pending elsewhere, and raises a `CacheError` that says where."""
        if pending := [self._pending.popleft() for _ in range(len(self._pending))]:
            raise rescue.unwritten(self._unwritable(), self._place.name, self._name, pending)

    def _rescue_with_warning(self) -> None:
        """Keeps what is pending elsewhere, where an error would hide another or reach nobody."""
        try:
            self._rescue()
        except CacheError as error:
            warnings.warn(str(error), stacklevel=3)
