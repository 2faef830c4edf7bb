"""Times are plausible, repeatable, and cheap to get."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest
from gpu_candidates import candidate, plan_of
from gpu_cases import Case

from autotune.candidates import cost, space
from autotune.families.config import Config
from autotune.gpu.benches.gemm import BASELINE, GemmBench
from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.timing import Timer, WarmRun
from autotune.gpu.vendor_baseline import open_baseline
from autotune.gpu.verify import Verdict
from autotune.problem import EPILOGUES, LAYOUTS, Problem
from autotune.runners.base import Candidate, Measurement, Objective

COPY = 2**29
TILED = Config.parse("tiled:tile_width=16,specialized=0")
NAIVE = Config.parse("naive:mapping=uncoalesced,block=16")
KILO = Problem(1024, 1024, 1024)


def made(config: Config, problem: Problem, session: Session, programs: Path) -> Candidate:
    plan = plan_of(config, Case(problem, (0, 0, 0)))
    return candidate(plan, session.device, programs)


def measured(
    bench: GemmBench, what: Candidate, best_us: float | None = None, objective: Objective = "hot"
) -> Measurement:
    outcome = bench.measure(what, best_us, objective)
    assert isinstance(outcome, Measurement), outcome
    return outcome


@pytest.fixture(scope="module")
def bench(session: Session, programs: Path) -> GemmBench:
    return GemmBench(session, KILO, cache=programs)


def test_a_copy_runs_at_memory_bandwidth(session: Session) -> None:
    source, target = session.allocate(COPY), session.allocate(COPY)

    def run() -> None:
        session.cuda.memcpy_dtod_async(target, source, COPY, session.stream)

    run()
    hot = median(Timer(session).time(WarmRun(run, 400.0), None).hot)
    share = 2 * COPY / (hot * 1e-6) / session.device.memory_bandwidth
    assert 0.7 < share < 1.0


def test_cold_is_slower_than_hot_where_everything_fits_into_l2(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    if session.device.l2_bytes < 2 * KILO.bytes:
        pytest.skip("L2 is too small for this shape")
    time = measured(bench, made(TILED, KILO, session, programs))
    assert time.cold_us is not None
    assert time.cold_us > time.time_us


def test_two_measurements_agree(bench: GemmBench, session: Session, programs: Path) -> None:
    what = made(TILED, KILO, session, programs)
    first, second = (measured(bench, what).time_us for _ in range(2))
    assert first == pytest.approx(second, rel=0.03)


def test_a_candidate_that_is_clearly_slower_stops_early(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    what = made(TILED, KILO, session, programs)
    best = measured(bench, what).time_us
    early = measured(bench, what, best / 2)
    assert (early.samples <= 3, early.cold_us) == (True, None)
    # A single run is told with the launch and a cold L2.
    assert best * 0.95 < early.time_us < best * 1.1 + 100


def test_a_cold_time_is_the_same_whichever_time_decides(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    what = made(TILED, KILO, session, programs)
    hot, cold = measured(bench, what), measured(bench, what, None, "cold")
    assert hot.cold_us is not None
    assert cold.cold_us == pytest.approx(hot.cold_us, rel=0.05)


def test_one_that_is_hot_slower_than_the_best_cold_time_is_not_timed_cold(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    what = made(TILED, KILO, session, programs)
    best = measured(bench, what).time_us / 2
    assert measured(bench, what, best, "cold").cold_us is None


def test_a_rematch_tells_naive_from_tiled(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    contestants = [made(config, KILO, session, programs) for config in (NAIVE, TILED, NAIVE)]
    outcomes, _ = bench.rematch(contestants, with_baseline=False)
    naive, tiled, again = (one.time_us for one in outcomes if isinstance(one, Measurement))
    assert tiled < naive
    assert naive == pytest.approx(again, rel=0.03)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_vendors_library_computes_the_same(
    session: Session, programs: Path, layout: str, epilogue: str, batch: int
) -> None:
    problem = Problem(512, 256, 128, layout=layout, batch=batch, epilogue=epilogue)
    vendor = GemmBench(session, problem, cache=programs).baseline()
    if vendor is None:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    assert vendor.error is not None
    assert vendor.relative_error is not None
    assert 0 < vendor.error <= (vendor.tolerance or 0)
    assert 0 < vendor.relative_error < 1e-6


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("512x256x128:tf32:nt", 1e-4, 1e-3),
        ("512x256x128:tf32x3:tn", 0, 1e-6),
        ("512x256x128:f16:tt:batch=3", 1e-5, 1e-3),
        ("512x256x128:bf16:nn", 1e-4, 5e-3),
        ("512x256x128:bf16:tn:bias_relu", 1e-4, 5e-3),
        ("512x256x128:bf16:nt:out=f32", 0, 1e-5),
        ("512x256x128:f16:nn:batch=3:gelu", 1e-5, 1e-3),
    ],
)
def test_the_vendors_library_computes_in_the_same_precision(
    session: Session, programs: Path, text: str, least: float, most: float
) -> None:
    outcomes = GemmBench(session, Problem.parse(text), cache=programs).compare([], [])
    if BASELINE not in outcomes:
        pytest.skip("no library that has this product")
    vendor = outcomes[BASELINE]
    assert isinstance(vendor, Measurement), vendor
    # Rounding to n bits has a relative error of 2^-n / sqrt 3 at most.
    assert least <= (vendor.relative_error or 0) <= most


@pytest.mark.parametrize(
    ("lds", "strides"),
    [((104, 152, 151), (0, 30_400, 15_100)), ((300, 450, 456), (100, 150, 152))],
    ids=["one A", "side by side"],
)
def test_the_vendors_library_follows_strides(
    session: Session, programs: Path, lds: tuple[int, int, int], strides: tuple[int, int, int]
) -> None:
    problem = Problem(100, 150, 200, layout="tn", batch=3, epilogue="bias_relu")
    bench = GemmBench(session, problem, leading_dimensions=lds, strides=strides, cache=programs)
    if (vendor := bench.baseline()) is None:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    assert 0 < (vendor.error or 0) <= (vendor.tolerance or 0)


def open_again(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """The vendor's library once more, as a rival."""
    run = open_baseline(session, operands)
    return [("again", run)] if run else []


