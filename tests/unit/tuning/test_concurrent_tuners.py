"""Tuners of one problem in several processes, and interrupted ones, lose no trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support.fake_runner import tiled
from support.paths import import_path
from support.sample_records import H100, SQUARE
from support.sample_study import store as store
from support.sample_study import told

from autotune.records import Store

SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not


# A tuner that logs what it measures; it runs beside another one, or is interrupted.
PROCESS = """
import sys, time
from pathlib import Path
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled
from support.sample_records import SQUARE
from autotune.records import Store, codec
from autotune.tuning.tunable import GemmTunable
from autotune.tuning.loop import Search, tune

codec.ROOFLINE_SHARE = codec.LEAST_US = 0.0  # the times are made up

def outcome(config):
    time.sleep(float(sys.argv[4]))
    with open(sys.argv[2], "a") as file:
        file.write(f"{config}\\n")
    return by_width(config)

runner, store = FakeRunner(outcome, again=by_width), Store(Path(sys.argv[1]))
tiles = GemmTunable(SQUARE, "tiled")
options = Search(trials=eval(sys.argv[3]), sampler="random")
tune(tiles, runner, store, options, compile=compiled, origin=ORIGIN)
"""


def started(
    store: Store, log: Path, *, trials: int | None = None, pause_s: float = 0.02
) -> subprocess.Popen[str]:
    paths = import_path(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(store.root), str(log), str(trials), str(pause_s)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    )


def measured(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_two_tuners_lose_and_repeat_nothing(store: Store, tmp_path: Path) -> None:
    logs = [tmp_path / "one", tmp_path / "other"]
    for tuner in [started(store, log) for log in logs]:
        errors = tuner.communicate(timeout=60)[1]
        assert (tuner.returncode, errors) == (0, "")
    kept = [str(trial.config) for trial in told(store)]
    assert Counter(kept) == Counter(measured(logs[0]) + measured(logs[1]))
    assert len(set(kept)) == len(kept) == SPACE
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert saved.best.config == tiled(23, specialized=0)


def test_tuners_of_one_problem_share_the_trial_limit(store: Store, tmp_path: Path) -> None:
    tuners = [started(store, tmp_path / "log", trials=20) for _ in range(3)]
    assert [tuner.wait(timeout=60) for tuner in tuners] == [0, 0, 0]
    assert len(measured(tmp_path / "log")) == 20
    assert len(told(store)) == 20


def claimed(store: Store) -> bool:
    """Whether the log has a claim."""
    return any(b'"claim"' in path.read_bytes() for path in store.root.glob("studies/*/*.jsonl"))


def test_tuners_make_up_for_a_killed_one(store: Store, tmp_path: Path) -> None:
    doomed = started(store, tmp_path / "doomed", trials=20, pause_s=60.0)
    while not claimed(store):
        assert doomed.poll() is None
        time.sleep(0.01)
    log = tmp_path / "log"
    tuners = [started(store, log, trials=20, pause_s=0.1) for _ in range(2)]
    while not measured(log):
        time.sleep(0.01)
    doomed.kill()
    assert [tuner.wait(timeout=60) for tuner in tuners] == [0, 0]
    assert len(told(store)) == 20


def interrupted(store: Store, log: Path, pauses: list[float]) -> subprocess.Popen[str]:
    """A tuner that got Ctrl-C after 12 measurements, and again after each of the pauses."""
    tuner = started(store, log)
    while len(measured(log)) < 12:
        assert tuner.poll() is None
        time.sleep(0.001)
    tuner.send_signal(signal.SIGINT)
    for pause in pauses:
        time.sleep(pause)
        tuner.send_signal(signal.SIGINT)
    began = time.monotonic()
    tuner.communicate(timeout=60)
    assert time.monotonic() - began < 5
    return tuner


@pytest.mark.parametrize("pauses", [[], [0.002], [0.02, 0.02]])
def test_repeated_ctrl_c_loses_nothing(store: Store, tmp_path: Path, pauses: list[float]) -> None:
    log = tmp_path / "log"
    tuner = interrupted(store, log, pauses)
    assert tuner.returncode == -signal.SIGINT
    first = measured(log)
    kept = {str(trial.config) for trial in told(store)}
    assert kept >= set(first)
    saved = store.family(H100, SQUARE, "tiled")
    assert pauses or (saved is not None and saved.provenance.trials >= 11)
    assert started(store, log).wait(timeout=60) == 0
    assert Counter(measured(log)).most_common(1)[0][1] == 1
    assert len(measured(log)) == SPACE
