"""Sample trial logs: configurations, trials, and what several processes do with them.

The processes import this module, and neither pytest nor, without a storage, Optuna.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.tuning.trial_log import Owner, TrialLog
from autotune.tuning.trials import Trial
from support.paths import import_path

if TYPE_CHECKING:
    import pytest

    from autotune.tuning.search.storage import SharedLog

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


STUDY = "simt"


def log(path: Path) -> TrialLog:
    """The log of a study in a file."""
    return TrialLog(path, STUDY)


def shared(url: str, path: Path) -> SharedLog:
    """The log of a study that is in a storage too."""
    from autotune.tuning.search.axes import axes_of
    from autotune.tuning.search.storage import SharedLog

    return SharedLog(path, STUDY, url, STUDY, axes_of(CONFIGS))


def measured(config: Config, time_us: float = 12.5) -> Trial:
    return Trial(config, Measurement(time_us))


def as_process(monkeypatch: pytest.MonkeyPatch, **facts: str | int) -> None:
    """Lets logs be opened as by another process from now on."""
    owner = Owner.of_this_process()

    def of_this_process() -> Owner:
        return replace(owner, run=os.urandom(8).hex(), **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(Owner, "of_this_process", of_this_process)


# Claims every configuration it can get, in the same order as other processes.
PROCESS = """
import sys, time
from pathlib import Path
from support.sample_logs import CONFIGS, log, measured, shared
path, then, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
opened = shared(url, path) if url else log(path)
if then == "together":
    print("ready", flush=True)
    sys.stdin.readline()
for config in CONFIGS:
    if opened.claim(config):
        print(config, flush=True)
        if then == "dies":
            time.sleep(60)
        if then == "together":
            time.sleep(0.02)
        opened.finish(measured(config))
opened.close()
"""


def process(
    path: Path, then: str = "ends", url: str = "", *, inside: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """A process that claims, by a command `inside` which it runs."""
    command = [*inside, sys.executable, "-c", PROCESS, str(path), then, url]
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": import_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begin(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Lets processes that claim `together` begin once all of them have opened the log."""
    for opened in processes:
        assert opened.stdout is not None
        assert opened.stdout.readline() == "ready\n"
    for opened in processes:
        assert opened.stdin is not None
        opened.stdin.write("\n")
        opened.stdin.flush()
