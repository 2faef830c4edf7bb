"""Objects in processes of their own."""

from __future__ import annotations

import os
from functools import partial

import pytest
from apart import Apart, Failed, median


def test_object_in_a_process_answers_until_it_ends() -> None:
    cores = sorted(os.sched_getaffinity(0))
    other = Apart(partial(__import__, "os"), {"AUTOTUNE_TEST": "set"}, cores)
    try:
        assert other("getenv", "AUTOTUNE_TEST") == "set"
        assert other("getpid") != os.getpid()
        with pytest.raises(Failed, match="ValueError: embedded null byte"):
            other("stat", "\0")
        with pytest.raises(Failed, match="ended before it answered _exit"):
            other("_exit", 3)
    finally:
        other.close()


def test_spread_is_half_the_interquartile_range() -> None:
    assert median([1.0, 2.0, 3.0, 4.0, 9.0]) == {"us": 3.0, "spread_us": 2.5}
