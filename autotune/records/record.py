"""Records as values: the base of all kinds, those of GEMM problems, and which of several stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args

from msgspec import Meta

from autotune.device import Device, prediction_slug
from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.families.source_text import hash_of
from autotune.files.decoding import Code, Count, Date, Name, Seconds, Share, Text
from autotune.measure.measurement import Evidence, Measurement, tied
from autotune.measure.objective import (
    COLD,
    ENERGY,
    HOT,
    Objective,
    ObjectiveText,
    objective_named,
    winner,
)
from autotune.problem import Problem

T_record = TypeVar("T_record", bound="TuningRecord")

BEST_FIRST: tuple[Evidence, ...] = get_args(Evidence)

PREDICTED = ".predicted.json"
"""The suffix of predicted files' names."""

ORDERED = "ordered"
"""The store's folder for records of one order of summation."""


@dataclass(frozen=True)
class Entry:
    """A recorded configuration with its measurement and resources.

    `occupancy` is the share (0..1) of the SM's warps that can be resident, `limiter` the resources
    that bind it, joined by ` and `. `code` is the hash of the machine code that was measured
    (`program.code_digest`), empty in older records; no comparison has it.
    """

    config: Config
    measurement: Measurement
    resources: Resources
    occupancy: Share
    limiter: Text
    code: Code = field(default="", compare=False, repr=False)

    @property
    def library(self) -> bool:
        """Whether it is an algorithm of cuBLASLt, which runs with its version of the library."""
        return self.config.family == cublaslt.NAME

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of entries, the best first: those without a score of the user's by time."""
        return True, self.measurement.time_us


@dataclass(frozen=True)
class Provenance:
    """The run that saved a record last.

    Attributes:
        driver: the driver's CUDA version, such as `13.0`; empty if no driver was used.
        compiler: such as `NVRTC 13.0`.
        source: hash of the files that the kernels of the entries are compiled from; with entries of
            several families the hash of each (`families.source_text`).
        autotune: version of this package.
        date: UTC, ISO 8601.
        seed: the search's seed.
        trials: how many configurations were evaluated, including failures and resumed ones.
        seconds: wall time of that run.
        interrupted: whether an interrupt or a failure ended the search before its limits: the
            record is not final.
        quick: whether only a few promising configurations were raced: the record is not final, and
            one of a search replaces it.
        baseline_fault: why the vendor library's result was refused, so that the record has no
            baseline, with the library's version; else empty.
    """

    driver: Text
    compiler: Text
    source: Text
    autotune: Text
    date: Date
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    trials: Count
    seconds: Seconds
    interrupted: bool = False
    quick: bool = False
    baseline_fault: Text = ""

    @property
    def final(self) -> bool:
        """Whether a search ended by its own limits."""
        return not (self.interrupted or self.quick)

    def fields(self) -> dict[str, object]:
        """The fields as JSON, without those that few runs have."""
        rare = "interrupted", "quick", "baseline_fault"
        usual = {name for name in rare if not getattr(self, name)}
        return {name: value for name, value in vars(self).items() if name not in usual}


