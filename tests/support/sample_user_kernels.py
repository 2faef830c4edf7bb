"""A user kernel, y = a x + y over `n` floats, its record, and a runner without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.problem.call import KernelCall
from autotune.problem.integers import ceil_div
from autotune.records import KernelRecord
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch
from autotune.user_kernels.arguments import call_of
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.results import Verification
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Workload, workload
from support.sample_records import H100, entry, record

SAXPY = """
template <int THREADS, int EACH>
__global__ void __launch_bounds__(THREADS) saxpy(float* y, const float* x, float a, int n) {
    for (int i = 0; i < EACH; ++i) {
        const int at = (blockIdx.x * EACH + i) * THREADS + threadIdx.x;
        if (at < n) y[at] += a * x[at];
    }
}
"""


N = 1000


THREADS, EACH = (32, 64, 128, 256, 2048), (1, 2, 4)


LEGAL = 4 * 3 - 1
"""2048 threads are too many, and 32 with 4 each break the constraint."""


def kernel(**changes: Any) -> UserKernel:
    """The kernel with changed fields."""
    definition: dict[str, Any] = {
        "source": SAXPY,
        "name": "saxpy",
        "parameters": {"THREADS": THREADS, "EACH": EACH},
        "constraints": {"enough threads": lambda p: p["THREADS"] >= 16 * p["EACH"]},
        "grid": lambda p: ceil_div(N, p["THREADS"] * p["EACH"]),
        "block": lambda p: p["THREADS"],
        "shared": 0,
    }
    return define_kernel(**definition | changes)


def arguments() -> list[Any]:
    """y, x, a and n."""
    random = np.random.default_rng(0)
    y, x = (random.standard_normal(N).astype(np.float32) for _ in range(2))
    return [y, x, np.float32(2.5), np.int32(N)]


def reference(y: Any, x: Any, a: Any, n: Any) -> Sequence[Any]:
    """The expected contents of the arguments."""
    del n
    return [a * x + y, None, None, None]


def work(**changes: Any) -> Workload:
    """The call with changed fields."""
    keywords: Mapping[str, Any] = {
        **{"name": "saxpy", "arguments": arguments(), "reference": reference},
        **{"verify": Verification(), **changes},
    }
    return workload(**keywords)


def tunable(**changes: Any) -> KernelTunable:
    """The kernel and its call as a tunable."""
    call = work()
    return KernelTunable(kernel(**changes), call.call, call.arguments)


def recorded(
    call: KernelCall | None = None, device: Device = H100, threads: int = 256
) -> KernelRecord:
    """The record of a call, by default that of `arguments`, with the kernel's source."""
    call = call or call_of("saxpy", arguments())
    config = Config.of("saxpy", {"THREADS": threads, "EACH": 1})
    geometries = (Geometry((4, 1, 1), (threads, 1, 1), 512),)
    launch = KernelLaunch(kernel().source, call, geometries)
    own = KernelEntry.of(replace(entry(16, 12.5), config=config), launch)
    return KernelRecord(device, "measured", (own,), None, record().provenance, call)


class KernelRunner:
    """A fake runner, fastest with the most threads and one element per thread.

    Attributes:
        broken: outcome of configurations with a number of threads, such as `t256`.
        measured: the configurations passed to `measure`, in order.
        metered: those passed to `energies`.
        fault: why there are no energies.
    """

    evidence: Evidence = "measured"
    device: Device = H100
    baseline_fault = ""

    def __init__(self, **broken: Failure) -> None:
        self.broken = broken
        self.measured: list[Config] = []
        self.metered: list[Config] = []
        self.fault: str | None = None

    def known(self) -> Sequence[Config] | None:
        return None

    def resources(self, config: Config) -> Resources | None:  # noqa: ARG002
        return None

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        del best, objective
        self.measured.append(candidate.config)
        return self._outcome(candidate.config)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        return [self._outcome(candidate.config) for candidate in candidates]

    def examine(self, candidate: Candidate) -> Failure | None:
        del candidate
        return None

    def energy_fault(self) -> str | None:
        return self.fault

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        self.metered += [candidate.config for candidate in candidates]
        return [self._energy(candidate.config) for candidate in candidates]

    def baseline(self) -> None:
        return None

    @property
    def baseline_ready(self) -> bool:
        return True

    def switch_to(self, work: Workload, time_limit: float) -> None:
        del work, time_limit

    def close(self) -> None:
        return None

    def _energy(self, config: Config) -> Energy:
        """The fewer threads, the less power: the slowest kernel takes the least energy."""
        threads, outcome = config.integer("THREADS"), self._outcome(config)
        assert isinstance(outcome, Measurement)
        return Energy(threads**2 * outcome.time_us * 1e-6, 0.0, float(threads**2), 1_500.0)

    def _outcome(self, config: Config) -> Measurement | Failure:
        threads, each = config.integer("THREADS"), config.integer("EACH")
        time_us = 1000 / threads + each
        return self.broken.get(f"t{threads}") or Measurement(time_us, 0.1, 20, 2 * time_us)
