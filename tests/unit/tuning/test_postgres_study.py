"""A study on a PostgreSQL server that several processes share while one of them and it die."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from support.postgres_server import PostgresServer
from support.postgres_server import postgres as postgres
from support.sample_journals import CONFIGS, begin, journal, process
from support.sample_journals import cache as cache

from autotune.tuning.search.journal import CLAIM_S

pytestmark = pytest.mark.usefixtures("cache")

OUTAGE_S = CLAIM_S + 1.0
"""Longer than a claim may take."""


def test_nothing_is_tried_twice_after_two_deaths(postgres: PostgresServer) -> None:
    doomed = process(postgres.url, "dies")
    assert doomed.stdout is not None
    at_hand = doomed.stdout.readline().strip()
    tuners = [process(postgres.url, "together") for _ in range(2)]
    begin(tuners)
    outputs = [tuner.stdout for tuner in tuners if tuner.stdout is not None]
    tried = [output.readline().strip() for output in outputs]
    doomed.kill()
    doomed.communicate()
    postgres.crash()
    time.sleep(OUTAGE_S)
    postgres.start()
    tried += [line for output in outputs for line in output.read().splitlines()]
    assert [tuner.wait(timeout=60) for tuner in tuners] == [0, 0]
    everything = Counter(map(str, CONFIGS))
    assert Counter(filter(None, tried)) <= everything
    told = Counter(str(trial.config) for trial in journal(postgres.url).told)
    assert everything - told <= Counter([at_hand])
    assert told <= everything
