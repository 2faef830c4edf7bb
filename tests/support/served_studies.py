"""The promises of a study on any server that several processes share."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Protocol

import pytest

from autotune.errors import CacheError
from autotune.tuning.trial_log import read
from support.sample_logs import CONFIGS, begin, measured, process, shared


class Server(Protocol):
    """A server that can be crashed and started again."""

    url: str

    def start(self) -> None: ...
    def crash(self) -> None: ...


def hosts_try_all_once(server: Server, folder: Path) -> None:
    """Processes with logs of their own, as on several hosts, share the study; one of them dies."""
    doomed = process(folder / "doomed.jsonl", "dies", server.url)
    assert doomed.stdout is not None
    at_hand = doomed.stdout.readline().strip()
    tuners = [process(folder / f"{name}.jsonl", "together", server.url) for name in "ab"]
    begin(tuners)
    doomed.kill()
    doomed.communicate()
    tried = [line for tuner in tuners for line in tuner.communicate(timeout=240)[0].splitlines()]
    assert [tuner.returncode for tuner in tuners] == [0, 0]
    late = process(folder / "late.jsonl", "ends", server.url)
    tried += late.communicate(timeout=240)[0].splitlines()
    assert at_hand in tried
    assert Counter(tried) == Counter(map(str, CONFIGS))
    told = shared(server.url, folder / "reader.jsonl").told
    assert sorted(str(trial.config) for trial in told) == sorted(tried)


def ends_the_search_in_one_line(server: Server, folder: Path) -> None:
    """A storage that fails is an error of one line, and every trial is in the local log."""
    path = folder / "study.jsonl"
    opened = shared(server.url, path)
    assert opened.claim(CONFIGS[0])
    time.sleep(0.1)
    server.crash()
    opened.finish(measured(CONFIGS[0]))
    with pytest.raises(CacheError, match=r"the storage failed: .*; see whether it runs") as end:
        opened.check()
    assert "\n" not in str(end.value)
    with pytest.raises(CacheError, match="the storage failed"):
        opened.claim(CONFIGS[1])
    with pytest.raises(CacheError, match="the storage failed"):
        opened.close()
    assert [row.trial for row in read(path).trials] == [measured(CONFIGS[0])]
    server.start()
    again = shared(server.url, path)
    assert again.told == (measured(CONFIGS[0]),)
    assert again.claim(CONFIGS[1])
    again.close()
