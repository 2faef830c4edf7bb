"""The seam to the hardware: everything that needs a device happens behind `Runner`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from autotune.compiler import Program
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources

Evidence = Literal["measured", "replayed", "predicted"]
Objective = Literal["hot", "cold"]
"""Which time decides: with inputs that may sit in L2, or with L2 flushed before each run."""
Stage = Literal[
    "compile", "resources", "launch", "verify", "accuracy", "timeout", "crash", "quarantined"
]
"""Where a candidate fell; `accuracy` is a right result, but less exact than what is allowed."""


@dataclass(frozen=True)
class Measurement:
    """How long one run of a candidate takes, in microseconds.

    Attributes:
        time_us: median, hot (inputs may sit in L2).
        spread_us: half the distance between the quartiles of the hot samples.
        samples: how many hot samples there were.
        cold_us: median with L2 flushed before each run; None if it was not measured.
        cold_spread_us: as `spread_us`, of the cold samples; None if they were not measured, or
            before that was kept.
        error: largest absolute error against the float64 reference; None if nothing ran.
        tolerance: what the error was allowed to be.
        relative_error: Frobenius norm of the error over that of the float64 reference, at alpha = 1
            and beta = 0; None if nothing ran, and in what was recorded before it was looked at.
    """

    time_us: float
    spread_us: float = 0.0
    samples: int = 1
    cold_us: float | None = None
    error: float | None = None
    tolerance: float | None = None
    relative_error: float | None = None
    cold_spread_us: float | None = None


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no measurement: the stage it fell at and one line with numbers."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A configuration ready to run: its plan and one program a launch (none where the runner
    needs none), with the resources of the launch that dominates."""

    config: Config
    plan: LaunchPlan
    programs: tuple[Program, ...]
    resources: Resources


class Runner(Protocol):
    """Runs candidates of one problem on one device, or answers as if it did.

    Guarantees of every implementation:
    - `measure` and `rematch` never raise for what a candidate does (wrong results, illegal
      access, endless loop): that comes back as a `Failure` and the runner stays usable.
    - A `Measurement` is only returned for a candidate whose result was verified, or, where
      `evidence` is not "measured", was verified when it was recorded.
    - `measure` does not compare accuracies: it needs no vendor library, and whoever asks for the
      baseline judges what was measured (`accuracy.judged`), also what was measured before.
    - Where `evidence` is "measured" and `baseline` has given a measurement, `rematch` compares
      accuracies, on operands that are the same for all: a candidate whose relative error is beyond
      `reference.relative_bound` of the vendor library's is a `Failure` at the stage "accuracy".
    - `measure` may stop early once a candidate is clearly slower than `best_us`, the best time of
      the objective; its measurement then has few samples but is still a measurement. By the
      objective "cold" it has a `cold_us` unless its hot time alone is clearly slower than `best_us`
      or `evidence` is not "measured".
    - `rematch` measures all candidates interleaved, so that their times can be compared.
    - What answers starts in the background: where a device cannot be had, `device` or the first
      request raises what is missing.
    - `baseline_ready` never waits, and any thread may ask for it at any time. All else is for one
      thread at a time.
    - `close` may be called twice, and also after a failure.
    """

    @property
    def device(self) -> Device: ...

    @property
    def evidence(self) -> Evidence: ...

    def known(self) -> Sequence[Config] | None:
        """The only configurations that this runner can answer for, or None for any."""
        ...

    def resources(self, config: Config) -> Resources | None:
        """The compiled resources if the runner knows them; None asks the caller to compile."""
        ...

    def measure(
        self, candidate: Candidate, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement | Failure: ...

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]: ...

    def baseline(self) -> Measurement | None:
        """The vendor library's time for the problem, or None where there is none to time.

        It waits until the library is loaded, which may take seconds.
        """
        ...

    @property
    def baseline_ready(self) -> bool:
        """Whether `baseline` would not wait for a library. It becomes true in time, whatever goes
        wrong meanwhile."""
        ...

    def close(self) -> None: ...