@dataclass(frozen=True)
class TuningRecord(ABC):
    """The result of tuning on a device: one to ten entries, fastest first.

    `baseline` is the vendor library's measurement, if its result was right; `vendor_result` says
    whether that was verified, and with which version. All entries come from the kernel sources that
    `provenance` names. It has the driver and the compiler of the last run; earlier entries may come
    from others.

    Raises:
        ValueError: if there are no entries.
    """

    device: Device
    evidence: Evidence
    entries: tuple[Entry, ...]
    baseline: Measurement | None
    provenance: Provenance

    FOLDER: ClassVar[str]
    """The store's folder for records of this kind."""

    @property
    def folder(self) -> str:
        """The store's folder for this record."""
        return self.FOLDER

    def __post_init__(self) -> None:
        if not self.entries:
            raise ValueError(f"a record of {self.title} without entries; give at least one")

    def __str__(self) -> str:
        """The best configuration with its time and occupancy, cuBLAS's time, and the run, in lines.

        `autotune.table` has the record in full.
        """
        best, run = self.best, self.provenance
        measured, baseline, library = best.measurement, self.baseline, self.library_text
        runs = f"occupancy {best.occupancy:.1%}, bound by {best.limiter}"
        vendor = [f"{baseline.time_us:.2f} us"] if baseline else []
        vendor += [self.vendor_result] if self.vendor_result else []
        return "\n".join(
            [
                f"{self.title} on {self.device.name}, {self.evidence} {run.date}",
                str(best.config),
                f"{measured.time_us:.2f} us +- {measured.spread_us:.2f}",
                *([] if best.library else [runs]),
                *([f"vendor baseline {', '.join(vendor)}"] if vendor else []),
                *([library] if library else []),
                f"{run.trials} configurations tried in {run.seconds:.0f} s, "
                f"{len(self.entries)} recorded",
            ]
        )

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Shows the lines of `str` in IPython."""
        printer.text(str(self))

    @property
    @abstractmethod
    def title(self) -> str:
        """The tuned problem or call, in one line."""

    @property
    @abstractmethod
    def slug(self) -> str:
        """The tuned problem or call, as part of a file name."""

    @property
    def library(self) -> Entry | None:
        """The fastest algorithm of cuBLASLt; None if none was timed."""
        return HOT.best([entry for entry in self.entries if entry.library])

    @property
    def library_version(self) -> str:
        """The version of cuBLASLt whose algorithms are recorded, such as `13.0.0`."""
        return hash_of(self.provenance.source, cublaslt.NAME)

    @property
    def without_library(self: T_record) -> T_record | None:
        """The record of the package's own kernels; None if it has none."""
        own = tuple(entry for entry in self.entries if not entry.library)
        return replace(self, entries=own) if own else None

    @property
    def library_text(self) -> str:
        """The time of cuBLASLt's best algorithm, and how many times as fast the package's best
        kernel is, in a line; empty if none was timed."""
        if (entry := self.library) is None:
            return ""
        time_us, own = entry.measurement.time_us, self.without_library
        text = f"cuBLASLt {self.library_version}: {time_us:.2f} us"
        if own is None:
            return text
        ratio = time_us / own.best.measurement.time_us
        return f"{text}; the best kernel is {ratio:.3f} times as fast"

    @property
    def quick(self) -> bool:
        """Whether only a few promising configurations were raced."""
        return self.provenance.quick

    @property
    def best(self) -> Entry:
        """The fastest entry, or the leanest of those tied with it (see `estimates.winner`)."""
        return winner(self.entries)

    @property
    def best_cold(self) -> Entry | None:
        """The fastest entry with a flushed L2; `best` where it is tied with that.

        None if no entry has a cold time.
        """
        return COLD.best(self.entries)

    @property
    def best_energy(self) -> Entry | None:
        """The entry that takes the least energy; `best` where it is tied with that.

        None if no entry has an energy.
        """
        return ENERGY.best(self.entries)

    def best_by(self, objective: Objective | ObjectiveText) -> Entry:
        """The best entry by an objective; `best` if no entry has such a measurement."""
        return self.of(objective) or self.best

    def of(self, objective: Objective | ObjectiveText) -> Entry | None:
        """The best entry by an objective; None if no entry has such a measurement."""
        return objective_named(objective).best(self.entries)

    @property
    def ties(self) -> tuple[Entry, ...]:
        """The entries that are tied with `best` and need no fewer resources."""
        best = self.best
        return tuple(
            entry
            for entry in self.entries
            if entry != best and tied(entry.measurement, best.measurement)
        )

    @property
    def vendor_result(self) -> str:
        """The outcome of verifying the vendor's result: `verified`, with the version of cuBLAS,
        `wrong`, with the verifier's words, `not verified`, in records that predate the version, or
        `not verifiable`, of a shape that no library computed. Empty where nothing was measured."""
        if self.provenance.baseline_fault:
            return f"wrong: {self.provenance.baseline_fault}"
        if self.evidence != "measured" or self.baseline is None:
            return ""
        library = self.baseline.library
        return f"verified with cuBLAS {library}" if library else "not verified"

    @property
    def vendor_wins(self) -> bool:
        """Whether the vendor's library was measured to be faster than `best`, and not tied."""
        return self.vendor_wins_by(HOT)

    def vendor_wins_by(self, objective: Objective | ObjectiveText) -> bool:
        """Whether the vendor's library was measured to be faster than `best_by`, and not tied; or
        to take less energy.

        Where either has no cold time or no energy, the hot times decide.
        """
        if self.evidence != "measured" or self.baseline is None:
            return False
        asked, ours = objective_named(objective), self.best_by(objective).measurement
        for decides in (asked, asked.time):
            if (wins := decides.beats(self.baseline, ours)) is not None:
                return wins
        return self.vendor_wins


