"""The calls of Kernel Tuner in `docs/kernel-authors.md`: what stands beside them runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.document_commands import blocks
from support.paths import ROOT
from support.sample_records import H100
from support.sample_user_kernels import KernelRunner

from autotune.api.words import KERNEL_TUNER
from autotune.families.config import Config
from autotune.measure import devices
from autotune.measure.measurement import Measurement
from autotune.measure.runner import Candidate
from autotune.user_kernels import bench
from autotune.user_kernels.workload import Workload

GUIDE = ROOT / "docs" / "kernel-authors.md"
CALLS, RUN_KERNEL = (
    block for block in blocks([GUIDE], "py") if re.search(r"^# \d", block.text, re.M)
)


class AnyKernelRunner(KernelRunner):
    """A runner that takes any kernel, compiled as for a GPU."""

    driver = "13.0"

    def open(
        self, work: Workload, index: int, *, time_limit: float, device: object = None
    ) -> AnyKernelRunner:
        del index, time_limit, device
        self.work = work
        return self

    def switch_to(self, work: Workload, time_limit: float) -> None:
        del time_limit
        self.work = work

    def results(self, candidate: Candidate) -> Sequence[NDArray[Any]]:
        del candidate
        return [np.ones_like(buffer.before) for buffer in self.work.buffers]

    def _outcome(self, config: Config) -> Measurement:
        return Measurement(10.0 + len(str(config)))


def test_calls_beside_those_of_kernel_tuner_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = AnyKernelRunner()
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "probe", lambda _=0: H100)
    monkeypatch.setattr(bench, "open_kernel_runner", runner.open)
    exec(compile(CALLS.text, str(CALLS), "exec"), {"__name__": "calls"})
    assert {config.family for config in runner.measured} == {"vector_add"}
    assert (tmp_path / "mine.json.gz").exists()
    assert compile(RUN_KERNEL.text, str(RUN_KERNEL), "exec")
    numbers = re.findall(r"^# (\d+)  (?:tune|run)_kernel\(", CALLS.text + RUN_KERNEL.text, re.M)
    assert numbers == [str(number) for number in range(1, 11)]


def test_table_has_the_words_of_the_errors() -> None:
    text = GUIDE.read_text("utf-8").split("## Coming from Kernel Tuner\n", 1)[1]
    rows = re.findall(r"^\| (`.*) \| (.*) \|$", text.split("\n## ", 1)[0], re.M)
    table = {
        word: ours.replace("`", "")
        for words, ours in rows
        for word in re.findall(r"`(.*?)`", words)
    }
    assert table == KERNEL_TUNER