def test_a_rival_is_timed_as_everyone_else(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    what = made(TILED, KILO, session, programs)
    outcomes = bench.compare([what], ["test_timing_gpu:open_again"])
    if BASELINE not in outcomes:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    ours, vendor, again = (outcomes[name] for name in (str(TILED), BASELINE, "again"))
    assert isinstance(ours, Measurement)
    assert isinstance(vendor, Measurement)
    assert isinstance(again, Measurement)
    assert again.time_us == pytest.approx(vendor.time_us, rel=0.03)
    assert again.relative_error == pytest.approx(vendor.relative_error)
    assert vendor.time_us < ours.time_us


@pytest.mark.parametrize("shape", [(128, 128, 128), (1, 4096, 4096), (64, 64, 65536)])
def test_verification_of_a_small_product_takes_under_a_millisecond(
    session: Session, programs: Path, shape: tuple[int, int, int]
) -> None:
    problem = Problem(*shape)
    # A kernel that is itself slow would hide what verification takes in its own noise.
    some = space.spread(space.feasible(problem, session.device).configs, 2000)
    _, quick = cost.rank(some, problem, session.device)[0]
    bench, what = (
        GemmBench(session, problem, cache=programs),
        made(quick, problem, session, programs),
    )
    first = bench.verify(what)
    assert isinstance(first, Verdict)
    assert first.time_us < 200

    def verification_us() -> float:
        began = session.mark()
        bench.verify(what)
        ended = session.mark()
        ended.synchronize()
        return float(1e3 * began.time_till(ended))

    # The second one still allocates and loads; a search verifies hundreds.
    assert median(verification_us() for _ in range(9)) < 1_000


def test_the_vendors_library_is_near_the_peak(session: Session, programs: Path) -> None:
    problem = Problem(4096, 4096, 4096)
    vendor = GemmBench(session, problem, cache=programs).baseline()
    if vendor is None:
        pytest.skip("neither PyTorch nor CuPy with a GPU")
    share = problem.flops / (vendor.time_us * 1e-6) / session.device.peak_fp32
    assert 0.4 < share < 1.0


def test_a_measurement_takes_a_fraction_of_a_second(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    if session.device.compute_capability not in ((8, 0), (9, 0), (10, 0)):
        pytest.skip("few float64 units: verification takes longer")
    what = made(TILED, KILO, session, programs)
    measured(bench, what)
    begin = time.perf_counter()
    measured(bench, what)
    assert time.perf_counter() - begin < 0.1
