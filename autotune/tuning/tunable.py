"""The interface the tuning loop needs from whatever it tunes: a GEMM or a user kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from autotune.candidates.features import Describe
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.lookup.promising import Contenders
from autotune.measure.measurement import Evidence, Failure, Measurement, Stage
from autotune.measure.objective import Objective
from autotune.measure.runner import Runner
from autotune.records import Entry, Provenance, Store, TuningRecord

R_co = TypeVar("R_co", bound=TuningRecord, covariant=True)

SURVEY = 6000
"""Configurations of a family that the cost model ranks at most: ranking 100,000 takes seconds."""


@dataclass(frozen=True)
class Candidates:
    """The configurations to choose from, at least one, and the number rejected for each reason.

    Attributes:
        ranked: those that a model ranked, the best predicted first.
        unranked: the rest.
        rejected: number of configurations that cannot run, by reason.
    """

    ranked: tuple[Config, ...]
    unranked: tuple[Config, ...]
    rejected: Mapping[str, int]

    @property
    def configs(self) -> tuple[Config, ...]:
        """All configurations, the ranked ones first."""
        return self.ranked + self.unranked

    def extended_by(self, configs: Iterable[Config]) -> Candidates:
        """These candidates, followed by those of `configs` that are not among them."""
        missing = dict.fromkeys(configs)
        for config in self.configs if missing else ():
            missing.pop(config, None)
        return replace(self, unranked=(*self.unranked, *missing))


class Tunable(Protocol[R_co]):
    """Something with configurations that all compute the same.

    Guarantees of every implementation:
    - The text form says in one line what is tuned. `slug` is the same as part of a file name; two
      tunables that differ in what they compute differ in it.
    - `kinds` names the kernels that the configurations are of. Trials that agree in slug, kinds and
      hash of the sources can be compared.
    - `candidates` gives at least one configuration, or raises an `AutotuneError` that says why
      there is none; `unsafe` ones count as rejected, as quarantined. A model ranks `survey` of
      them, or all.
    - Every candidate has a plan, with the same text.
    - `contenders` are configurations to race before all others, known before the candidates are;
      `guesses` are those to try next, for that objective. Neither need be among the
      candidates; contenders that are not are added to them.
    - `describe` gives the features a time may depend on besides the parameters; None if there are
      none.
    - `judged` is the measurement, or a failure at the stage "accuracy" if the result is less
      accurate than the vendor library's in `baseline` allows.
    - `inaccurate` are the places of those candidates that `judged` is expected to refuse beside
      `baseline`, so that they are not tried.
    - `stands` is whether a failure at that stage in an earlier run would also be one today.
    """

    @property
    def slug(self) -> str: ...

    @property
    def kinds(self) -> str: ...

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates: ...

    def contenders(
        self, device: Device, store: Store, objective: Objective
    ) -> Contenders | None: ...

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]: ...

    def describe(self, device: Device) -> Describe | None: ...

    def plan(self, config: Config) -> LaunchPlan: ...

    def judged(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure: ...

    def inaccurate(self, configs: Sequence[Config], baseline: Measurement) -> Sequence[int]: ...

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
