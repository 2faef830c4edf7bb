"""Sample journals: configurations, trials, and what several processes do with them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import optuna
import pytest

from autotune import settings
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal, axes_of
from autotune.tuning.search.journal import trials
from support.paths import import_path

CONFIGS = [
    Config.of("square", {"bm": bm, "bk": bk, "order": order})
    for bm, bk, order in product((32, 64, 128, 256), (8, 16, 32), ("columns", "rows", "snake"))
]
OTHERS = [Config.of("thin", {"bk": bk, "splits": splits}) for bk in (16, 64) for splits in (1, 8)]
MEASURED = Trial(
    CONFIGS[0],
    Measurement(12.5, 0.25, 20, 13.0, 1e-4, 1e-3),
    Resources(256, 128, 8192, 0, 1),
    0.25,
    "registers and shared memory",
)
FAILED = Trial(CONFIGS[1], Failure("compile", "error: expected a ;\nsecond line"))


def journal(where: Path | str, study: str = "simt", *, patience_s: float = 60.0) -> Journal:
    return Journal(where, study, axes_of(CONFIGS), patience_s=patience_s)


def add(opened: Journal, trial: Trial) -> None:
    """Adds a trial, which is on the disk when this returns."""
    opened.finish(trial)
    opened.flush()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "spare_dirs", list)
    return tmp_path / "cache"


def measured(config: Config, time_us: float = 12.5) -> Trial:
    return Trial(config, Measurement(time_us))


def states(path: Path) -> list[tuple[str, str | None]]:
    """The state of each trial as Optuna sees it, and why one without an outcome ended."""
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    return [(trial.state.name, trial.user_attrs.get("ended")) for trial in study.trials]


def left_behind(
    monkeypatch: pytest.MonkeyPatch, path: Path, *, host: str | None = None, finish: bool = False
) -> None:
    """Leaves a claim on the first configuration by a process that has ended or of another host."""
    owner = trials.owner()
    boot = owner["started"].partition(":")[0]
    owner |= {"host": host or socket.gethostname(), "started": f"{boot}:0"}
    with monkeypatch.context() as patch:
        patch.setattr(trials, "owner", lambda: owner)
        opened = journal(path)
    assert opened.claim(CONFIGS[0])
    if finish:
        add(opened, measured(CONFIGS[0]))


# Claims every configuration it can get, in the same order as other processes.
PROCESS = """
import sys, time
from support.sample_journals import CONFIGS, journal, measured
opened = journal(sys.argv[1])
if sys.argv[2] == "together":
    print("ready", flush=True)
    sys.stdin.readline()
for config in CONFIGS:
    if opened.claim(config):
        print(config, flush=True)
        if sys.argv[2] == "dies":
            time.sleep(60)
        if sys.argv[2] == "together":
            time.sleep(0.02)
        opened.finish(measured(config))
opened.close()
"""


def process(where: str, then: str = "ends", *, inside: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A process that claims, by a command `inside` which it runs."""
    paths = import_path()
    command = [*inside, sys.executable, "-c", PROCESS, where, then]
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begin(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Lets processes that claim `together` begin once all of them have opened the journal."""
    for opened in processes:
        assert opened.stdout is not None
        assert opened.stdout.readline() == "ready\n"
    for opened in processes:
        assert opened.stdin is not None
        opened.stdin.write("\n")
        opened.stdin.flush()
