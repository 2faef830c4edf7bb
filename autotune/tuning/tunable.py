"""The interface the tuning loop needs from whatever it tunes, and the GEMM as a tunable.

A GEMM chooses among kernel families; records and the cost model say which configurations to try
first. `user_kernels.KernelTunable` is the other implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import ClassVar, Generic, NamedTuple, TypeVar

from autotune import settings
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import cublaslt, registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.families.registry import AUTO, families_of
from autotune.families.summation import measured_limit
from autotune.lookup.neighbours import own
from autotune.lookup.promising import Contenders, contenders
from autotune.measure.measurement import Evidence, Failure, Measurement, Stage
from autotune.measure.objective import HOT, Objective
from autotune.measure.oracle import checked_accuracy
from autotune.measure.runner import Runner, WithLibrary
from autotune.model import cost, space
from autotune.model.features import Describe
from autotune.model.legality import current, for_compute
from autotune.model.space import ARCHITECTURE, AccuracyFilter, diverse, unserved
from autotune.problem import Problem, distance
from autotune.records import (
    Entry,
    FamilyRecord,
    Provenance,
    Record,
    Records,
    Store,
    TuningRecord,
)

R_co = TypeVar("R_co", bound=TuningRecord, covariant=True)

RANKED = 6000
"""Configurations of a family that the cost model ranks at most: ranking 100,000 takes seconds."""


@dataclass(frozen=True)
class Candidates:
    """The configurations to choose from, at least one, and the number rejected for each reason.

    Attributes:
        ranked: configurations that a model ranked, the best predicted first.
        unranked: configurations that no model ranked.
        rejected: number of configurations that cannot run, by reason.
    """

    ranked: tuple[Config, ...]
    unranked: Sequence[Config]
    rejected: Mapping[str, int]

    @property
    def configs(self) -> Sequence[Config]:
        """All configurations, the ranked ones first."""
        return (*self.ranked, *self.unranked) if self.ranked else self.unranked

    def extended_by(self, configs: Iterable[Config]) -> Candidates:
        """The candidates, followed by the `configs` that are not among them."""
        missing = dict.fromkeys(configs)
        for config in self.configs if missing else ():
            missing.pop(config, None)
        return replace(self, unranked=(*self.unranked, *missing)) if missing else self


class SearchResult(NamedTuple):
    """The result of a run, as the first fields of a `TuningRecord`."""

    device: Device
    evidence: Evidence
    entries: tuple[Entry, ...]
    baseline: Measurement | None
    provenance: Provenance


class Tunable(ABC, Generic[R_co]):
    """A computation with several configurations that all give the same result.

    The text form says in one line what is tuned. Trials that agree in slug, kinds and hash of the
    sources can be compared.

    Attributes:
        punctual: whether the last round has to end in time too, with fewer leaders, or with none
            if a trial of the best does not fit. A winner that has to be examined needs that round.
    """

    punctual: ClassVar[bool] = False

    @property
    @abstractmethod
    def slug(self) -> str:
        """The text form as part of a file name; tunables that differ in what they compute differ in
        it."""

    @property
    @abstractmethod
    def kinds(self) -> str:
        """The names of the kernels that the configurations are of."""

    @abstractmethod
    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The configurations that the runner can measure, at least one; `barred` ones count as
        rejected, as quarantined. A model ranks `ranked` of each kind, evenly spread, or all.

        Raises:
            AutotuneError: if none is left; it says why.
        """

    def library(self, runner: Runner) -> tuple[Config, ...]:
        """Configurations of a vendor's library, which no model ranks, the best expected first. None
        is among the candidates."""
        del runner
        return ()

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders | None:
        """Configurations to race before all others, known before the candidates are, to which they
        are added."""
        del device, store, objective
        return None

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]:
        """Configurations to try first, the best first; they need not be among the candidates."""
        del candidates, device, store, objective
        return ()

    def describe(self, device: Device) -> Describe | None:
        """The features that a time may depend on besides the parameters; None without a model that
        knows them of configurations that are not compiled."""
        del device
        return None

    @abstractmethod
    def plan(self, config: Config) -> LaunchPlan:
        """The launches of a candidate, with the same text."""

    def checked(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
        """The measurement, or a failure at the stage "accuracy" if the result is less accurate than
        the vendor library's in `baseline` allows."""
        del baseline
        return measurement

    def inaccurate(self, configs: Sequence[Config], baseline: Measurement) -> Sequence[int]:
        """The places of the configurations that `checked` is expected to refuse beside `baseline`,
        so that they are not tried."""
        del configs, baseline
        return ()

    def stands(self, stage: Stage) -> bool:
        """Whether a failure at that stage in an earlier run would also be one today."""
        del stage
        return True

    @abstractmethod
    def record(self, result: SearchResult) -> R_co:
        """The record of a run."""


GUESSES = 24
"""Guesses of the cost model, as long as no configuration has worked."""

RACED_LIBRARY = 3
"""Algorithms of cuBLASLt in a quick race: on 18 problems of an H100 the fastest is among the first
three of its heuristic (cuBLAS 13.1.0)."""

NEIGHBOURS, RUNNERS_UP = 4, 4
"""Nearest recorded problems whose winners are guessed, and entries of those of the same sizes."""


@dataclass(frozen=True)
class GemmTunable(Tunable[Record]):
    """A problem, tuned over one kernel family or those that `auto` stands for.

    Attributes:
        with_library: whether algorithms of cuBLASLt compete with those of `auto`.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    with_library: ClassVar[bool] = True

    problem: Problem
    family: str = AUTO

    def __post_init__(self) -> None:
        families_of(self.family, self.problem)

    def __str__(self) -> str:
        return str(self.problem)

    @property
    def slug(self) -> str:
        """The problem's slug."""
        return self.problem.slug

    @property
    def kinds(self) -> str:
        """The families' names, such as `simt+gemv+cublaslt`."""
        names = registry.competing if self.with_library else families_of
        return "+".join(names(self.family, self.problem))

    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The configurations of all families, as the cost model ranks them."""
        if self.family == cublaslt.NAME:
            return self._of_library(runner, barred)
        rejected = Counter[str]()
        sampled: list[Config] = []
        unranked: list[Config] = []
        for name in families_of(self.family, self.problem):
            legal = self.legal(runner, name)
            rejected.update(legal.rejected)
            safe = [config for config in legal.configs if config not in barred]
            if len(safe) < len(legal.configs):
                rejected["quarantined"] += len(legal.configs) - len(safe)
            most = len(safe) + 1 if ranked is None else ranked
            sampled += space.spread(safe, most)
            unranked += space.skipped(safe, most)
        if not sampled:
            raise AutotuneError(self._without_candidates(runner, rejected))
        by_time = cost.rank(sampled, self.problem, runner.device)
        best_first = tuple(config for _, config in by_time)
        return Candidates(best_first, tuple(unranked), dict(rejected.most_common()))

    def library(self, runner: Runner) -> tuple[Config, ...]:
        """The algorithms of cuBLASLt that the runner's device offers, or that it has recorded; none
        with `policy(vendor=False)`."""
        wanted = self.with_library and self.family == AUTO and settings.policy().vendor
        return library_configs(self.problem, runner) if wanted else ()

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders | None:
        """The contenders of a quick race that are of these families."""
        raced = contenders(self.problem, device, Records(store), objective)
        return raced.of_families(families_of(self.family, self.problem))

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]:
        """The cost model's choices, and the winners on the nearest recorded problems."""
        records = Records(store)
        listed = () if self.family == AUTO else store.family_records(device, self.family)
        of_family: dict[Problem, Record] = {record.problem: record for record in listed}
        problems = nearest(self.problem, {*own(device, records).problems, *of_family})
        near = (of_family.get(problem) or records.load(device, problem) for problem in problems)
        return guesses(candidates.ranked, self.problem, [*filter(None, near)], objective)

    def describe(self, device: Device) -> Describe:
        """A block's resources and work, and the cost model's time."""
        return lambda configs, resources: cost.describe(configs, self.problem, device, resources)

    def plan(self, config: Config) -> LaunchPlan:
        """The launches for operands without gaps."""
        return registry.plan(config, self.problem)

    def checked(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
        """The measurement, or a failure if its error exceeds `relative_bound`."""
        return checked_accuracy(self.problem, measurement, baseline.relative_error)

    def inaccurate(self, configs: Sequence[Config], baseline: Measurement) -> Sequence[int]:
        """The places of the configurations whose sums predict too large an error beside the
        baseline's."""
        if baseline.relative_error is None:
            return ()
        limit = measured_limit(self.problem, baseline.relative_error)
        accurate = {*AccuracyFilter(self.problem, limit).accurate_places(configs)}
        return [place for place in range(len(configs)) if place not in accurate]

    def record(self, result: SearchResult) -> Record:
        """The record of the problem, or of the family if one was asked for."""
        if self.family == AUTO:
            return Record(*result, self.problem)
        return FamilyRecord(*result, self.problem, self.family)

    def legal(self, runner: Runner, family: str) -> space.Space:
        """The legal configurations of a family, or those that the runner has recorded."""
        problem, device, recorded = self.problem, runner.device, runner.known()
        if recorded is None:
            return space.feasible(problem, device, family)
        usable = current(family, recorded, problem, device)
        outdated = sum(config.family == family for config in recorded) - len(usable)
        return space.Space(usable, {"parameters": outdated} if outdated else {})

    def _of_library(self, runner: Runner, barred: Collection[Config]) -> Candidates:
        """The algorithms of cuBLASLt alone, in the order of its heuristic."""
        listed = library_configs(self.problem, runner)
        safe = tuple(config for config in listed if config not in barred)
        if not safe:
            why = cublaslt.fault(self.problem) or "its heuristic has none there; is it installed?"
            quarantined = f"{len(listed)} quarantined" if listed else why
            said = f"no algorithm of cuBLASLt can run {self.problem} on {runner.device.name}"
            raise AutotuneError(f"{said}: {quarantined}")
        out = len(listed) - len(safe)
        return Candidates((), safe, {"quarantined": out} if out else {})

    def _without_candidates(self, runner: Runner, rejected: Counter[str]) -> str:
        """Why there are no candidates."""
        if runner.known() is None and ARCHITECTURE in rejected and len(rejected) == 1:
            return unserved(self.problem, runner.device, self.family)
        kernel = "configuration" if self.family == AUTO else f"{self.family} configuration"
        reasons = ", ".join(f"{reason} {count}" for reason, count in rejected.most_common())
        why = f"rejected: {reasons}" if reasons else "it knows no problem of that kind"
        return f"no {kernel} can run {self.problem} on {runner.device.name}; {why}"


def library_configs(problem: Problem, runner: Runner) -> tuple[Config, ...]:
    """The algorithms of cuBLASLt that the runner has recorded, or that its device offers."""
    if cublaslt.fault(problem) is not None:
        return ()
    recorded = runner.known()
    if recorded is None:
        return tuple(runner.algorithms()) if isinstance(runner, WithLibrary) else ()
    names = registry.find(cublaslt.NAME).parameters.keys()
    configs = (config for config in recorded if config.family == cublaslt.NAME)
    return tuple(config for config in configs if config.values.keys() == names)


@dataclass(frozen=True)
class QuickTunable(GemmTunable):
    """A quick race: a problem with only a few configurations to try, in two rounds.

    Attributes:
        raced: the configurations of both rounds.
        most_of_library: the most algorithms of cuBLASLt.
    """

    raced: Contenders = field(kw_only=True)
    most_of_library: int = field(default=RACED_LIBRARY, kw_only=True)

    @property
    def kinds(self) -> str:
        """The race has a study of its own for each set of configurations."""
        texts = "\n".join(map(str, self.raced.first))
        return f"quick-{sha256(texts.encode()).hexdigest()[:12]}"

    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The configurations of both rounds."""
        del ranked
        safe = tuple(config for config in self.raced.configs if config not in barred)
        quarantined = len(self.raced.configs) - len(safe)
        if not safe:
            raise AutotuneError(
                f"no kernel to race on {self.problem} on {runner.device.name}: "
                f"{quarantined} quarantined; leave out quick to search all"
            )
        return Candidates(safe, (), {"quarantined": quarantined} if quarantined else {})

    def library(self, runner: Runner) -> tuple[Config, ...]:
        """The first algorithms of cuBLASLt."""
        return super().library(runner)[: self.most_of_library]

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders:
        """The contenders of both rounds."""
        del device, store, objective
        return self.raced


def guesses(
    ranked: Sequence[Config],
    problem: Problem,
    near: Sequence[Record] = (),
    objective: Objective = HOT,
) -> tuple[Config, ...]:
    """Configurations to try first: the model's best of each family, the winners on the `near`
    problems and the runners-up on those of the same sizes, and the model's other choices."""
    chosen = diverse(ranked, problem, GUESSES)
    best_of: dict[str, Config] = {}
    for config in ranked:
        best_of.setdefault(config.family, config)
    near = [*filter(None, (record.without_library for record in near))]
    winners = [record.best_by(objective).config for record in near]
    same_sizes = [record for record in near if distance(record.problem, problem) == 0]
    winners += [entry.config for record in same_sizes for entry in record.entries[:RUNNERS_UP]]
    recorded = (for_compute(config, problem) for config in winners)
    return tuple(dict.fromkeys((*best_of.values(), *recorded, *chosen)))


def nearest(problem: Problem, recorded: Iterable[Problem]) -> list[Problem]:
    """The `NEIGHBOURS` recorded problems of the same kind that are nearest in size, those of the
    same sizes in other layouts included.

    Distance counts sizes and batch alone, unlike that of look-ups: records that differ in epilogue
    or output only tie.
    """
    layout, *kind = kernel_kind(problem)
    alike: list[tuple[float, bool, Problem]] = []
    for item in recorded:
        far, (own_layout, *own_kind) = distance(item, problem), kernel_kind(item)
        if own_kind == kind and (own_layout == layout or far == 0):
            alike.append((far, own_layout != layout, item))
    return [item for _, _, item in sorted(alike)[:NEIGHBOURS]]


def kernel_kind(problem: Problem) -> tuple[object, ...]:
    """Equal for problems that the same kernels suit, whatever their sizes.

    fp16 and bfloat16 are of one kind, and so are the types of fp8.
    """
    precision = problem.precision
    eight_bit = precision.sums == "integer", problem.accumulate, problem.scale == "block"
    operands = problem.element_bytes, problem.products, precision.on_tensor_cores
    return problem.layout, *operands, *(eight_bit if precision.eight_bit else ())
