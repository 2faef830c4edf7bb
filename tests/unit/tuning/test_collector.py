"""The garbage collector is afterwards as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from autotune.tuning import collector


@pytest.fixture(params=[True, False])
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_collector_pauses(enabled: bool) -> None:
    with collector.paused():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_failure_ends_the_pause(enabled: bool) -> None:
    with suppress(MemoryError), collector.paused():
        raise MemoryError
    assert gc.isenabled() == enabled
