"""The seconds of a call that tunes a user kernel: kept with slow candidates, and soon a result."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.tuning.options import Search
from autotune.tuning.trials import Observer, Progress, Trial

SECONDS = 4.0

FEW, MANY = 1 << 20, 1 << 23
"""Elements of an array: 4 and 32 MB."""

SPINNING = """
template <int THREADS, int EACH, int SPIN>
__global__ void spinning(float* out, const float* in, int n) {
    const long long until = clock64() + SPIN * 100000LL;  // 50 to 100 us each
    for (int i = 0; i < EACH; ++i) {
        const int at = (blockIdx.x * EACH + i) * THREADS + threadIdx.x;
        if (at < n) out[at] = 2.0f * in[at];
    }
    while (SPIN && clock64() < until) {}
}
"""


class Watch(Observer):
    """Notes when trials finish, in seconds from now."""

    def __init__(self) -> None:
        self.began = monotonic()
        self.finished_s: list[float] = []
        self.samples: list[tuple[float, int]] = []

    def trial(self, trial: Trial, progress: Progress) -> None:
        del progress
        self.finished_s.append(monotonic() - self.began)
        assert not hasattr(trial.outcome, "stage"), trial.outcome
        self.samples.append((trial.outcome.time_us, trial.outcome.samples))


pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.timing]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))


def doubled(out: Any, values: Any, n: Any) -> list[Any]:
    del out, n
    return [2 * values, None, None]


def tune(spins: tuple[int, ...], n: int = FEW, **changes: Any) -> tuple[Watch, float]:
    """What happened when in a call, and the seconds of the call."""
    values = np.random.default_rng(0).standard_normal(n, np.float32)
    keywords: dict[str, Any] = {
        "parameters": {"THREADS": range(128, 1025, 32), "EACH": (4, 8), "SPIN": spins},
        "arguments": (np.zeros_like(values), values, np.int32(n)),
        "reference": doubled,
        "grid": lambda p: -(-n // (p["THREADS"] * p["EACH"])),
        "block": lambda p: p["THREADS"],
        "search": Search(seconds=SECONDS),
        **changes,
    }
    watch = Watch()
    record = autotune.tune_kernel(SPINNING, "spinning", progress=watch, **keywords)
    seconds = monotonic() - watch.began
    assert record.provenance.trials == len(watch.finished_s)
    return watch, seconds


@pytest.mark.parametrize("spins", [(0, 10, 100, 1000), (1000, 2000)], ids=["some slow", "all slow"])
def test_budget_holds_with_slow_candidates(spins: tuple[int, ...]) -> None:
    watch, seconds = tune(spins)
    assert watch.finished_s
    assert seconds <= 1.05 * SECONDS + 0.3


def test_budget_holds_without_a_reference() -> None:
    _, seconds = tune((0, 100), reference=None)
    assert seconds <= 1.05 * SECONDS + 0.3


@pytest.mark.timing
def test_first_result_of_a_second_call_comes_soon() -> None:
    tune((0,), MANY)
    watch, _ = tune((0,), MANY - 1)  # another call, whose search does not continue the first
    assert watch.finished_s[0] <= 1.5


def test_slow_candidate_stops_at_its_first_sample() -> None:
    watch, _ = tune((0, 1000))
    best_us = watch.samples[0][0]
    slower = []
    for time_us, samples in watch.samples[1:]:
        if time_us > 10 * best_us:
            slower.append(samples)
        best_us = min(best_us, time_us)
    assert slower
    assert set(slower) == {1}
