"""Objects in processes of their own, and GPUs that share work."""

from __future__ import annotations

import os
import threading
from functools import partial

import pytest
from apart import Apart, Failed, median, on_gpus


def test_object_in_a_process_answers_until_it_ends() -> None:
    cores = sorted(os.sched_getaffinity(0))
    other = Apart(partial(__import__, "os"), {"AUTOTUNE_TEST": "set"}, cores)
    try:
        assert other("getenv", "AUTOTUNE_TEST") == "set"
        assert other("getpid") != os.getpid()
        with pytest.raises(Failed, match=r"ValueError: .*embedded null"):
            other("stat", "\0")
        with pytest.raises(Failed, match="ended before it answered _exit"):
            other("_exit", 3)
    finally:
        other.close()


def test_object_that_cannot_be_made_is_an_error() -> None:
    other = Apart(partial(__import__, "missing_module"), {}, sorted(os.sched_getaffinity(0)))
    try:
        with pytest.raises(Failed, match="ModuleNotFoundError: No module named 'missing_module'"):
            other("anything")
    finally:
        other.close()


class Waiting:
    """An object whose process has a thread that never ends."""

    def __init__(self) -> None:
        threading.Thread(target=threading.Event().wait).start()

    def pid(self) -> int:
        return os.getpid()


def test_process_ends_at_once_whatever_its_threads_do() -> None:
    other = Apart(Waiting, {}, sorted(os.sched_getaffinity(0)))
    assert other("pid") != os.getpid()
    other.close()
    assert other.process.exitcode == 0


def test_gpus_take_items_with_their_share_of_the_cores() -> None:
    both = threading.Barrier(2, timeout=60)

    def run(item: int, gpu: str, cores: list[int]) -> tuple[int, str, list[int]]:
        both.wait()
        return item, gpu, cores

    found = [*on_gpus(["0", "1"], range(4), run)]
    assert [item for item, _, _ in found] == [0, 1, 2, 3]
    shares = {gpu: cores for _, gpu, cores in found}
    each = len(os.sched_getaffinity(0)) // 2 or 1
    assert [*map(len, shares.values())] in ([each, each], [each, 0], [0, each])
    assert {*shares} == {"0", "1"}
    assert not {*shares["0"]} & {*shares["1"]}


def test_spread_is_half_the_interquartile_range() -> None:
    assert median([1.0, 2.0, 3.0, 4.0, 9.0]) == {"us": 3.0, "spread_us": 2.5}
