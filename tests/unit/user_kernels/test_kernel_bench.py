"""The bench of a user kernel; device memory is host memory, a kernel is a Python function."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.fake_kernel_session import (
    F4,
    Error,
    FakeSession,
    FakeTimer,
    Kernel,
    Pointers,
    right,
    uncompiled,
)
from support.sample_user_kernels import N, arguments, tunable, work

from autotune.errors import RunnerError
from autotune.families.config import Config
from autotune.families.plan import Piece, Resources
from autotune.measure import bench as module
from autotune.measure import timing
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import BestTimes
from autotune.measure.runner import Candidate
from autotune.records.kernel_record import NOT_VERIFIED
from autotune.user_kernels import guarded_arrays
from autotune.user_kernels.bench import KernelBench
from autotune.user_kernels.guarded_arrays import device_type
from autotune.user_kernels.results import ExpectedArray
from autotune.user_kernels.workload import ArrayArgument, Workload, unverified


def changed(place: int, index: int, value: float = 7.0, **around: int) -> Kernel:
    """A correct kernel that then writes one more float."""

    def run(at: Pointers) -> None:
        right(at)
        at(place, **around)[index] = value

    return run


def first_time_only() -> Kernel:
    ran: list[int] = []

    def run(at: Pointers) -> None:
        if not ran:
            right(at)
        ran.append(1)

    return run


def lost(session: FakeSession) -> Kernel:
    def run(_: Pointers) -> None:
        session.lost = True
        raise Error("an illegal memory access was encountered")

    return run


KERNELS: Mapping[str, Kernel] = {
    "right": right,
    "nothing": lambda _: None,
    "nan": changed(0, 5, np.nan),
    "off": changed(0, 5, 1e-3),
    "before": changed(0, 0, before=1),
    "behind": changed(0, -1, behind=1),
    "input": changed(1, 3),
    "around input": changed(1, -1, behind=1),
}


def candidate(act: str) -> Candidate:
    config = Config.of("saxpy", {"act": act})
    plan = tunable().plan(Config.of("saxpy", {"THREADS": 32, "EACH": 1}))
    return Candidate(config, plan, (), Resources(32, 32, 0))


def opened(
    monkeypatch: pytest.MonkeyPatch,
    kernels: Mapping[str, Kernel] = KERNELS,
    call: Workload | None = None,
    floats: int = N,
    free: int = 2**30,
) -> tuple[KernelBench, FakeSession]:
    monkeypatch.setattr(module, "Timer", FakeTimer)
    monkeypatch.setattr(guarded_arrays, "program_of", uncompiled)
    session: Any = FakeSession(kernels, floats, free)
    return KernelBench(session, call or work()), session


LITTLE = 2**20
"""Free bytes without room for copies: the host restores and compares."""


@pytest.fixture(params=[2**30, LITTLE], ids=["device", "host"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KernelBench:
    return opened(monkeypatch, free=request.param)[0]


def test_right_kernel_is_measured_with_its_error(bench: KernelBench) -> None:
    outcome = bench.measure(candidate("right"), None)
    assert isinstance(outcome, Measurement)
    assert outcome.time_us == 250.0
    assert outcome.error is not None
    assert outcome.tolerance is not None
    assert outcome.error <= outcome.tolerance


def test_kernel_runs_twice_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch)
    bench.measure(candidate("right"), BestTimes(hot_us=5.0))
    assert session.log == ["run right", "run right", "time 5.0"]


@pytest.mark.parametrize(("best_us", "runs"), [(130.0, 2), (120.0, 1)])
def test_kernel_twice_as_slow_as_the_best_runs_once(
    monkeypatch: pytest.MonkeyPatch, best_us: float, runs: int
) -> None:
    monkeypatch.setattr(timing, "DELAY_US", 0.0)
    bench, session = opened(monkeypatch)
    best = BestTimes(hot_us=best_us, cold_us=best_us)
    assert isinstance(bench.measure(candidate("right"), best), Measurement)
    assert session.log.count("run right") == runs


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("nothing", "argument 0: wrong result: 1000 of 1000 elements, such as "),
        ("nan", "argument 0: wrong result: 1 of 1000 elements, such as nan instead of "),
        ("off", "argument 0: wrong result: 1 of 1000 elements, such as 0.001 instead of "),
        ("before", "stray writes: changed 4 bytes around argument 0"),
        ("behind", "stray writes: changed 4 bytes around argument 0"),
        ("input", "stray writes: changed 1 elements of argument 1, which the reference leaves"),
        ("around input", "stray writes: changed 4 bytes around argument 1"),
    ],
)
def test_wrong_kernel_fails_with_the_argument(bench: KernelBench, act: str, reason: str) -> None:
    outcome = bench.measure(candidate(act), None)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, outcome.reason[: len(reason)]) == ("verify", reason)


def test_wrong_element_has_its_place_and_tolerance(bench: KernelBench) -> None:
    outcome = bench.measure(candidate("off"), None)
    assert isinstance(outcome, Failure)
    assert " at 5, tolerance 0.000" in outcome.reason


def test_wrong_kernel_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch)
    bench.measure(candidate("input"), None)
    assert session.log == ["run input"]


def test_kernel_that_is_right_once_only_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch, {"once": first_time_only()})
    outcome = bench.measure(candidate("once"), None)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, session.log) == ("verify", ["run once"] * 2)


@pytest.mark.parametrize("act", sorted(set(KERNELS) - {"right"}))
def test_wrong_kernel_does_not_affect_the_next(bench: KernelBench, act: str) -> None:
    bench.measure(candidate("right"), None)
    bench.measure(candidate(act), None)
    assert isinstance(bench.measure(candidate("right"), None), Measurement)


def test_result_is_compared_again_after_an_accepted_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, _ = opened(monkeypatch, {**KERNELS, "close": changed(0, 5, float(arguments()[0][5]))})
    first = bench.measure(candidate("right"), None)
    second = bench.measure(candidate("close"), None)
    assert (type(first), type(second)) == (Measurement, Failure)


def test_less_accurate_kernel_passes_within_tolerance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rough(at: Pointers) -> None:
        right(at)
        at(0)[:] *= F4(1 + 3e-5)

    bench, _ = opened(monkeypatch, {**KERNELS, "rough": rough})
    errors = []
    for act in ("right", "rough", "right"):
        outcome = bench.measure(candidate(act), None)
        assert isinstance(outcome, Measurement)
        errors.append(outcome.error)
    largest = np.abs(F4(2.5) * arguments()[1] + arguments()[0]).max()
    assert errors[0] == errors[2]
    assert errors[1] == pytest.approx(3e-5 * largest, rel=0.01)


def test_written_output_is_not_preset_to_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    initial = [np.ones(4, F4), np.full(4, 2, F4)]  # the output is right already
    call = work(arguments=initial, reference=lambda x, _: [None, 2 * x])
    kernels: dict[str, Kernel] = {
        "nothing": lambda _: None,
        "half": lambda at: at(1)[:2].fill(2),
        "right": lambda at: at(1).fill(2),
    }
    bench, _ = opened(monkeypatch, kernels, call, floats=4)
    reasons = [bench.measure(candidate(act), None) for act in kernels]
    assert [type(reason) for reason in reasons] == [Failure, Failure, Measurement]
    assert str(reasons[1]).endswith(
        "argument 1: wrong result: 2 of 4 elements, such as nan instead of 2 at 2, tolerance "
        "0.0004; it held NaN before, as the reference does not read it')"
    )


GUARDED, FOUND = 4 * N + 2 * 4096, 2 * 2 * 1024 * 32
"""Bytes of y or x with its guards, and of what the comparison on the device finds."""


def test_correct_kernel_is_verified_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch)
    session.traffic.clear()
    assert isinstance(bench.measure(candidate("right"), None), Measurement)
    first, second = [("copy", GUARDED)] * 2, [("copy", GUARDED)]  # x is known to be unchanged
    assert session.traffic == [*first, ("download", FOUND), *second, ("download", FOUND)]


def test_wrong_array_alone_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch)
    session.traffic.clear()
    bench.measure(candidate("input"), None)
    assert session.traffic[2:] == [("download", FOUND), ("download", GUARDED)]


def test_host_restores_and_compares_with_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch, free=LITTLE)
    session.traffic.clear()
    assert isinstance(bench.measure(candidate("right"), None), Measurement)
    upload, download = ("upload", 4 * N), ("download", GUARDED)
    assert session.traffic == [upload, upload, *[download] * 2, upload, *[download] * 2]


@pytest.mark.parametrize("free", [2**30, LITTLE], ids=["device", "host"])
def test_contents_of_a_free_array_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    call = work()
    y, x = call.buffers
    call = replace(call, buffers=(replace(y, expected=None, free=True), x))
    bench, _ = opened(monkeypatch, call=call, free=free)
    outcome = bench.measure(candidate("off"), None)
    assert isinstance(outcome, Measurement)
    assert (outcome.error, outcome.tolerance) == (None, None)
    for act in ("behind", "input"):
        assert isinstance(bench.measure(candidate(act), None), Failure)


def test_nothing_is_verified_where_nothing_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(
        monkeypatch, call=replace(unverified("saxpy", arguments()), verified=NOT_VERIFIED)
    )
    assert isinstance(bench.measure(candidate("input"), None), Measurement)
    assert session.log == ["run input", "run input", "time None"]
    assert "download" not in [kind for kind, _ in session.traffic]


@pytest.mark.parametrize(
    ("dtype", "expected", "compared"),
    [
        ("float32", "float32", "float32"),
        ("float16", "float64", "float64"),
        ("float32", "int64", "float64"),
        ("complex64", "float32", "complex128"),
        ("int8", "int64", "int8"),
        ("uint8", "bool", "uint8"),
        ("float64", "longdouble", None),
    ],
)
def test_device_compares_in_a_type_that_holds_both(
    dtype: str, expected: str, compared: str | None
) -> None:
    array, values = np.zeros(3, dtype), np.ones(3, expected)
    buffer = ArrayArgument(0, array, ExpectedArray(values, 0.0, 0.0))
    assert device_type(buffer) == (None if compared is None else np.dtype(compared))


def test_host_compares_what_the_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.ones(N, np.longdouble)
    kernels: dict[str, Kernel] = {
        "one": lambda at: at(0).view("f8").fill(1),
        "none": lambda _: None,
    }
    call = work(arguments=[np.zeros(N)], reference=lambda _: [values])
    bench, _ = opened(monkeypatch, kernels, call, floats=2 * N)
    assert isinstance(bench.measure(candidate("one"), None), Measurement)
    assert isinstance(bench.measure(candidate("none"), None), Failure)


def test_refused_launch_is_a_failure(bench: KernelBench) -> None:
    assert bench.measure(candidate("refused"), None) == Failure("launch", "invalid argument")


def test_results_are_what_a_run_leaves(bench: KernelBench) -> None:
    contents = bench.results(candidate("right"))
    assert isinstance(contents, list)
    y, x, *_ = arguments()
    np.testing.assert_array_equal(contents[0], F4(2.5) * x + y)
    np.testing.assert_array_equal(contents[1], x)
    assert bench.results(candidate("refused")) == Failure("launch", "invalid argument")


def test_lost_context_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: dict[str, Kernel] = {}
    bench, session = opened(monkeypatch, kernels)
    kernels["lost"] = lost(session)
    with pytest.raises(Error):
        bench.measure(candidate("lost"), None)


def test_rematch_interleaves_verified_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, session = opened(monkeypatch)
    acts = ("right", "input", "right")
    outcomes, baseline = bench.rematch([candidate(act) for act in acts], with_baseline=False)
    assert [type(outcome) for outcome in outcomes] == [Measurement, Failure, Measurement]
    assert (session.log[-1], baseline) == ("interleave 2", None)


def test_rematch_has_a_deadline(bench: KernelBench) -> None:
    bench.rematch([candidate("right")], False, 7.0)
    assert bench._timer.deadline == 7.0


def test_bench_takes_up_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = opened(monkeypatch, call=Workload(work().call, (), ()))
    bench.switch_to(work())
    assert isinstance(bench.measure(candidate("right"), None), Measurement)


def test_workload_survives_pickling() -> None:
    sent = replace(work(), on_host=lambda *_: None)
    loaded = pickle.loads(pickle.dumps(sent))
    assert loaded.on_host is None
    assert (loaded.call, loaded.arguments) == (sent.call, sent.arguments)
    for received, buffer in zip(loaded.buffers, sent.buffers, strict=True):
        np.testing.assert_array_equal(received.before, buffer.before)
        assert (received.place, received.written) == (buffer.place, buffer.written)


def test_too_large_arrays_are_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunnerError, match=r"saxpy\(.*\): the arrays take 0.0 GiB of device memory"):
        opened(monkeypatch, free=4000)


# Scratch memory

SCRATCH = "scratch 4"


def with_scratch(floats: int) -> Candidate:
    """A candidate whose kernels share that many floats."""
    plain = candidate("scratch")
    piece = Piece(SCRATCH, 0, 4 * floats)
    return replace(plain, plan=replace(plain.plan, workspace=4 * floats + 4096, pieces=(piece,)))


def measured(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, *sizes: int
) -> list[Measurement | Failure]:
    bench, _ = opened(monkeypatch, {"scratch": kernel})
    return [bench.measure(with_scratch(size), None) for size in sizes]


def test_scratch_holds_nan_before_each_verified_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []

    def run(at: Pointers) -> None:
        scratch = at.at(SCRATCH, 8)
        seen.append(bool(np.isnan(scratch).all()))
        scratch[:] = 1.0
        right(at)

    first, second = measured(monkeypatch, run, 8, 8)
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert seen == [True] * 4


@pytest.mark.parametrize("around", [{"before": 1}, {"behind": 1}])
def test_write_beside_scratch_is_found(
    monkeypatch: pytest.MonkeyPatch, around: dict[str, int]
) -> None:
    def run(at: Pointers) -> None:
        right(at)
        at.at(SCRATCH, 8, **around)[0 if "before" in around else -1] = 1.0

    (outcome,) = measured(monkeypatch, run, 8)
    assert isinstance(outcome, Failure)
    reason = "stray writes: changed 4 bytes around the scratch memory of argument 4"
    assert (outcome.stage, outcome.reason) == ("verify", reason)


def test_scratch_of_a_larger_candidate_is_guarded_at_its_own_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(at: Pointers) -> None:
        at.at(SCRATCH, 5000)[-1] = 1.0
        right(at)

    small, large, again = measured(monkeypatch, run, 4999, 5000, 4999)
    assert isinstance(large, Measurement)
    assert isinstance(small, Failure)
    assert isinstance(again, Failure)


def test_run_keeps_its_scratch_when_others_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(at: Pointers) -> None:
        at.at(SCRATCH, 8)[:] = 1.0
        right(at)

    bench, session = opened(monkeypatch, {"scratch": run})
    kept, pieces = bench._bound(with_scratch(8))
    bench._bound(with_scratch(100_000))
    larger = weakref.ref(bench._scratch._memory)
    bench._bound(with_scratch(200_000))
    assert larger() is None  # no run keeps it
    bench._restore(pieces)
    kept()
    session.synchronize()
    assert bench._scratch.stray(pieces) is None
