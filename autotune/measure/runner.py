"""The runner port: everything that needs a device happens behind `Runner`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autotune.cuda.program import Program, code_digest
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective


@dataclass(frozen=True)
class Candidate:
    """A configuration ready to run.

    Attributes:
        config: the configuration.
        plan: its launches.
        programs: one for each launch; empty where the runner needs none.
        resources: resources of the dominant launch.
        rows: rows of C that it has to compute as another candidate does, bit for bit; None for
            none.
    """

    config: Config
    plan: LaunchPlan
    programs: tuple[Program, ...]
    resources: Resources
    rows: RowReference | None = None

    @property
    def code(self) -> str:
        """The hash of the programs' machine code; empty if the runner needs no programs."""
        return code_digest(self.programs)


@dataclass(frozen=True)
class RowReference:
    """Rows of C as another candidate computes them without the rows beside them.

    Attributes:
        first: the first row, a multiple of 16, so that its address is as aligned as C's.
        rows: their number, which is M in the problem of the candidate's launches.
        candidate: what computes them.
    """

    first: int
    rows: int
    candidate: Candidate


class Runner(Protocol):
    """Measures candidates of one problem on one device, or replays or predicts the measurement.

    Guarantees of every implementation; `autotune.testing.RunnerContract` checks what shows from
    outside:
    - `measure` and `rematch` never raise because of a candidate (wrong results, illegal access,
      endless loop): it is a `Failure`, and the runner stays usable.
    - A `Measurement` is only returned for a candidate whose result was verified, or, if `evidence`
      is "replayed", was verified when it was recorded. A prediction has no samples and no error.
    - `measure` does not compare accuracies and needs no vendor library: the caller checks
      them beside the baseline (`oracle.checked_accuracy`), earlier measurements too.
    - If `evidence` is "measured" and `baseline` has returned a measurement, `rematch` compares
      accuracies on operands that all candidates share: a candidate whose relative error exceeds
      `problem.accuracy.relative_bound` is a `Failure` at the stage "accuracy".
    - `measure` may stop early once a candidate is clearly slower than the `best` time of the
      objective; its measurement then has few samples but is still a measurement. If `evidence` is
      "measured", it has a `cold_us` unless its hot time already exceeds the best cold time: such a
      candidate cannot win cold.
    - `rematch` times all candidates interleaved, so that their times can be compared.
    - `examine` verifies a candidate that is about to be recorded as the fastest more thoroughly
      than `measure`: hundreds of launches, gaps between rows, special values. It returns the
      failure, or None if there is none, and always if `evidence` is not "measured".
    - `energies` answers for each candidate that `rematch` has verified: the energy of one run, or a
      failure. It is only called if `energy_fault` is None.
    - A runner starts in the background: if it cannot, `device` or the first request raises the
      reason.
    - `baseline_ready` never waits and may be read by any thread at any time. Everything else is for
      one thread at a time.
    - `close` may be called twice, and also after a failure.
    """

    @property
    def device(self) -> Device: ...

    @property
    def evidence(self) -> Evidence: ...

    def known(self) -> Sequence[Config] | None:
        """The only configurations that this runner can measure; None for any."""
        ...

    def resources(self, config: Config) -> Resources | None:
        """Compiled resources if the runner has them; None if the caller has to compile."""
        ...

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure: ...

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]: ...

    def examine(self, candidate: Candidate) -> Failure | None: ...

    def energy_fault(self) -> str | None:
        """Why there are no energies, in one line that says what to do; None if there are."""
        ...

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """The energy of one run of each candidate, back to back and hot.

        The baseline has its energy too afterwards, if it was known before.

        Raises:
            RunnerError: if the counter of energy fails.
        """
        ...

    def baseline(self) -> Measurement | None:
        """The vendor baseline of the problem; None if there is none.

        Waits until the library is loaded, which may take seconds.
        """
        ...

    @property
    def baseline_fault(self) -> str:
        """Why the vendor library's result was refused, so that there is no baseline; else empty."""
        ...

    @property
    def baseline_ready(self) -> bool:
        """Whether `baseline` would not wait for a library.

        It becomes true in any case, even if loading the library fails.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class WithLibrary(Protocol):
    """A runner whose device has a library with algorithms of its own, as a GPU's may."""

    def algorithms(self) -> Sequence[Config]:
        """The configurations of the library for the problem, the best expected first; none without
        the library. They can be measured like any other."""
        ...


@runtime_checkable
class Punctual(Protocol):
    """A runner that can end in time, as a GPU's can."""

    def until(self, deadline: float) -> None:
        """Bounds what follows by a time of `time.monotonic`.

        `measure` answers by then; a candidate that has no time is a `Failure` at the stage
        "timeout". `rematch` takes fewer samples.
        """
        ...
