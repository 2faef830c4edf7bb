"""A study on a PostgreSQL server that several processes share while one of them and it die."""

from __future__ import annotations

import pytest
from support.postgres_server import PostgresServer
from support.postgres_server import postgres as postgres
from support.sample_journals import cache as cache
from support.served_studies import survives_two_deaths, waits_for_the_server

pytestmark = pytest.mark.usefixtures("cache")


def test_nothing_is_tried_twice_after_two_deaths(postgres: PostgresServer) -> None:
    survives_two_deaths(postgres)


def test_process_that_knows_no_other_waits(postgres: PostgresServer) -> None:
    waits_for_the_server(postgres)
