"""Records and a range of a cache tuned with older kernels."""

from __future__ import annotations

from dataclasses import replace

from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.measure.runner import Candidate
from autotune.problem import Problem
from autotune.records import Record
from autotune.records.ranges import Range, Segment
from autotune.tuning.trials import Trial
from support.fake_runner import tiled
from support.sample_records import H100, record

SMALL = Problem(64, 64, 64)


TUNED = Range(H100, SMALL, "m", (Segment(1, 64, 64),))


def candidate(config: Config) -> Candidate:
    """The candidate of a configuration, with the estimate of its resources."""
    resources = registry.find(config.family).estimate(config, SMALL)
    return Candidate(config, registry.plan(config, SMALL), (), resources)


def entries_of(*widths: int) -> Record:
    """A record of these tile widths, made with older kernels."""
    trials = [
        Trial.of(candidate(tiled(width)), Measurement(500.0 + 10 * number, 0.1, 25), H100)
        for number, width in enumerate(widths)
    ]
    made = record(problem=SMALL, source="0ld")
    return replace(made, entries=tuple(entry for trial in trials if (entry := trial.entry)))