@dataclass(frozen=True)
class Record(TuningRecord):
    """The record of a GEMM problem."""

    problem: Problem

    FOLDER: ClassVar[str] = "records"

    @property
    def vendor_result(self) -> str:
        unserved = self.evidence == "measured" and self.baseline is None
        return super().vendor_result or ("not verifiable" if unserved else "")

    @property
    def title(self) -> str:
        """The problem's text."""
        return str(self.problem)

    @property
    def slug(self) -> str:
        """The problem's slug."""
        return self.problem.slug


@dataclass(frozen=True)
class FamilyRecord(Record):
    """The record of a search that was asked for one kernel family or one order of summation.

    It stands apart from the problem's `Record`, which look-ups take: the best of one family may be
    far from the best. The record of an order (see `families.summation`) serves the sizes of a
    batch-invariant range and nothing else.
    """

    family: Name
    order: Text | None = None

    FOLDER: ClassVar[str] = "families"

    @property
    def folder(self) -> str:
        """The folder of families, or of orders."""
        return ORDERED if self.order else self.FOLDER

    @property
    def title(self) -> str:
        """The problem and the option that restricted its search."""
        return f"{self.problem} {self.option}"

    @property
    def option(self) -> str:
        """The restriction of the search, as `autotune tune` takes it."""
        return "--batch-invariant" if self.order else f"--family {self.family}"

    @property
    def slug(self) -> str:
        """The problem's slug, and the family or a hash of the order."""
        return f"{self.problem.slug}-{order_slug(self.order) if self.order else self.family}"


def order_slug(order: str) -> str:
    """An order of summation as part of a file name."""
    return sha256(order.encode()).hexdigest()[:12]


def folder_of(device: Device, evidence: Evidence) -> str:
    """The name of a device's folder: predictions depend on its numbers, not only on its name."""
    return prediction_slug(device) if evidence == "predicted" else device.slug


def paths_of(root: Path, device: Device) -> Iterator[Path]:
    """The files of a device below `root`, which has a folder for each device."""
    for folder, predicted in ((device.slug, False), (prediction_slug(device), True)):
        for path in sorted((root / folder).glob("*.json"), key=str):
            if path.name.endswith(PREDICTED) == predicted:
                yield path


class Recorded(Protocol):
    """A record, or its digest."""

    @property
    def problem(self) -> Problem: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def quick(self) -> bool: ...


T = TypeVar("T", bound=Recorded)


def weakness(record: Recorded) -> tuple[int, bool]:
    """The sort key of records of a problem, the best first: by evidence, then searches before
    quick races."""
    return BEST_FIRST.index(record.evidence), record.quick


def first_of_best(records: Iterable[T | None]) -> T | None:
    """The first of the records with the least weakness; it asks for no more than that takes."""
    best: T | None = None
    for record in records:
        if record is not None and (best is None or weakness(record) < weakness(best)):
            best = record
        if best is not None and weakness(best) == (0, False):
            break
    return best


def first_of_each_problem(*layers: Iterable[T]) -> list[T]:
    """Each problem's record of the first layer that has the best of it, by problem."""
    chosen: dict[Problem, T] = {}
    for record in (record for layer in layers for record in layer):
        earlier = chosen.get(record.problem)
        if earlier is None or weakness(record) < weakness(earlier):
            chosen[record.problem] = record
    return [chosen[problem] for problem in sorted(chosen)]
