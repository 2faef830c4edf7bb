"""Times are plausible, repeatable, and cheap to get."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest
from gpu_cases import Case, candidate, compiled, plan_of

from autotune.config import Config
from autotune.gpu.bench import Bench
from autotune.gpu.session import Session
from autotune.gpu.timing import Timer
from autotune.problem import Problem
from autotune.runner import Candidate, Measurement

COPY = 2**29
TILED = Config.parse("tiled:tile_width=16,specialized=0")
NAIVE = Config.parse("naive:mapping=uncoalesced,block=16")
KILO = Problem(1024, 1024, 1024)


def made(config: Config, problem: Problem, session: Session, programs: Path) -> Candidate:
    plan = plan_of(config, Case(problem, (0, 0, 0)))
    compiled([plan], session.device, programs)
    return candidate(plan, session.device, programs)


def measured(bench: Bench, what: Candidate, best_us: float | None = None) -> Measurement:
    outcome = bench.measure(what, best_us)
    assert isinstance(outcome, Measurement), outcome
    return outcome


@pytest.fixture(scope="module")
def bench(session: Session, programs: Path) -> Bench:
    return Bench(session, KILO, cache=programs)


def test_a_copy_runs_at_memory_bandwidth(session: Session) -> None:
    source, target = session.allocate(COPY), session.allocate(COPY)

    def run() -> None:
        session.cuda.memcpy_dtod_async(target, source, COPY, session.stream)

    run()
    hot = median(Timer(session).time(run, None).hot)
    share = 2 * COPY / (hot * 1e-6) / session.device.memory_bandwidth
    assert 0.7 < share < 1.0


def test_cold_is_slower_than_hot_where_everything_fits_into_l2(
    bench: Bench, session: Session, programs: Path
) -> None:
    if session.device.l2_bytes < 2 * KILO.bytes:
        pytest.skip("L2 is too small for this shape")
    time = measured(bench, made(TILED, KILO, session, programs))
    assert time.cold_us is not None
    assert time.cold_us > time.time_us


def test_two_measurements_agree(bench: Bench, session: Session, programs: Path) -> None:
    what = made(TILED, KILO, session, programs)
    first, second = (measured(bench, what).time_us for _ in range(2))
    assert first == pytest.approx(second, rel=0.03)


def test_a_candidate_that_is_clearly_slower_stops_early(
    bench: Bench, session: Session, programs: Path
) -> None:
    what = made(TILED, KILO, session, programs)
    best = measured(bench, what).time_us
    early = measured(bench, what, best / 2)
    assert (early.samples, early.cold_us) == (3, None)
    assert early.time_us == pytest.approx(best, rel=0.1)


def test_a_rematch_tells_naive_from_tiled(bench: Bench, session: Session, programs: Path) -> None:
    contestants = [made(config, KILO, session, programs) for config in (NAIVE, TILED, NAIVE)]
    outcomes, _ = bench.rematch(contestants, against_vendor=False)
    naive, tiled, again = (one.time_us for one in outcomes if isinstance(one, Measurement))
    assert tiled < naive
    assert naive == pytest.approx(again, rel=0.03)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_vendors_library_computes_the_same(
    session: Session, programs: Path, layout: str
) -> None:
    vendor = Bench(session, Problem(2048, 1024, 512, layout=layout), cache=programs).baseline()
    if vendor is None:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    assert vendor.error is not None
    assert 0 < vendor.error <= (vendor.tolerance or 0)


def test_the_vendors_library_is_near_the_peak(session: Session, programs: Path) -> None:
    problem = Problem(4096, 4096, 4096)
    vendor = Bench(session, problem, cache=programs).baseline()
    if vendor is None:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    share = problem.flops / (vendor.time_us * 1e-6) / session.device.peak_fp32
    assert 0.4 < share < 1.0


def test_a_measurement_takes_a_fraction_of_a_second(
    bench: Bench, session: Session, programs: Path
) -> None:
    if session.device.compute_capability not in ((8, 0), (9, 0), (10, 0)):
        pytest.skip("few float64 units: verification takes longer")
    what = made(TILED, KILO, session, programs)
    measured(bench, what)
    begin = time.perf_counter()
    measured(bench, what)
    assert time.perf_counter() - begin < 0.1
