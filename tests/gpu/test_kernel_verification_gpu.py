"""Verification of user kernels on a GPU: every fault fails with the words of the host, in every
type; and what verification costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from user_candidates import candidates

from autotune.device import Device
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.runner import Candidate
from autotune.measure.session import Session
from autotune.problem.integers import ceil_div
from autotune.user_kernels import bench as module
from autotune.user_kernels.bench import KernelBench
from autotune.user_kernels.guarded_arrays import TYPES
from autotune.user_kernels.results import Verification
from autotune.user_kernels.workload import Workload, workload

COPY = """
template <int BYTES, int FAULT>
__global__ void copy(unsigned char* out, unsigned char* in, long long n, long long at)
{
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n || (FAULT == 1 && i == at)) return;
    for (int byte = 0; byte < BYTES; ++byte) out[i * BYTES + byte] = in[i * BYTES + byte];
    if (i != at) return;
    if (FAULT == 2) for (int byte = 0; byte < BYTES; ++byte) out[i * BYTES + byte] ^= 1;
    if (FAULT == 3) for (int byte = 0; byte < BYTES; ++byte) out[i * BYTES + byte] = 255;
    if (FAULT == 4) out[-1] ^= 1;
    if (FAULT == 5) out[n * BYTES] ^= 1;
    if (FAULT == 6) in[i * BYTES] ^= 1;
}
"""
FAULTS = {
    "none": "",
    "unwritten": "argument 0: wrong result: 1 of 100003 elements, such as ",
    "wrong": "argument 0: wrong result: 1 of 100003 elements, such as ",
    "nan": "argument 0: wrong result: 1 of 100003 elements, such as ",
    "before": "stray writes: changed 1 bytes around argument 0",
    "behind": "stray writes: changed 1 bytes around argument 0",
    "input": "stray writes: changed 1 elements of argument 1, which the reference leaves as it is",
}
N, AT = 100_003, 77_777
CASES = [
    *((name, name) for name in ("bool", *TYPES)),
    *(("float16", "float64"), ("float32", "float64"), ("complex64", "complex128")),
    *(("float32", "int64"), ("int64", "int8"), ("float64", "longdouble")),
]
"""Types of the arrays, and of the reference's results; the host compares the last."""

SAXPY = """
template <int THREADS> __global__ void saxpy(float* y, const float* x, float a, long long n)
{
    const long long at = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (at < n) y[at] += a * x[at];
}
"""
MOST_MS, MOST_SHARE = 3.0, 0.02


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "verification"
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(folder))


def copied(dtype: str, wide: str) -> Workload:
    """The call of `copy`; element `AT` is 1, which each fault changes."""
    drawn = np.random.default_rng(0).standard_normal(N)
    whole = any(np.dtype(name).kind in "iub" for name in (dtype, wide))
    values = (np.abs(50 * drawn).clip(max=100).round() if whole else drawn).astype(dtype)
    values[AT] = 1

    def reference(out: Any, given: Any, *_: Any) -> Sequence[Any]:
        del out
        return [given.astype(wide), None, None, None]

    arguments = [np.zeros_like(values), values, np.int64(N), np.int64(AT)]
    return workload("copy", arguments, reference, Verification())


@cache
def faulty(device: Device, size: int) -> dict[str, Candidate]:
    """A candidate with each fault, for elements of `size` bytes."""
    work, values = copied("uint8", "uint8"), {"BYTES": (size,), "FAULT": range(len(FAULTS))}
    compiled = candidates(work, device, COPY, work.call.name, values, grid=ceil_div(N, 256))
    return dict(zip(FAULTS, compiled, strict=True))


