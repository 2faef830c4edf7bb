"""Whether products of compiled graphs gain, by records, look-ups and races."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.logged import logs  # noqa: E402
from support.sample_records import H100, entry, record  # noqa: E402

from autotune import Policy, runtime, settings  # noqa: E402
from autotune.api import shapes  # noqa: E402
from autotune.cuda import cublaslt  # noqa: E402
from autotune.errors import MissingError  # noqa: E402
from autotune.families.config import Config  # noqa: E402
from autotune.measure.measurement import Measurement  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.records import Store  # noqa: E402
from autotune.torch.graph_pass import Chooser, ProductChoice, choice_table  # noqa: E402
from autotune.tuning.options import Search  # noqa: E402

SHAPE = Problem(64, 128, 256)
ENTRY = replace(entry(32, 10.0), config=Config.parse("tiled:tile_width=32,specialized=0"))
HOT = Policy()
RACING = Policy(tune="quick")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))


def kept(problem: Problem, ours: float | Measurement, cublas: float | Measurement | None) -> None:
    """Saves a record of the problem, with hot times or measurements."""
    baseline = Measurement(cublas) if isinstance(cublas, float) else cublas
    measured = replace(ENTRY, measurement=Measurement(ours) if isinstance(ours, float) else ours)
    saved = replace(record(measured, problem=problem), baseline=baseline)
    Store(settings.cache_dir()).save(saved)


def chooser(policy: Policy = HOT, min_gain: float = 0.0) -> Chooser:
    return Chooser(0, H100, policy, min_gain)


OUTCOMES: dict[str, tuple[float, float | None, str | None]] = {
    "faster": (10.0, 12.0, None),
    "slower": (12.0, 10.0, "cuBLAS is faster"),
    "tied": (10.0, 10.02, "a tie"),
    "gains too little": (10.0, 10.4, "gain below 5%"),
    "no baseline": (10.0, None, "cuBLAS was not timed"),
}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_record_decides(outcome: Any) -> None:
    ours, cublas, why = outcome
    kept(SHAPE, ours, cublas)
    assert chooser(min_gain=0.05).choice(SHAPE, False) == ProductChoice(SHAPE, ours, cublas, why)


def test_wrong_cublas_is_replaced() -> None:
    saved = replace(record(ENTRY, problem=SHAPE), baseline=None)
    provenance = replace(saved.provenance, baseline_fault="cuBLAS 13.1.0 is wrong")
    Store(settings.cache_dir()).save(replace(saved, provenance=provenance))
    assert chooser().choice(SHAPE, False) == ProductChoice(SHAPE, ENTRY.measurement.time_us)


@pytest.mark.parametrize(("verified", "replaced"), [(None, True), ("13.1.0", False)])
def test_faulty_cublas_is_replaced_unless_verified(
    verified: str | None, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.1.0")
    deep = Problem(5, 7, 1032)  # split-K may lose the end of this K
    kept(deep, 12.0, replace(Measurement(10.0), library=verified))
    why = None if replaced else "cuBLAS is faster"
    assert chooser().choice(deep, False).why == why


def test_unknown_product_stays_without_a_vendor_time() -> None:
    choice = chooser().choice(SHAPE, False)
    assert choice.why in ("no record", "cuBLAS is faster")


def test_record_without_the_bias_serves_too() -> None:
    kept(SHAPE, 10.0, 12.0)
    assert chooser().choice(replace(SHAPE, epilogue="bias"), False).why is None


def test_cold_times_decide_if_asked() -> None:
    kept(SHAPE, Measurement(10.0, cold_us=30.0), Measurement(12.0, cold_us=20.0))
    whys = [chooser(Policy(cold=cold)).choice(SHAPE, False).why for cold in (False, True)]
    assert whys == [None, "cuBLAS is faster"]


def test_symbolic_rows_gain_if_any_recorded_rows_do() -> None:
    kept(SHAPE, 12.0, 10.0)
    kept(replace(SHAPE, m=8), 10.0, 12.0)
    assert chooser().choice(SHAPE, False).why is not None
    assert chooser().choice(SHAPE, True) == ProductChoice(replace(SHAPE, m=8), 10.0, 12.0)


class Racer:
    """Stands for `tune_shapes` and the runtime."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.raced: list[Mapping[Problem, int]] = []
        self.forgotten: list[Problem] = []
        self.search: Search | None = None
        self._failure = failure

    def tune_shapes(self, missing: Mapping[Problem, int], search: Search, device: str) -> None:
        assert device == "gpu:0"
        self.search = search
        self.raced.append(dict(missing))
        if self._failure:
            raise self._failure
        for problem in missing:
            kept(problem, 10.0, 12.0)

    def forget(self, problem: Problem) -> None:
        self.forgotten.append(problem)


def racing(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> Racer:
    racer = Racer(failure)
    monkeypatch.setattr(shapes, "tune_shapes", racer.tune_shapes)
    monkeypatch.setattr(runtime, "current", lambda: racer)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return racer


def test_products_without_a_record_are_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    racer, other = racing(monkeypatch), replace(SHAPE, m=8)
    kept(other, 12.0, 10.0)
    own = chooser(Policy(tune="quick", cold=True))
    own.race([SHAPE, other, SHAPE])
    assert racer.raced == [{SHAPE: 2}]
    assert racer.forgotten == [SHAPE]
    assert racer.search == Search(effort="quick", objective="cold")
    assert own.choice(SHAPE, False).why is None


def test_nothing_is_raced_without_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    racer = racing(monkeypatch)
    chooser().race([SHAPE])
    assert not racer.raced


def test_nothing_is_raced_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    racer = racing(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    chooser(RACING).race([SHAPE])
    assert not racer.raced


def test_frozen_process_races_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    racer = racing(monkeypatch)
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen")
    chooser(RACING).race([SHAPE])
    assert not racer.raced
    assert chooser(RACING).choice(SHAPE, False).why == "no record"


def test_failed_race_leaves_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    racing(monkeypatch, MissingError("no compiler"))
    with logs("1 products are not raced: no compiler"):
        chooser(RACING).race([SHAPE])


def test_table_counts_equal_choices() -> None:
    lines = choice_table([ProductChoice(SHAPE, 1.0, 2.0)] * 3).splitlines()
    assert len(lines) == 2
    assert lines[1].split() == f"3x {SHAPE} 1.00 us 2.00 us +100.0% tuned kernel".split()
