"""The reliability campaign: its small run, and that it notices what it looks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import campaign
import kept
import kills
import mutations
import pytest
import tuners
from kills import Run
from support.paths import ROOT, import_path
from support.sample_records import H100, entry, record
from tuners import Fork, Found, Outcome, Place, Team, merged

SCRIPT = ROOT / "scripts" / "attack" / "campaign.py"


def started(*words: str) -> tuple[int, str]:
    """Exit status and output of the script."""
    command = [sys.executable, str(SCRIPT), *words]
    environment = os.environ | {"PYTHONPATH": import_path()}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("part", campaign.PARTS)
def test_small_run_breaks_no_promise(part: str, tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    status, printed = started("--only", part, "--json", str(file))
    assert (status, json.loads(file.read_text())["parts"][part]["broken"]) == (0, []), printed


def test_results_carry_their_provenance() -> None:
    content = campaign.document({"kills": Outcome({"kills": 1})}, {"kills": 1.0}, 0, 1.0, "abc")
    names = ("device", "driver", "toolkit", "commit", "date", "python", "system", "seed")
    assert all(name in content for name in names)


@pytest.mark.parametrize("name", campaign.PARTS)
def test_document_states_each_part_and_its_full_count(name: str) -> None:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line]
    assert rows
    assert any(f"{campaign.PARTS[name].full:,}" in row for row in rows)


def test_unknown_part_is_a_usage_error() -> None:
    status, printed = started("--only", "nothing")
    assert (status, "kills" in printed) == (2, True)


def test_part_that_dies_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "PARTS", {"gone": campaign.Part("gone", 1, 1)})
    shares = campaign.planned(["gone"], False, None, 0)
    outcomes, _ = campaign.run_parts(shares, 1)
    assert "ended with 1" in outcomes["gone"].broken[0]


def test_full_counts_are_divided_over_the_shares() -> None:
    shares = campaign.planned(["kills"], True, None, 3)
    assert sum(share.count for share in shares) == campaign.PARTS["kills"].full
    assert len({share.seed for share in shares}) == len(shares)


def test_shares_add_up() -> None:
    whole = merged([Outcome({"a": 1}, {"s": 2.0}, ("x",)), Outcome({"a": 2}, {"s": 1.0}, ("y",))])
    assert (whole.counts, whole.peaks, whole.broken) == ({"a": 3}, {"s": 2.0}, ("x", "y"))


# Forks and the sandbox


def test_messages_survive_the_death_of_their_sender() -> None:
    def run(send: tuners.Send) -> None:
        send({"told": 1})
        os.kill(os.getpid(), signal.SIGKILL)

    fork = Fork(run)
    assert ([*fork.messages(10)], fork.ended()) == ([{"told": 1}], -9)


def misbehave(number: int) -> list[str]:
    """Case 1 hangs, 2 crashes, 3 raises, 4 needs 300 MB more, 5 is faulty."""
    if number == 1:
        time.sleep(60)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 3:
        raise KeyError("missing")
    if number == 4:
        return [] if len(bytearray(300 * 2**20)) else ["empty"]
    return ["wrong"] if number == 5 else []


def test_sandbox_tells_hangs_crashes_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "SECONDS", 2.0)
    # A fork begins with part of the memory of the process that runs the tests.
    (idle,) = mutations.verdicts(1, lambda _: [])
    monkeypatch.setattr(mutations, "MEMORY_MB", idle.peak_mb + 200)
    faults = [", ".join(verdict.faults) for verdict in mutations.verdicts(7, misbehave)]
    expected = ["", "hangs", "SIGKILL", "KeyError", "needs", "wrong", ""]
    assert all(text in fault for text, fault in zip(expected, faults, strict=True)), faults
    assert [bool(fault) for fault in faults] == [bool(text) for text in expected]


# The faults that each part looks for


def test_cases_repeat_with_their_seed() -> None:
    cases = [mutations.case_of(number, 7) for number in range(50)]
    assert cases == [mutations.case_of(number, 7) for number in range(50)]
    assert len({case.damage for case in cases}) > 8


@pytest.mark.parametrize("kind", kept.KINDS)
def test_intact_files_are_read_without_a_fault(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    messages = tuners.answer(lambda send: send(read_intact(kind, tmp_path)))
    assert messages == [[]]


def read_intact(kind: str, folder: Path) -> list[str]:
    case = mutations.Case(kind, "cut", "", inside=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutations, "DAMAGES", {"cut": lambda _, data: data})
        return mutations.attempt(case, folder)


@pytest.mark.parametrize(
    "change",
    [
        {"measurement": replace(entry(16, 9.0).measurement, spread_us=-1.0)},
        {"measurement": replace(entry(16, 9.0).measurement, time_us=float("nan"))},
        {"resources": replace(entry(16, 9.0).resources, threads=-256)},
        {"resources": replace(entry(16, 9.0).resources, registers=2**63)},
        {"occupancy": 1.5},
    ],
)
def test_impossible_records_are_noticed(change: dict[str, Any]) -> None:
    assert kept.impossible(record(replace(entry(16, 9.0), **change))) != []
    assert kept.impossible(record(entry(16, 9.0))) == []


def test_impossible_devices_are_noticed() -> None:
    assert kept.impossible(replace(H100, warp_size=4096)) != []


def team(folder: Path, *logs: str, killed: tuple[int, ...] = ()) -> list[str]:
    """The faults of tuners that measured the letters of their logs, with `--trials 4`."""
    for number, log in enumerate(logs):
        (folder / f"tuner-{number}").write_text("".join(f"{letter}\n" for letter in log))
    made = Team(Place(folder), folder, Random(0), {*killed})
    return made.miscounted(Found([*dict.fromkeys("".join(logs))], 0, True, ()), trials=4)


@pytest.mark.parametrize(
    ("logs", "killed", "fault"),
    [
        (("ab", "cd"), (), ""),
        (("ab", "bcd"), (0,), ""),
        (("ab", "bcd"), (), "1 of 4 measured twice: b"),
        (("ab", "acd"), (0,), "1 of 4 measured twice: a"),
        (("abc", "def"), (), "6 measurements for --trials 4"),
        (("ab", "c"), (), "ended with 3 of 4 trials"),
    ],
)
def test_miscounts_of_a_team_are_noticed(
    logs: tuple[str, ...], killed: tuple[int, ...], fault: str, tmp_path: Path
) -> None:
    wrong = team(tmp_path, *logs, killed=killed)
    assert fault in "".join(wrong)
    assert bool(fault) == bool(wrong)


INTERRUPTED = Run(signal.SIGTERM, 1.0, 143, "12 trials, best 3.1 TFLOP/s\ninterrupted\n", 0.1)
KEPT = Found(("a",) * 12, 12, record=True, faults=())


@pytest.mark.parametrize(
    ("run", "left", "fault"),
    [
        (INTERRUPTED, KEPT, ""),
        (replace(INTERRUPTED, status=1), KEPT, "ended with 1"),
        (replace(INTERRUPTED, status=130), KEPT, "ended with 130"),
        (replace(INTERRUPTED, errors="Traceback: autotune/x.py"), KEPT, "a traceback"),
        (replace(INTERRUPTED, errors="Traceback: <frozen os>", status=1), KEPT, ""),
        (INTERRUPTED, replace(KEPT, record=False), "no record"),
        (INTERRUPTED, replace(KEPT, trials=("a",) * 11), "told 12 trials, kept 11"),
        (INTERRUPTED, replace(KEPT, faults=("x.json: broken",)), "x.json: broken"),
    ],
)
def test_faults_of_an_interrupted_run_are_noticed(run: Run, left: Found, fault: str) -> None:
    assert fault in "".join(kills.faults(run, left))
    assert bool(fault) == bool(kills.faults(run, left))


FULL = {"error": "disk full; measured trials in no file: 1", "lost": ["b"], "record": False}
TOLD = [{"told": "a", "timed": True}, {"told": "b", "timed": True}]


@pytest.mark.parametrize(
    ("messages", "kept_trials", "fault"),
    [
        ([*TOLD, FULL], {"a"}, ""),
        ([*TOLD], {"a", "b"}, ""),
        ([*TOLD, FULL], set(), "lost and not counted"),
        ([*TOLD], {"a"}, "lost and not counted"),
        ([*TOLD, FULL | {"error": "disk full"}], {"a"}, "the error says: disk full"),
        ([*TOLD, {"raised": "OSError"}], {"a", "b"}, "raised OSError"),
    ],
)
def test_untold_losses_on_a_full_disk_are_noticed(
    messages: list[Any], kept_trials: set[str], fault: str
) -> None:
    wrong = kills.missing(messages, kept_trials)
    assert fault in "".join(wrong)
    assert bool(fault) == bool(wrong)