def on_host(session: Session, work: Workload, monkeypatch: pytest.MonkeyPatch) -> KernelBench:
    """A bench without memory for copies."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "SPARE", 2**60)
        bench = KernelBench(session, work)
    assert bench._comparison is None
    return bench


@pytest.mark.parametrize("types", CASES, ids="-".join)
def test_device_fails_each_fault_in_the_words_of_the_host(
    session: Session, monkeypatch: pytest.MonkeyPatch, types: tuple[str, str]
) -> None:
    work = copied(*types)
    device, host = KernelBench(session, work), on_host(session, work, monkeypatch)
    assert device._comparison is not None
    by_fault = faulty(session.device, np.dtype(types[0]).itemsize)
    for fault, reason in FAULTS.items():
        outcome, expected = (bench.measure(by_fault[fault], None) for bench in (device, host))
        if fault == "none":
            assert isinstance(outcome, Measurement), outcome
            assert isinstance(expected, Measurement), expected
            assert outcome.error == 0.0
            assert outcome.tolerance == expected.tolerance
            continue
        assert isinstance(outcome, Failure), (fault, outcome)
        assert (outcome.stage, outcome.reason[: len(reason)]) == ("verify", reason)
        assert outcome == expected


def test_rounding_has_the_same_error_on_the_device(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel rounds a x + y once or twice; the reference is in double precision."""
    work, candidate = axpy(session.device, 1_000_003)
    outcomes = [
        bench.measure(candidate, None)
        for bench in (KernelBench(session, work), on_host(session, work, monkeypatch))
    ]
    device, host = outcomes
    assert isinstance(device, Measurement), device
    assert isinstance(host, Measurement), host
    assert 0 < (device.error or 0) == host.error
    assert device.tolerance == host.tolerance


def test_input_is_restored_after_a_stray_write(session: Session) -> None:
    bench = KernelBench(session, copied("float32", "float32"))
    by_fault = faulty(session.device, 4)
    for fault in FAULTS:
        bench.measure(by_fault[fault], None)
        outcome = bench.measure(by_fault["none"], None)
        assert isinstance(outcome, Measurement), (fault, outcome)


def axpy(device: Device, n: int) -> tuple[Workload, Candidate]:
    y, x = (np.random.default_rng(seed).standard_normal(n, np.float32) for seed in (0, 1))

    def reference(y: Any, x: Any, a: Any, _: Any) -> Sequence[Any]:
        return [float(a) * x.astype(np.float64) + y, None, None, None]

    work = workload("saxpy", [y, x, np.float32(0.1), np.int64(n)], reference, Verification())
    (candidate,) = candidates(
        work, device, SAXPY, work.call.name, {"THREADS": (256,)}, grid=ceil_div(n, 256)
    )
    return work, candidate


def cost_ms(bench: KernelBench, candidate: Candidate, repeats: int) -> float:
    """Milliseconds of loading and verifying a candidate, without its two runs."""
    costs = []
    for _ in range(repeats):
        start = perf_counter()
        ready = bench._prepared(candidate)
        elapsed = perf_counter() - start
        assert not isinstance(ready, Failure), ready
        costs.append(1e3 * elapsed - 2e-3 * ready[1].time_us)
    return median(costs)


@pytest.mark.timing
@pytest.mark.parametrize("megabytes", [64, 256])
def test_verification_costs_little_of_a_trial(
    session: Session, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    work, candidate = axpy(session.device, megabytes * 10**6 // 8)
    bench = KernelBench(session, work)
    assert isinstance(bench.measure(candidate, None), Measurement)  # loads what it takes
    start = perf_counter()
    assert isinstance(bench.measure(candidate, None), Measurement)
    trial = 1e3 * (perf_counter() - start)
    device = cost_ms(bench, candidate, 9)
    host = cost_ms(on_host(session, work, monkeypatch), candidate, 1)
    print(
        f"{session.device.name}: {megabytes} MB of arrays: verified in {device:.2f} ms on the "
        f"device, {host:.0f} ms on the host; a trial takes {trial:.1f} ms"
    )
    assert device < MOST_MS + MOST_SHARE * trial
