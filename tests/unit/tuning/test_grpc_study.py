"""A study behind Optuna's gRPC proxy that several processes share while one of them and it die."""

from __future__ import annotations

import sys

import pytest
from support.grpc_server import GrpcServer
from support.grpc_server import grpc_server as grpc_server
from support.sample_journals import CONFIGS, OTHERS, add, journal, measured
from support.sample_journals import cache as cache
from support.served_studies import survives_two_deaths, waits_for_the_server

from autotune.errors import CacheError, MissingError, UsageError
from autotune.tuning.search.journal import grpc_proxy

pytestmark = pytest.mark.usefixtures("cache")


def test_nothing_is_tried_twice_after_two_deaths(grpc_server: GrpcServer) -> None:
    survives_two_deaths(grpc_server)


def test_process_that_knows_no_other_waits(grpc_server: GrpcServer) -> None:
    waits_for_the_server(grpc_server)


def test_configurations_of_other_words_are_kept(grpc_server: GrpcServer) -> None:
    opened = journal(grpc_server.url)
    trials = [measured(config) for config in (CONFIGS[0], OTHERS[0])]
    for trial in trials:
        assert opened.claim(trial.config)
        add(opened, trial)
    opened.close()
    assert journal(grpc_server.url).told == trials


def test_server_that_does_not_answer_is_an_error(
    grpc_server: GrpcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_proxy, "DEADLINE_S", 1e-6)
    monkeypatch.setattr("autotune.tuning.search.journal.places.PAUSES_S", ())
    with pytest.raises(CacheError, match="cannot be written: DEADLINE_EXCEEDED: "):
        journal(grpc_server.url)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingError, match=r"pip install grpcio 'protobuf>=5\.28\.1'$"):
        journal("grpc://nowhere:13000")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("grpc://host", ("host", 13000)),
        ("grpc://10.0.0.1:80/", ("10.0.0.1", 80)),
        ("grpc://[::1]:13001", ("[::1]", 13001)),
    ],
)
def test_url_names_host_and_port(url: str, expected: tuple[str, int]) -> None:
    assert grpc_proxy.address(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "grpc://",
        "grpc://host:0",
        "grpc://host:65536",
        "grpc://host:x",
        "grpc://me@host",
        "grpc://h/a",
    ],
)
def test_url_without_an_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a gRPC proxy; write grpc://HOST:13000"):
        journal(url)
