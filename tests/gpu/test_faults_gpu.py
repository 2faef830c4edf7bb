"""Kernels that are broken on purpose: each fails for its fault, and the next kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attempts import repeated
from broken_kernels import broken

from autotune.device import Device
from autotune.errors import RunnerError
from autotune.measure.bench import GemmBench
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.oracle import checked_accuracy
from autotune.measure.session import Session
from autotune.measure.verify import Passed
from autotune.problem import Problem

PROBLEM = Problem(120, 130, 140)
GAPPED = (150, 140, 160)
BATCH = replace(PROBLEM, batch=3, epilogue="bias")


@pytest.fixture(scope="module")
def bench(session: Session, programs: Path) -> GemmBench:
    return GemmBench(session, PROBLEM, leading_dimensions=GAPPED, cache=programs)


@pytest.fixture(scope="module")
def batched(session: Session, programs: Path) -> GemmBench:
    return GemmBench(session, BATCH, leading_dimensions=GAPPED, cache=programs)


@pytest.fixture
def runner(device: Device) -> Iterator[GpuRunner]:
    del device  # requested only to skip without a GPU
    runner = GpuRunner(PROBLEM, time_limit=5.0)
    yield runner
    runner.close()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong element", "small integers: largest error 1, tolerance"),
        ("nan", "wrong result for small integers: largest error nan, tolerance"),
        ("unwritten element", "exceeded by 1 of 15600 elements"),
        ("reads C for beta 0", "exceeded by 15600 of 15600 elements (alpha=1, beta=0)"),
        ("ignores beta", "(alpha=2, beta=-1)"),
        ("writes before C", "stray writes: changed 1 elements around C"),
        ("writes past C", "stray writes: changed 1 elements around C"),
        ("writes between rows", "stray writes: changed 1 elements around C"),
        ("writes A", "stray writes: changed 1 elements in or around A"),
        ("reads past A", "small integers: largest error nan"),
        ("leaves a counter", "stray writes: changed 1 elements in or around the counters"),
    ],
)
def test_wrong_kernel_fails_verification(
    bench: GemmBench, programs: Path, fault: str, reason: str
) -> None:
    outcome = bench.verify(broken(fault, PROBLEM, bench.device, programs))
    assert isinstance(outcome, Failure)
    assert (outcome.stage, reason in outcome.reason) == ("verify", True), outcome.reason


def test_right_kernel_passes(bench: GemmBench, programs: Path) -> None:
    outcome = bench.verify(broken("none", PROBLEM, bench.device, programs))
    assert isinstance(outcome, Passed)
    # Sequential sums: a root mean square of 0.3 u K in elements of sqrt(K).
    assert outcome.relative == pytest.approx(0.3 * 2**-24 * PROBLEM.k**0.5, rel=0.5)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong element", "exceeded by 1 of 46800 elements"),
        ("unwritten element", "exceeded by 1 of 46800 elements"),
        ("writes past C", "stray writes: changed 1 elements around C"),
        ("writes between rows", "stray writes: changed 1 elements around C"),
        ("forgets the bias", "exceeded by 1 of 46800 elements"),
        ("writes the bias", "stray writes: changed 1 elements in or around the bias"),
        ("leaves a counter", "stray writes: changed 1 elements in or around the counters"),
    ],
)
def test_fault_in_the_last_matrix_of_a_batch_is_caught(
    batched: GemmBench, programs: Path, fault: str, reason: str
) -> None:
    outcome = batched.verify(broken(fault, BATCH, batched.device, programs))
    assert isinstance(outcome, Failure)
    assert (outcome.stage, reason in outcome.reason) == ("verify", True), outcome.reason


@pytest.mark.parametrize(
    ("leading_dimensions", "strides"),
    [
        (None, None),
        (GAPPED, None),
        (GAPPED, (150 * 120 + 4, 140 * 140 + 2, 160 * 120 + 1)),
        ((420, 390, 390), (140, 130, 130)),
        (None, (0, 18200, 15600)),
        (None, (16800, 0, 15600)),
    ],
    ids=["dense", "gaps in rows", "gaps everywhere", "side by side", "one A", "one B"],
)
def test_right_batch_passes_in_every_layout(
    session: Session,
    programs: Path,
    leading_dimensions: tuple[int, int, int] | None,
    strides: tuple[int, int, int] | None,
) -> None:
    bench = GemmBench(
        session, BATCH, leading_dimensions=leading_dimensions, strides=strides, cache=programs
    )
    assert isinstance(bench.verify(broken("none", BATCH, bench.device, programs)), Passed)


def test_wrong_kernel_does_not_affect_the_next(bench: GemmBench, programs: Path) -> None:
    outcomes = [
        type(bench.verify(broken(fault, PROBLEM, bench.device, programs)))
        for fault in ("none", "writes A", "none", "nan", "none", "leaves a counter", "none")
    ]
    assert outcomes == [Passed, Failure, Passed, Failure, Passed, Failure, Passed]


def test_inaccurate_kernel_fails_beside_the_baseline(bench: GemmBench, programs: Path) -> None:
    baseline = bench.baseline()
    if baseline is None:
        pytest.skip("neither PyTorch with a GPU nor cuBLAS")
    assert isinstance(baseline, Measurement), baseline
    candidates = [
        broken(fault, PROBLEM, bench.device, programs) for fault in ("none", "is not accurate")
    ]
    outcomes = [
        checked_accuracy(PROBLEM, bench.measure(item, None), baseline.relative_error)
        for item in candidates
    ]
    assert isinstance(outcomes[0], Measurement), outcomes[0]
    assert isinstance(outcomes[1], Failure)
    assert outcomes[1].stage == "accuracy"


def test_launch_refused_by_the_driver_is_a_failure(bench: GemmBench, programs: Path) -> None:
    good = broken("none", PROBLEM, bench.device, programs)
    launch = replace(good.plan.launches[0], block=(64, 64, 1))
    refused = replace(good, plan=replace(good.plan, launches=(launch,)))
    outcome = bench.measure(refused, None)
    assert isinstance(outcome, Failure)
    assert outcome.stage == "launch"


def test_too_large_problem_is_refused_with_numbers(session: Session, programs: Path) -> None:
    with pytest.raises(RunnerError, match=r"needs \d+\.\d GiB of device memory"):
        GemmBench(session, Problem(10**6, 10**6, 1), cache=programs)


@pytest.mark.parametrize(
    ("fault", "stage"), [("illegal access", "crash"), ("endless loop", "timeout")]
)
def test_runner_survives_a_crash_or_a_hang(
    runner: GpuRunner, programs: Path, fault: str, stage: str
) -> None:
    outcomes = [
        runner.measure(broken(name, PROBLEM, runner.device, programs), None)
        for name in ("none", fault, "none")
    ]
    first, bad, second = outcomes
    assert isinstance(first, Measurement), first
    assert isinstance(second, Measurement), second
    assert isinstance(bad, Failure)
    assert bad.stage == stage, bad.reason


def test_two_processes_share_the_gpu(runner: GpuRunner, programs: Path) -> None:
    candidate = broken("none", PROBLEM, runner.device, programs)
    before = runner.measure(candidate, None)
    if runner.baseline() is None:
        pytest.skip("neither PyTorch with a GPU nor cuBLAS")
    assert runner.baseline_ready
    assert isinstance(before, Measurement), before

    def attempt() -> None:
        # Not compared with `before`: clocks rise meanwhile.
        rematched, after = runner.rematch([candidate])[0], runner.measure(candidate, None)
        assert isinstance(rematched, Measurement), rematched
        assert isinstance(after, Measurement), after
        assert after.time_us == pytest.approx(rematched.time_us, rel=0.2)

    repeated(attempt)


def test_inaccurate_kernel_fails_in_a_rematch(runner: GpuRunner, programs: Path) -> None:
    if runner.baseline() is None:
        pytest.skip("neither PyTorch with a GPU nor cuBLAS")
    candidates = [
        broken(fault, PROBLEM, runner.device, programs) for fault in ("none", "is not accurate")
    ]
    good, bad = runner.rematch(candidates)
    assert isinstance(good, Measurement), good
    assert isinstance(bad, Failure)
    assert bad.stage == "accuracy"


def test_rematch_survives_a_crash(runner: GpuRunner, programs: Path) -> None:
    candidates = [
        broken(name, PROBLEM, runner.device, programs)
        for name in ("none", "illegal access", "none")
    ]
    kinds = [type(outcome) for outcome in runner.rematch(candidates)]
    assert kinds == [Measurement, Failure, Measurement]
