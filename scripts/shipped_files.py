"""Shipped records: made from recordings, rounded and collected in a bundle."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from recordings import read
from rich.table import Table

from autotune import settings
from autotune.files import write_whole
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.problem import Problem
from autotune.records import Entry, Provenance, Record, Store, bundle, shipped
from autotune.records.merging import made_from

TIME_DIGITS = 4
"""Significant digits of shipped times: 0.5 per mille at most, below most spreads."""
DIGITS = 3
"""Significant digits of shipped spreads, errors and shares."""
TIMES = ("time_us", "cold_us")


def best_of_recordings(folder: Path) -> list[Record]:
    """The ten fastest rows of each recording in a folder, as records."""
    recordings = read(folder)
    records = map(record_of, recordings)
    return [record for record in records if record is not None]


def record_of(recording: Recording, *, most: int = 10) -> Record | None:
    """The fastest rows of a recording as a record; None if no row has a time."""
    entries = [
        Entry(row.config, row.outcome, row.resources, resident.occupancy, resident.limiter)
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
        and (resident := row.resources.occupancy(recording.device))
    ]
    if not entries:
        return None
    entries.sort(key=lambda entry: (entry.measurement.time_us, str(entry.config)))
    origin = recording.origin
    provenance = Provenance(
        *(origin.driver, origin.compiler, origin.source, "", recording.date),
        seed=0,
        trials=len(recording.rows),
        seconds=0.0,
    )
    return Record(
        *(recording.device, "measured", tuple(entries[:most]), recording.baseline, provenance),
        recording.problem,
    )


def rounded(record: Record) -> Record:
    """The record with times, spreads, errors and shares rounded."""
    entries = tuple(
        replace(
            entry,
            measurement=_rounded(entry.measurement),
            occupancy=_round(entry.occupancy, DIGITS),
        )
        for entry in record.entries
    )
    return replace(
        record,
        entries=entries,
        baseline=record.baseline and _rounded(record.baseline),
        provenance=replace(record.provenance, seconds=_round(record.provenance.seconds, DIGITS)),
    )


def table(records: Iterable[Record]) -> Table:
    """A row for each precision: cuBLAS's times over those of the records."""
    ratios: dict[str, list[float]] = {}
    for record in records:
        if record.baseline is not None:
            ratio = record.baseline.time_us / record.best.measurement.time_us
            ratios.setdefault(record.problem.compute, []).append(ratio)
    shown = Table("compute", "problems", "geomean", "worst", "faster than cuBLAS")
    for compute, values in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        wins = sum(ratio > 1 for ratio in values)
        shown.add_row(compute, str(len(values)), f"{mean:.3f}", f"{min(values):.3f}", str(wins))
    return shown


@dataclass
class ShippedFile:
    """A bundle that grows record by record.

    Attributes:
        path: the file.
        store: the records of this run and of the runs that it continues.
        source: hashes of the current kernel sources, by family.
    """

    path: Path
    store: Store
    source: str

    def __post_init__(self) -> None:
        self._records: dict[Problem, Record] = {}

    @property
    def records(self) -> list[Record]:
        """The records, by problem."""
        return [self._records[problem] for problem in sorted(self._records)]

    def begin(self) -> tuple[Record, ...]:
        """Loads the file's records of the current kernels; returns all that it has."""
        own = _records_in(self.path) if self.path.exists() else ()
        for record in own:
            if made_from(record, self.source):
                self.add(self.store.save(record))
        return own

    def resume(self, guesses: Iterable[Record], folder: Path) -> None:
        """Loads the file's records of the current kernels.

        All others, `guesses` and the other shipped files become the shipped records of this
        process, in `folder`: searches start from them.
        """
        own = self.begin()
        beside = (path for path in shipped.paths(settings.shipped_dir()) if path != self.path)
        # Later records replace earlier ones.
        guessed = chain(chain.from_iterable(map(_records_in, beside)), guesses, own)
        latest = {(record.device, record.problem): record for record in guessed}
        folder.mkdir(parents=True)
        (folder / "guesses.jsonl.xz").write_bytes(bundle.dumps(latest.values()))
        os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder)

    def has(self, problem: Problem) -> bool:
        """Whether the problem is recorded."""
        return problem in self._records

    def has_twin(self, problem: Problem) -> bool:
        """Whether the problem is in f16 and recorded in bf16."""
        return problem.compute == "f16" and self.has(replace(problem, compute="bf16"))

    def add(self, record: Record) -> None:
        """Adds a record that is in the store."""
        self._records[record.problem] = record

    def write(self) -> None:
        """Writes the file, if there are records."""
        if self._records:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, bundle.dumps(map(rounded, self.records)))


def _records_in(path: Path) -> tuple[Record, ...]:
    return tuple(bundle.loads(path.read_bytes()).records)


def _rounded(measured: Measurement) -> Measurement:
    changed: dict[str, Any] = {
        name: _round(value, TIME_DIGITS if name in TIMES else DIGITS)
        for name, value in asdict(measured).items()
        if isinstance(value, float)
    }
    return replace(measured, **changed)


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
