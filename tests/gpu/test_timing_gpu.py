"""Times are plausible, repeatable, and cheap to measure.

Other processes may use the GPU, so assertions about times get a few attempts.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest
from attempts import repeated
from candidate_samples import candidate, plan_of
from problem_cases import Case

from autotune.families.config import Config
from autotune.measure.baseline import open_baseline, open_cublas
from autotune.measure.bench import BASELINE, GemmBench
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, HOT, BestTimes, Objective
from autotune.measure.operands import Operands
from autotune.measure.runner import Candidate
from autotune.measure.session import Run, Session
from autotune.measure.timing import Timer, WarmRun
from autotune.measure.verify import Passed, Verifier
from autotune.model import cost, space
from autotune.problem import ELEMENTWISE, LAYOUTS, Problem

pytestmark = pytest.mark.timing


COPY = 2**29


TILED = Config.parse("tiled:tile_width=16,specialized=0")


NAIVE = Config.parse("naive:mapping=uncoalesced,block=16")


KILO = Problem(1024, 1024, 1024)


THIN = Problem(16, 2048, 2048)  # a block per SM at most, so that latencies show


FAST_FP64 = ((8, 0), (9, 0), (10, 0))
"""Compute capabilities whose float64 units verify quickly."""


def candidate_of(config: Config, problem: Problem, session: Session, programs: Path) -> Candidate:
    plan = plan_of(config, Case(problem, (0, 0, 0)))
    return candidate(plan, session.device, programs)


def measured(
    bench: GemmBench,
    candidate: Candidate,
    best: BestTimes | None = None,
    objective: Objective = HOT,
) -> Measurement:
    outcome = bench.measure(candidate, best, objective)
    assert isinstance(outcome, Measurement), outcome
    return outcome


@pytest.fixture(scope="module")
def bench(session: Session, programs: Path) -> GemmBench:
    return GemmBench(session, KILO, cache=programs)


def test_copy_runs_at_memory_bandwidth(session: Session) -> None:
    from cuda.bindings import driver

    source, target = session.allocate(COPY), session.allocate(COPY)

    def run() -> None:
        session.checked(driver.cuMemcpyDtoDAsync(int(target), int(source), COPY, session.stream))

    def attempt() -> None:
        hot = median(timer.time(WarmRun(run, 400.0), None).hot)
        share = 2 * COPY / (hot * 1e-6) / session.device.memory_bandwidth
        assert 0.7 < share < 1.0

    run()
    timer = Timer(session)
    repeated(attempt)


def test_cold_is_slower_than_hot_if_operands_fit_into_l2(session: Session, programs: Path) -> None:
    if session.device.l2_bytes < 2 * THIN.bytes:
        pytest.skip("L2 is too small for this shape")
    bench, candidate = (
        GemmBench(session, THIN, cache=programs),
        candidate_of(TILED, THIN, session, programs),
    )

    def attempt() -> None:
        measurement = measured(bench, candidate)
        assert measurement.cold_us is not None
        assert measurement.cold_us > measurement.time_us

    repeated(attempt)


def test_two_measurements_agree(bench: GemmBench, session: Session, programs: Path) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)

    def attempt() -> None:
        first, second = (measured(bench, candidate).time_us for _ in range(2))
        assert first == pytest.approx(second, rel=0.03)

    repeated(attempt)


def test_clearly_slower_candidate_stops_early(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)

    def attempt() -> None:
        time_us = measured(bench, candidate).time_us
        early = measured(bench, candidate, BestTimes(time_us / 2, time_us / 2))
        assert (early.samples <= 3, early.cold_us) == (True, None)
        # A single run includes the launch and a cold L2.
        assert time_us * 0.95 < early.time_us < time_us * 1.1 + 100

    repeated(attempt)


def test_cold_time_is_the_same_for_either_objective(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)

    def attempt() -> None:
        hot, cold = measured(bench, candidate), measured(bench, candidate, None, COLD)
        assert hot.cold_us is not None
        assert cold.cold_us == pytest.approx(hot.cold_us, rel=0.05)

    repeated(attempt)


def test_candidate_hot_slower_than_best_cold_is_not_timed_cold(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)
    best = BestTimes(cold_us=measured(bench, candidate).time_us / 2)
    assert measured(bench, candidate, best, COLD).cold_us is None


def test_candidate_that_could_win_cold_is_timed_cold(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)
    time_us = measured(bench, candidate).time_us
    assert measured(bench, candidate, BestTimes(time_us / 2, 2 * time_us)).cold_us is not None


def test_rematch_tells_naive_from_tiled(bench: GemmBench, session: Session, programs: Path) -> None:
    candidates = [candidate_of(config, KILO, session, programs) for config in (NAIVE, TILED, NAIVE)]

    def attempt() -> None:
        outcomes, _ = bench.rematch(candidates, with_baseline=False)
        naive, tiled, again = (item.time_us for item in outcomes if isinstance(item, Measurement))
        assert tiled < naive
        assert naive == pytest.approx(again, rel=0.03)

    repeated(attempt)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("epilogue", ELEMENTWISE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_vendor_baseline_computes_the_problem(
    session: Session, programs: Path, layout: str, epilogue: str, batch: int
) -> None:
    problem = Problem(512, 256, 128, layout=layout, batch=batch, epilogue=epilogue)
    baseline = GemmBench(session, problem, cache=programs).baseline()
    if baseline is None:
        pytest.skip("neither PyTorch with a GPU nor cuBLAS")
    assert isinstance(baseline, Measurement), baseline
    assert baseline.error is not None
    assert baseline.relative_error is not None
    assert 0 < baseline.error <= (baseline.tolerance or 0)
    assert 0 < baseline.relative_error < 1e-6


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
        ("512x256x128:bf16:nt:batch=3:bias_residual", 1e-4, 5e-3),
        ("512x256x128:bf16:nn:batch=3:swiglu", 1e-4, 1e-2),
        ("512x256x128:f16:tn:swiglu", 1e-5, 2e-3),
        ("512x256x128:f8:nt:scale=row:swiglu", 1e-4, 1e-2),
        ("512x256x512:f8:nn:scale=block:swiglu", 1e-4, 1e-2),
    ],
)
def test_vendor_baseline_has_the_problems_precision(
    session: Session, programs: Path, text: str, least: float, most: float
) -> None:
    outcomes = GemmBench(session, Problem.parse(text), cache=programs).compare([], [])
    if BASELINE not in outcomes:
        pytest.skip("no library computes this problem")
    baseline = outcomes[BASELINE]
    assert isinstance(baseline, Measurement), baseline
    # Rounding to n bits has a relative error of 2^-n / sqrt 3 at most.
    assert least <= (baseline.relative_error or 0) <= most


@pytest.mark.parametrize(
    ("lds", "strides"),
    [((104, 152, 151), (0, 30_400, 15_100)), ((300, 450, 456), (100, 150, 152))],
    ids=["one A", "side by side"],
)
def test_vendor_baseline_follows_strides(
    session: Session, programs: Path, lds: tuple[int, int, int], strides: tuple[int, int, int]
) -> None:
    problem = Problem(100, 150, 200, layout="tn", batch=3, epilogue="bias_relu")
    bench = GemmBench(session, problem, leading_dimensions=lds, strides=strides, cache=programs)
    if (baseline := bench.baseline()) is None:
        pytest.skip("neither PyTorch with a GPU nor cuBLAS")
    assert isinstance(baseline, Measurement), baseline
    assert 0 < (baseline.error or 0) <= (baseline.tolerance or 0)


def open_again(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """The vendor baseline again, as a further baseline."""
    run = open_baseline(session, operands)
    return [("again", run)] if run else []


def test_further_baseline_is_timed_like_the_first(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    candidate = candidate_of(TILED, KILO, session, programs)

    def attempt() -> None:
        outcomes = bench.compare([candidate], ["test_timing_gpu:open_again"])
        if BASELINE not in outcomes:
            pytest.skip("neither PyTorch with a GPU nor cuBLAS")
        ours, baseline, again = (outcomes[name] for name in (str(TILED), BASELINE, "again"))
        assert isinstance(ours, Measurement)
        assert isinstance(baseline, Measurement)
        assert isinstance(again, Measurement)
        assert again.time_us == pytest.approx(baseline.time_us, rel=0.03)
        assert again.relative_error == pytest.approx(baseline.relative_error)
        assert baseline.time_us < ours.time_us

    repeated(attempt)


def open_alone(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """cuBLAS without PyTorch."""
    run = open_cublas(session, operands)
    return [("alone", run)] if run else []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compute", ["f32", "tf32", "bf16", "f16"])
def test_cublas_alone_is_as_fast_as_through_pytorch(
    session: Session, programs: Path, compute: str, layout: str
) -> None:
    problem = Problem(1000, 776, 1232, compute, layout)
    bench = GemmBench(session, problem, cache=programs)

    def attempt() -> None:
        outcomes = bench.compare([], ["test_timing_gpu:open_alone"])
        through, alone = outcomes.get(BASELINE), outcomes.get("alone")
        if through is None or alone is None:
            pytest.skip("no PyTorch with a GPU, or no cuBLAS")
        assert isinstance(through, Measurement)
        assert isinstance(alone, Measurement)
        assert alone.time_us == pytest.approx(through.time_us, rel=0.03)
        assert alone.relative_error == pytest.approx(through.relative_error, rel=0.1)

    repeated(attempt)


@pytest.mark.parametrize("shape", [(128, 128, 128), (1, 4096, 4096), (64, 64, 65536)])
def test_verification_of_a_small_gemm_takes_under_a_millisecond(
    session: Session, programs: Path, shape: tuple[int, int, int]
) -> None:
    if session.device.compute_capability not in FAST_FP64:
        pytest.skip("the bound is for data centre GPUs")
    problem = Problem(*shape)
    # The noise of a slow kernel would hide the time of the verification.
    configs = space.spread(space.feasible(problem, session.device).configs, 2000)
    _, quick = cost.rank(configs, problem, session.device)[0]
    bench = GemmBench(session, problem, cache=programs)
    candidate = candidate_of(quick, problem, session, programs)
    first = bench.verify(candidate)
    assert isinstance(first, Passed)
    assert first.time_us < 200
    # Loading the candidate is no part of it, and takes as long on a slow host.
    bound, verifier = session.bind(candidate), Verifier(session, bench.operands, programs)
    verifier.verify(bound)

    def verification_us() -> float:
        start = session.mark()
        verifier.verify(bound)
        end = session.mark()
        end.synchronize()
        return float(1e3 * start.time_till(end))

    def attempt() -> None:
        # The second verification still allocates and loads; a search verifies hundreds.
        assert median(verification_us() for _ in range(9)) < 1_000

    repeated(attempt)


def test_vendor_baseline_is_near_the_peak(session: Session, programs: Path) -> None:
    problem = Problem(4096, 4096, 4096)
    bench = GemmBench(session, problem, cache=programs)

    def attempt() -> None:
        baseline = bench.baseline()
        if baseline is None:
            pytest.skip("neither PyTorch with a GPU nor cuBLAS")
        assert isinstance(baseline, Measurement), baseline
        share = problem.flops / (baseline.time_us * 1e-6) / session.device.peak_fp32
        assert 0.4 < share < 1.0

    repeated(attempt)


def test_measurement_takes_a_fraction_of_a_second(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    if session.device.compute_capability not in FAST_FP64:
        pytest.skip("few float64 units: verification takes longer")
    candidate = candidate_of(TILED, KILO, session, programs)
    measured(bench, candidate)

    def attempt() -> None:
        start = time.perf_counter()
        measured(bench, candidate)
        assert time.perf_counter() - start < 0.1

    repeated(attempt)
