"""Verifies the vendor's library on a suite of shapes, without timing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.device import Device
from autotune.errors import RunnerError
from autotune.measure.bench import BASELINE
from autotune.measure.gpu_runner import (
    BASELINE_BENCH,
    BASELINE_LIMIT,
    LIBRARY_RUNS,
    candidate_limit,
    unexpected,
)
from autotune.measure.measurement import Failure
from autotune.measure.verify import Passed
from autotune.measure.worker import RestartingWorker
from autotune.problem import PRECISIONS, Problem
from autotune.problem.vendor import LAYOUT
from autotune.problem.vendor_faults import known_fault

SUITE = (
    *("128x128x128", "256x256x256", "512x512x512", "1024x1024x1024", "2048x2048x2048"),
    *("4096x4096x4096", "8192x8192x8192", "1000x1000x1000", "1023x1025x1027", "3000x3000x3000"),
    *("4097x4095x4093", "1x4096x4096", "8x4096x4096", "16x4096x4096", "64x4096x4096"),
    *("128x4096x14336", "512x14336x4096", "4096x64x4096", "64x64x65536", "128x128x16384"),
    *("256x256x8192", "65536x64x64", "100000x128x128", "32x32x1000000", "4096x4096x64"),
    *("2048x512x8192", "37x53x71"),
)
"""The shapes of the published tables."""

ODD = (
    *("512x512x1027", "4096x4096x4093", "1024x1024x8191", "256x256x8201"),
    *("1x8x11528", "32x32x11528", "64x64x11528", "128x128x11528", "16x64x57608"),
    *("32x32x23048", "128x128x34568", "256x128x100001"),
)
"""Odd K, and small M and N with a long K that ends in a part of a block of 64: of 11528 cuBLAS
13.1.0 loses the last 8 on an H100, in 16 bits."""


UNSERVED = Failure("launch", "neither PyTorch nor cuBLAS computes it")


def default_problems() -> list[Problem]:
    """The suite and the odd shapes, in every precision that the library serves."""
    served = [row for name, row in PRECISIONS.items() if row.vendor == name]
    return [
        Problem.parse(
            f"{shape}:{row.name}",
            layout=LAYOUT if row.eight_bit else "nn",
            output="i32" if row.operand.integer else "same",
        )
        for row in served
        for shape in (*SUITE, *ODD)
    ]


@dataclass(frozen=True)
class VendorCheck:
    """The result of one call of the vendor's library.

    Attributes:
        problem: the problem.
        runs: the call: cuBLAS by default, or a further one by its name.
        result: its errors against the reference, or why it is wrong or was not computed.
        fault: the fault that release notes state for this version on the problem; None without one.
    """

    problem: Problem
    runs: str
    result: Passed | Failure
    fault: str | None = None

    @property
    def outcome(self) -> str:
        """`verified`, `wrong` or `not verifiable`, as in a record."""
        if isinstance(self.result, Passed):
            return "verified"
        return "not verifiable" if self.result.stage == "launch" else "wrong"

    @property
    def why(self) -> str:
        """Why it is wrong, in the verifier's words, or not verifiable; empty if it is right."""
        return self.result.reason if isinstance(self.result, Failure) else ""


@dataclass(frozen=True)
class VendorChecks:
    """The results of the vendor's library on a GPU, and the versions that ran."""

    device: Device
    driver: str
    library: str
    results: tuple[VendorCheck, ...]

    @property
    def wrong(self) -> tuple[VendorCheck, ...]:
        """The wrong results."""
        return tuple(result for result in self.results if result.outcome == "wrong")


def check_vendor(
    problems: Iterable[Problem], index: int = 0, further: Sequence[str] = ()
) -> VendorChecks:
    """Verifies cuBLAS, as it is called by default, on each problem.

    Integer products have to be exact and normal random ones within `oracle.library_tolerance`, as
    before the baseline is timed.

    Args:
        problems: the problems.
        index: the GPU.
        further: `module:function` of factories of further runs, as `GpuRunner.compare` takes them.

    Raises:
        MissingError: without a driver or a GPU.
        DeviceError: if there is no GPU of that index.
        RunnerError: if the worker does not start.
    """
    first, *_ = asked = list(problems)
    worker = RestartingWorker(BASELINE_BENCH, (first, index))
    try:
        info = worker.device_info
        answer = worker.request("library", (), BASELINE_LIMIT)
        version = answer if isinstance(answer, str) else ""
        results = [
            replace(result, fault=known_fault(version, info.device.compute_capability, problem))
            for problem in asked
            for result in _results(worker, problem, further)
        ]
    finally:
        worker.stop()
    return VendorChecks(info.device, info.driver, version, tuple(results))


def _results(
    worker: RestartingWorker, problem: Problem, further: Sequence[str]
) -> Iterator[VendorCheck]:
    """The results of the library's calls on a problem."""
    limit = candidate_limit(problem) * (1 + LIBRARY_RUNS * len(further)) + BASELINE_LIMIT
    try:
        worker.switch_to(problem, limit)
        answer = worker.request("verify_libraries", (list(further),), limit)
    except RunnerError as error:  # such as too little memory for this problem
        answer = Failure("launch", str(error))
    if isinstance(answer, dict):
        outcomes = answer or {BASELINE: UNSERVED}
    else:
        outcomes = {BASELINE: answer if isinstance(answer, Failure) else unexpected(answer)}
    for name, result in outcomes.items():
        yield VendorCheck(problem, "cuBLAS" if name == BASELINE else name, result)
