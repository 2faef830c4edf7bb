"""The storage of a tuning run: finished trials, and claims on what is being tried."""

from __future__ import annotations

import errno
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from optuna.storages import BaseStorage

from autotune.errors import CacheError
from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.axes import Axis
from autotune.tuning.search.journal import rescue
from autotune.tuning.search.journal.ledger import Ledger
from autotune.tuning.search.journal.owners import Owner
from autotune.tuning.search.journal.places import place_of
from autotune.tuning.search.journal.trials import Space
from autotune.tuning.search.journal.writer import Writer

__all__ = ["Journal", "News"]

PATIENCE_S = 60.0
# So long a claim may take before the caller goes on without knowing, ...
CLAIM_S = 5.0
# ... so often the caller sees meanwhile whether the storage is gone, ...
SLICE_S = 0.02
# ... and so long nothing is claimed after a claim that failed.
BLIND_S = 5.0


@dataclass(frozen=True)
class News:
    """What other processes do in the same study.

    Attributes:
        finished: the trials that they have finished since the last time, as they were begun.
        claimed: the configurations that those of them which are alive are trying.
    """

    finished: tuple[Trial, ...]
    claimed: frozenset[Config]


class Journal:
    """An Optuna study in a storage, as optuna-dashboard shows it. For any number of processes.

    A configuration is claimed before it is tried, as a running trial that names its process, and
    the trial is completed (pruned, for a failure) with the outcome. Whoever opens the journal
    fails the claims of processes that are gone: those of this host that have ended, and those of
    others that have claimed nothing for `owners.SILENT_S`.

    A thread writes, in order. A process that is killed loses what it finished and the thread had
    not got to yet: milliseconds, unless the storage is gone or the queue is long. While the
    storage is gone, what is finished is kept and written again with growing pauses, and claims
    are granted unseen. Trials that could not be written in the end are put into a file of the
    default cache, and from there into the storage when it is opened next. Not to be used across
    a fork.

    Attributes:
        told: the trials that were there when it was opened, in the order in which they were begun.

    Args:
        where: path of a journal file, or a storage's URL; see `places.place_of`. It may hold
            several studies.
        study: the name of this one.
        axes: what its trials are chosen from.
        patience_s: how long a storage may be gone before that is an error.

    Raises:
        CacheError: if the storage cannot be opened and written.
        MissingError: if the driver of a database is not installed.
        UsageError: if `where` is no storage.
    """

    def __init__(
        self,
        where: Path | str,
        study: str,
        axes: Sequence[Axis],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._place, self._study = place_of(where), study
        space = {axis.name: axis.plain for axis in axes}
        owner = Owner.here()
        self._ledger = self._place.opened(partial(self._read, space, owner))
        self.told = self._ledger.told
        self._heard: deque[Trial] = deque()
        self._claimed = self._ledger.claimed
        self._writer = Writer(self._ledger.finish, patience_s, owner.thread)
        self._look: Future[None] | None = None
        self._asked: Future[bool] | None = None
        self._blind_until = 0.0
        self._closed = False

    def claim(self, config: Config) -> bool:
        """Whether the configuration may be tried: nobody has tried it or is trying it.

        Waits for the storage, milliseconds as a rule. Where it does not answer for some seconds,
        or is gone, the answer is yes.
        """
        late = self._asked is not None and not self._asked.done()
        if late or self._writer.error is not None or monotonic() < self._blind_until:
            return True
        self._asked = self._writer.run(partial(self._claim, config))
        deadline = monotonic() + CLAIM_S
        while not wait([self._asked], SLICE_S).done:
            # It may be behind a trial that cannot be written.
            if self._writer.error is not None or monotonic() > deadline:
                return True
        if self._asked.exception() is not None:
            self._blind_until = monotonic() + BLIND_S
            return True
        return self._asked.result()

    def finish(self, trial: Trial) -> None:
        """Adds a finished trial, claimed or not; returns at once, unless the journal was closed.

        Raises:
            CacheError: if nothing could be written for `patience_s`. The trial is added all the
                same: call `close`.
        """
        if not self._writer.put(trial) and (error := self._lost()):
            raise error
        if self._writer.overdue:
            raise self._unwritable()

    def add(self, trial: Trial) -> None:
        """Adds a finished trial; it is on the disk when this returns.

        Raises:
            CacheError: as `flush`.
        """
        self._writer.put(trial)
        self.flush()

    def news(self) -> News:
        """What is known of the others, and has another look begun; returns at once.

        It is as of the last claim, flush or call of this.
        """
        if self._writer.error is None and (self._look is None or self._look.done()):
            self._look = self._writer.run(self._listen)
        finished = [self._heard.popleft() for _ in range(len(self._heard))]
        return News(tuple(finished), self._claimed)

    def flush(self) -> None:
        """Waits until everything is on the disk, and looks what others have done.

        Raises:
            CacheError: if the storage was gone for `patience_s`.
        """
        self._writer.drain()
        if self._writer.pending:
            raise self._unwritable()
        with suppress(Exception):  # news are not worth an error
            self._writer.run(self._listen).result()

    def close(self) -> None:
        """Waits until everything is on the disk and gives up what is still claimed.

        May be called twice. An interrupt ends the waiting.

        Raises:
            CacheError: if something could not be written; it says how much, and where it is now.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.drain()
            if not self._writer.pending:
                with suppress(Exception):  # whoever opens it next sees that the process is gone
                    self._writer.run(self._ledger.release).result(CLAIM_S)
        except KeyboardInterrupt:
            self._writer.stop(CLAIM_S)
            if error := self._lost():
                warnings.warn(str(error), stacklevel=2)
            raise
        self._writer.stop(CLAIM_S)
        if error := self._lost():
            raise error

    def _read(self, space: Space, owner: Owner, storage: BaseStorage) -> Ledger:
        ledger = Ledger(storage, self._study, space, owner)
        rescue.restore(self._place.name, self._study, ledger.restore)
        return ledger

    def _claim(self, config: Config) -> bool:
        granted = self._ledger.claim(config)
        self._hear()
        return granted

    def _listen(self) -> None:
        with suppress(Exception):  # news are not worth an error; what is written will meet it
            self._ledger.look()
            self._hear()

    def _hear(self) -> None:
        found, self._ledger.found = self._ledger.found, []
        self._heard.extend(found)
        self._claimed = self._ledger.claimed

    def _unwritable(self) -> CacheError:
        interrupted = InterruptedError(errno.EINTR, "interrupted")
        return self._place.unwritable(self._writer.error or interrupted)

    def _lost(self) -> CacheError | None:
        """Puts what is pending where it can be, and says so."""
        unwritten = self._writer.pending
        if not unwritten:
            return None
        file = rescue.keep(self._place.name, self._study, unwritten)
        where = f"kept in {file} until this is opened again" if file else "lost: nor can the cache"
        count = len(unwritten)
        return CacheError(f"{self._unwritable()}; {count} measured trials are {where}")
