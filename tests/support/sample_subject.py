"""Small records with their trials, by hand and by a replayed search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records import Entry, KernelRecord, Provenance, Record, Store
from autotune.records.kernel_record import KernelEntry
from autotune.report.trials import Subject
from autotune.tuning.trial_log import FinishedTrial
from autotune.tuning.trials import Trial
from support.command_line import run
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100

SHAPE = Problem(256, 256, 256)


TRIALS = 20


TIMES = {(8, 0): 20.0, (8, 1): 16.0, (16, 0): 12.0, (16, 1): 10.0, (32, 0): 11.0}
"""Microseconds by TILE_WIDTH and `specialized`; (32, 1) fails."""


PROVENANCE = Provenance(
    "13.0", "NVRTC 13.0", "5e1f", "0.2.0", "2026-11-21T12:00:00Z", 7, len(TIMES) + 1, 3.0
)


def tiled(width: int, specialized: int) -> Config:
    return Config.of("tiled", {"tile_width": width, "specialized": specialized})


def timed(width: int, specialized: int, time_us: float, spread_us: float = 0.1) -> Trial:
    return Trial(
        tiled(width, specialized),
        Measurement(time_us, spread_us, 9, time_us + 1.0, 1e-5, 1e-3, 1e-6, 0.2),
        Resources(width**2, 32 + specialized, 8 * width**2),
        0.75,
        "warps",
    )


def entry(trial: Trial) -> Entry:
    made = trial.entry
    assert made is not None
    return made


def by_hand() -> Subject:
    """Six trials of the tiled kernel, the fifth a failure, with two entries in the record."""
    trials = [timed(*key, time_us) for key, time_us in TIMES.items()]
    failed = Trial(tiled(32, 1), Failure("compile", "error: 3 < 2 & more"))
    order = [*trials[:4], failed, trials[4]]
    record = Record(
        device=H100,
        evidence="measured",
        entries=(entry(trials[3]), entry(trials[4])),
        baseline=Measurement(9.0, 0.1, 9, 15.0),
        provenance=PROVENANCE,
        problem=SHAPE,
    )
    rows = tuple(FinishedTrial(trial, float(number)) for number, trial in enumerate(order))
    return Subject(record, rows, "")


def user_kernel(name: str = "saxpy") -> KernelRecord:
    """The record of a user kernel."""
    config = Config.of(name, {"THREADS": 128, "EACH": 2})
    made = Entry(config, Measurement(5.0, 0.1, 9), Resources(128, 20, 0), 1.0, "warps")
    call = KernelCall(name, ("float32[1000]", "int32=1000"))
    return KernelRecord(H100, "measured", (KernelEntry.of(made),), None, PROVENANCE, call)


def only(record: Record, count: int) -> Record:
    """The record with its first entries alone."""
    return replace(record, entries=record.entries[:count])


def searched(cache: Path) -> Record:
    """Tunes the sample recording into a cache and returns the record."""
    assert run("tune", PROBLEM.shape, "--device", DEVICE, "--trials", str(TRIALS)) == 0
    record = Store(cache).load(H100, PROBLEM)
    assert record is not None
    return record
