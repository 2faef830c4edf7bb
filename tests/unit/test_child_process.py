"""Messages to child processes."""

from __future__ import annotations

from multiprocessing import Pipe

import numpy as np
import pytest

from autotune import child_process


@pytest.mark.parametrize(
    "message",
    [
        ("measure", (1, "text", None)),
        {"large": np.arange(4_000_000.0), "odd": np.arange(7, dtype=np.int8), "none": np.zeros(0)},
    ],
    ids=["without arrays", "with arrays"],
)
def test_message_arrives_without_a_reader_waiting(message: object) -> None:
    end, other = Pipe()
    with end, other:
        child_process.send(end, message)  # a pipe holds a few hundred kilobytes
        child_process.send(end, "next")
        received = child_process.receive(other)
        np.testing.assert_equal(received, message)
        assert child_process.receive(other) == "next"


def test_received_arrays_are_copies() -> None:
    end, other = Pipe()
    own = np.arange(1000.0)
    with end, other:
        child_process.send(end, own)
        received = child_process.receive(other)
    received[:] = 7
    assert own[3] == 3
