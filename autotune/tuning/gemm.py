"""A GEMM as a tunable: a problem and the kernel families to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.candidates import cost
from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.family_names import AUTO, families_of
from autotune.candidates.features import Describe
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.families.shared.accuracy import measured_limit
from autotune.lookup.digests import own
from autotune.lookup.kept_choice import one_blas_thread
from autotune.lookup.promising import Contenders, contenders
from autotune.problem import Problem
from autotune.records import (
    Entry,
    FamilyRecord,
    OrderedRecord,
    Provenance,
    Record,
    Records,
    Store,
)
from autotune.records.ordered import order_slug
from autotune.runners.base import Evidence, Failure, Measurement, Runner, Stage
from autotune.runners.objective import Objective
from autotune.tuning.guesses import candidates, guesses, nearest
from autotune.tuning.tunable import Candidates
from autotune.verification.accuracy import judged


@dataclass(frozen=True)
class GemmTunable:
    """A problem, tuned over one kernel family or those that `auto` stands for; with an `order` of
    summation, over their kernels of that order.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    problem: Problem
    family: str = AUTO
    order: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        families_of(self.family, self.problem)

    def __str__(self) -> str:
        return str(self.problem)

    @property
    def slug(self) -> str:
        """The problem's slug, with that of the order."""
        order = f"-{order_slug(self.order)}" if self.order else ""
        return self.problem.slug + order

    @property
    def kinds(self) -> str:
        """The families' names, such as `simt+gemv`."""
        return "+".join(families_of(self.family, self.problem))

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates:
        """The configurations that the runner can measure, ranked by the cost model."""
        return candidates(
            self.problem, runner, self.family, unsafe, survey=survey, order=self.order
        )

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders | None:
        """The contenders of a quick race that are of these families. Races know no prescribed order
        of summation, so there are none for one."""
        if self.order is not None:
            return None
        with one_blas_thread():
            raced = contenders(self.problem, device, Records(store), objective)
        return raced.of_families(families_of(self.family, self.problem))

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]:
        """The cost model's choices, and the winners on the nearest recorded problems."""
        records = Records(store)
        problems = (digest.problem for digest in own(device, records))
        near = (records.load(device, problem) for problem in nearest(self.problem, problems))
        alone = [] if self.family == AUTO else store.family_records(device, self.family)
        return guesses(candidates.ranked, self.problem, [*filter(None, near), *alone], objective)

    def describe(self, device: Device) -> Describe:
        """A block's resources and work, and the cost model's time."""
        return lambda configs, resources: cost.describe(configs, self.problem, device, resources)

    def plan(self, config: Config) -> LaunchPlan:
        """The launches for operands without gaps."""
        return registry.plan(config, self.problem)

    def judged(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
        """The measurement, or a failure if its error exceeds `relative_bound`."""
        return judged(self.problem, measurement, baseline.relative_error)

    def inaccurate(self, configs: Sequence[Config], baseline: Measurement) -> Sequence[int]:
        """The places of the configurations whose sums predict too large an error beside the
        baseline's."""
        if baseline.relative_error is None:
            return ()
        limit = measured_limit(self.problem, baseline.relative_error)
        accurate = {*AccuracyFilter(self.problem, limit).accurate_places(configs)}
        return [place for place in range(len(configs)) if place not in accurate]

    def stands(self, stage: Stage) -> bool:
        """Always: the oracle that candidates are verified against does not change."""
        del stage
        return True

    def record(
        self,
        *,
        device: Device,
        evidence: Evidence,
        entries: Sequence[Entry],
        baseline: Measurement | None,
        provenance: Provenance,
    ) -> Record:
        """The record of the problem, or of the order or the family if one was asked for."""
        shared = device, evidence, tuple(entries), baseline, provenance, self.problem
        if self.order is not None:
            return OrderedRecord(*shared, self.family, self.order)
        return Record(*shared) if self.family == AUTO else FamilyRecord(*shared, self.family)
