"""What is tuned, as the loop sees it: a problem of ours or a kernel of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from autotune.candidates.features import Describe
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.records import Entry, Provenance, Store, TuningRecord
from autotune.runners.base import Evidence, Failure, Measurement, Runner, Stage

R_co = TypeVar("R_co", bound=TuningRecord, covariant=True)


@dataclass(frozen=True)
class Candidates:
    """At least one configuration, and how many fell to which reason.

    Attributes:
        ranked: those that a model looked at, the best predicted in front.
        others: the rest.
        rejected: counts what cannot run, by reason.
    """

    ranked: tuple[Config, ...]
    others: tuple[Config, ...]
    rejected: Mapping[str, int]

    @property
    def configs(self) -> tuple[Config, ...]:
        """All of them, the ranked ones first."""
        return self.ranked + self.others


class Tunable(Protocol[R_co]):
    """Something that has configurations, each of which computes the same.

    Guarantees of every implementation:
    - The text form says what is tuned, in one line. `slug` is the same as part of a file name; two
      subjects that differ in what they compute differ in it.
    - `kinds` names what the configurations are of. Of one slug, one of these and one hash of the
      sources, all trials can be compared.
    - `candidates` gives at least one configuration, or raises an `AutotuneError` that says why
      there is none; what is `unsafe` counts as rejected, as quarantined. A model looks at `survey`
      of them, or at all.
    - Every configuration among them has a plan, with the same text.
    - `guesses` are configurations to try first, also such as are no candidates.
    - `describe` tells what a time may depend on besides the parameters; None if nothing is known.
    - `judged` is the measurement, or a failure at the stage "accuracy" if the result was less
      accurate than the vendor library's, as in `baseline`, allows.
    - `stands` is whether a failure at that stage in an earlier run would be one today.
    """

    @property
    def slug(self) -> str: ...

    @property
    def kinds(self) -> str: ...

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates: ...

    def guesses(self, there: Candidates, device: Device, store: Store) -> tuple[Config, ...]: ...

    def describe(self, device: Device) -> Describe | None: ...

    def plan(self, config: Config) -> LaunchPlan: ...

    def judged(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure: ...

    def stands(self, stage: Stage) -> bool: ...

    def record(
        self,
        *,
        device: Device,
        evidence: Evidence,
        entries: Sequence[Entry],
        baseline: Measurement | None,
        provenance: Provenance,
    ) -> R_co: ...
