"""The promises of a study on any server that several processes share."""

from __future__ import annotations

import time
from collections import Counter
from typing import Protocol

import pytest

from autotune.errors import CacheError
from support.sample_journals import CONFIGS, add, begin, journal, measured, process

OUTAGE_S = 1.0
"""Long enough for every process to meet the outage: a claim follows each trial, of 0.02 s."""


class Server(Protocol):
    """A server that can be crashed and started again."""

    url: str

    def start(self) -> None: ...
    def crash(self) -> None: ...


def survives_two_deaths(server: Server) -> None:
    """Nothing is lost or tried twice when a process and then the server die."""
    doomed = process(server.url, "dies")
    assert doomed.stdout is not None
    at_hand = doomed.stdout.readline().strip()
    tuners = [process(server.url, "together") for _ in range(2)]
    begin(tuners)
    outputs = [tuner.stdout for tuner in tuners if tuner.stdout is not None]
    tried = [output.readline().strip() for output in outputs]
    doomed.kill()
    doomed.communicate()
    server.crash()
    time.sleep(OUTAGE_S)
    server.start()
    late = process(server.url)
    tried += [line for output in outputs for line in output.read().splitlines()]
    tried += late.communicate()[0].splitlines()
    assert [tuner.wait(timeout=60) for tuner in (*tuners, late)] == [0, 0, 0]
    everything = Counter(map(str, CONFIGS))
    assert Counter(filter(None, tried)) - everything == Counter()
    told = Counter(str(trial.config) for trial in journal(server.url).told)
    assert everything - told <= Counter([at_hand])
    assert told <= everything


def waits_for_the_server(server: Server) -> None:
    """A process that has heard of no other still waits, since one may have joined."""
    opened = journal(server.url, patience_s=0.3)
    assert opened.claim(CONFIGS[0])
    joined = journal(server.url)
    assert joined.claim(CONFIGS[1])
    server.crash()
    with pytest.raises(
        CacheError, match=r"cannot be written: .*; see whether it runs and has room"
    ):
        opened.claim(CONFIGS[1])
    server.start()
    opened._patience_s = 60.0
    assert opened.claim(CONFIGS[2])
    assert not opened.claim(CONFIGS[1])
    for writer, config in ((opened, CONFIGS[0]), (joined, CONFIGS[1])):
        add(writer, measured(config))
        writer.close()
    assert {trial.config for trial in journal(server.url).told} == {*CONFIGS[:2]}
