"""User kernels by their names, in the place of a shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, printed, run
from support.sample_records import SQUARE, record
from support.sample_subject import user_kernel

from autotune.records import Store

CALL = "saxpy(float32[1000], int32=1000)"


@pytest.fixture(autouse=True)
def _recorded(cache: Path) -> None:
    """A cache with a problem and a user kernel."""
    Store(cache).save(record())
    Store(cache).save(user_kernel())


@pytest.mark.parametrize("name", ["saxpy", CALL, user_kernel().slug])
def test_best_prints_a_user_kernel(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", name)
    assert text.startswith(f"{CALL} on NVIDIA H100 80GB HBM3")
    assert "saxpy:THREADS=128,EACH=2" in text
    assert text == printed(capsys, "best", name, "--device", "h100")


def test_best_of_a_user_kernel_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, "best", "saxpy")
    (row,) = data["records"]
    assert (row["kernel"]["name"], len(row["entries"])) == ("saxpy", 1)
    data = answer(capsys, "best", "saxpy", "--why")
    (reasoned,) = data["records"]
    assert reasoned == row | {"why": "It is the only configuration of the record."}


def test_why_a_user_kernel_won(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", "saxpy", "--why")
    assert text.endswith("It is the only configuration of the record.\n")


def test_trials_of_a_user_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("best", "saxpy", "--trials") == 0
    shown = capsys.readouterr()
    assert "saxpy:THREADS=128,EACH=2" in shown.out
    assert "TFLOP/s" not in shown.out
    assert "its log of trials is not in this cache" in shown.err
    data: Any = answer(capsys, "best", "saxpy", "--trials")
    assert [row["THREADS"] for row in data["trials"]] == [128]


def test_list_shows_the_records_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for word, title in (("saxpy", CALL), (SQUARE.shape, str(SQUARE)), ("4096x4096x4096", None)):
        data: Any = answer(capsys, "cache", "list", word)
        assert [row["problem"] for row in data["records"]] == [title or str(SQUARE)]
    assert printed(capsys, "cache", "list", "blur") == "no records of blur\n"
    data = answer(capsys, "cache", "list", "saxpy", str(SQUARE))
    assert len(data["records"]) == 2


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("best", "blur"), 3, "no kernel 'blur' is recorded"),
        (("best", "saxpy", "saxpy:EACH=1"), 2, "a user kernel takes no CONFIG"),
        (("best", "saxpy", "--rules"), 2, "a user kernel takes no --rules; leave it out"),
        (("best", "saxpy", "--exact"), 2, "a user kernel takes no --exact; leave it out"),
        (
            ("check", "saxpy", "--against", "b.xz"),
            2,
            "saxpy: a bundle has no times of user kernels",
        ),
        (("tune", "saxpy"), 2, "or the file of a user kernel: tune SPEC.py"),
        (("cache", "list", "saxpy", "--fingerprint"), 2, "saxpy: a fingerprint is of shapes"),
        (("cache", "list", "--batch-invariant"), 2, "--batch-invariant is of --fingerprint"),
        (("cache", "list", "--fingerprint", "--problems"), 2, "--fingerprint takes no --problems"),
        (("occupancy", "x.py", "--threads", "64"), 2, "a user kernel takes no --threads"),
        (("occupancy", "x.py", "h100", "t4"), 2, "one SPEC.py and one device at a time"),
    ],
)
def test_what_user_kernels_do_not_have_is_one_line(
    words: tuple[str, ...], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
