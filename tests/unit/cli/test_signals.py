"""Signals to the command line: one line, the exit status, and nothing measured is lost."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest
from support.paths import import_path
from support.self_signals import run

TUNE = ("tune", "64x64x64", "--device", "h100", "--family", "naive", "--quiet")


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


KEPT = "interrupted: the measurements are kept; run again to continue"


IMPORTS = ["click", "rich.console", "autotune.tuning.loop"]


# Before the fourth measurement.
MEASURING = """
from autotune.measure.without_gpu import PredictedRunner
on_call(PredictedRunner, "measure", [None, None, None, {number}])
"""


def records(cache: Path) -> list[int]:
    """The number of trials of each record."""
    paths = sorted((cache / "families").rglob("*.json"))
    return [json.loads(path.read_text())["provenance"]["trials"] for path in paths]


@pytest.mark.parametrize("module", IMPORTS)
def test_interrupted_import_ends_in_one_line(module: str, tmp_path: Path) -> None:
    done = run(f"on_import({module!r}, {signal.SIGINT:d})", tmp_path, *TUNE)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines() in (["interrupted"], [KEPT])


@pytest.mark.parametrize("number", SIGNALS)
def test_interrupted_parsing_ends_in_one_line(number: int, tmp_path: Path) -> None:
    moment = f"import click\non_call(click.Group, 'make_context', [{number:d}])"
    done = run(moment, tmp_path, "cache", "list")
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_measuring_records_the_trials(number: int, tmp_path: Path) -> None:
    done = run(MEASURING.format(number=int(number)), tmp_path, *TUNE)
    assert (done.returncode, done.stdout) == (128 + number, "")
    *_, recorded, last = done.stderr.splitlines()
    assert last == KEPT
    assert recorded.startswith("recorded ")
    assert records(tmp_path)[0] >= 3


def test_interrupted_search_is_resumed(tmp_path: Path) -> None:
    run(MEASURING.format(number=int(signal.SIGINT)), tmp_path, *TUNE)
    assert records(tmp_path)[0] < 6
    again = run("", tmp_path, *TUNE)
    assert (again.returncode, records(tmp_path)) == (0, [6])


def test_signal_ignored_by_nohup_stays_ignored(tmp_path: Path) -> None:
    nohup = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    done = run(nohup + MEASURING.format(number=int(signal.SIGHUP)), tmp_path, *TUNE)
    assert (done.returncode, records(tmp_path)) == (0, [6])


def test_interrupt_that_becomes_another_error(tmp_path: Path) -> None:
    # Python 3.11 raises a RuntimeError for what a `__set_name__` raises.
    moment = """
import os
from autotune.records import inventory

def scan(root):
    try:
        os.kill(os.getpid(), 15)
    except KeyboardInterrupt as interrupt:
        raise RuntimeError("Error calling __set_name__") from interrupt

inventory.scan = scan
"""
    done = run(moment, tmp_path, "cache", "list")
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "interrupted\n")


def test_interrupt_that_python_ignores_is_repeated(tmp_path: Path) -> None:
    moment = """
import os, time
from autotune.records import inventory

class Fleeting:
    def __del__(self):
        os.kill(os.getpid(), 2)

def scan(root):
    Fleeting()
    time.sleep(600)

inventory.scan = scan
"""
    done = run(moment, tmp_path, "cache", "list")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_end_of_a_verb_waits_for_no_thread(tmp_path: Path) -> None:
    moment = """
import os, sys, threading, time
from autotune import cli

def main():
    threading.Thread(target=time.sleep, args=[600]).start()
    print("done")
    sys.exit(3)

cli.main = main
"""
    done = run(moment, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "")


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_second_signal_ends_saving_and_breaks_no_file(number: int, tmp_path: Path) -> None:
    saving = f"""
from autotune.records import store
on_call(store.files, "write", [{number:d}])
"""
    moments = MEASURING.format(number=int(signal.SIGINT)) + saving
    done = run(moments, tmp_path, *TUNE)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == KEPT
    assert records(tmp_path) == []
    assert [*tmp_path.rglob("*.tmp")] == []
    again = run("", tmp_path, *TUNE)
    assert (again.returncode, records(tmp_path)) == (0, [6])
    assert "3 tried before" in again.stderr or "4 tried before" in again.stderr


KILLED = """
from autotune.records import store
from autotune.measure.without_gpu import PredictedRunner
on_call({owner}, {name!r}, [9])
"""


@pytest.mark.parametrize(
    ("owner", "name"), [("store.files", "write"), ("PredictedRunner", "rematch")]
)
def test_kill_after_the_search_loses_no_trial(owner: str, name: str, tmp_path: Path) -> None:
    done = run(KILLED.format(owner=owner, name=name), tmp_path, *TUNE)
    assert (done.returncode, records(tmp_path)) == (-9, [])
    again = run("", tmp_path, *TUNE)
    assert (again.returncode, records(tmp_path)) == (0, [6])
    assert "6 tried before" in again.stderr


def test_closed_terminal_records_the_trials(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotune", "tune", "64x64x64", "--device", "h100"]
    options = ["--family", "tiled", "--sampler", "random", "--trials", "50"]
    environment = os.environ | {"PYTHONPATH": import_path(), "AUTOTUNE_CACHE_DIR": str(tmp_path)}
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, [*command, *options], environment)
    shown = b""
    while re.search(rb"[1-9]\d* trials, best", shown) is None:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert records(tmp_path)[0] > 0
