"""Recorded search spaces: every configuration with its outcome, from a file.

A space is a recording of this package (`.json.gz`) or a table (`.csv`, `.csv.gz`) with one row a
configuration: a column for each parameter, `time_ms`, and optionally `compile_ms`, which is not
used, and `failure`, the reason why a configuration did not run.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random

from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.without_gpu import ReplayRunner, noisy
from autotune.model.features import Describe
from autotune.tuning.tunable import GemmTunable, guesses

TIME, COMPILE, FAILURE = "time_ms", "compile_ms", "failure"


Outcome = Measurement | Failure


@dataclass(frozen=True)
class Space:
    """A problem's configurations and their outcomes.

    Attributes:
        outcomes: by configuration, in the order a search gets them.
        resources: of an SM, by configuration, as far as they were recorded.
        guesses: the configurations to try first; none for a blind search.
        recording: the source; None if that is a table.
        describe: features and predicted times of configurations; None for a blind search.
    """

    outcomes: Mapping[Config, Outcome]
    resources: Mapping[Config, Resources]
    guesses: tuple[Config, ...] = ()
    recording: Recording | None = None
    describe: Describe | None = None

    @property
    def configs(self) -> tuple[Config, ...]:
        """All configurations, failing ones included."""
        return tuple(self.outcomes)

    @property
    def failures(self) -> int:
        """The number of configurations that did not run."""
        return sum(isinstance(outcome, Failure) for outcome in self.outcomes.values())

    @cached_property
    def optimum_us(self) -> float:
        """The shortest recorded time."""
        ran = (outcome for outcome in self.outcomes.values() if isinstance(outcome, Measurement))
        return min(measurement.time_us for measurement in ran)

    def share(self, config: Config) -> float:
        """The optimum over the configuration's recorded time; 0 if it did not run."""
        outcome = self.outcomes[config]
        return self.optimum_us / outcome.time_us if isinstance(outcome, Measurement) else 0.0

    def again(self, config: Config, random: Random, samples: int = 1) -> Outcome:
        """The outcome a search sees: the recorded one with the noise of `samples` samples."""
        outcome = self.outcomes[config]
        return outcome if isinstance(outcome, Failure) else noisy(outcome, random, samples)

    def drawn(self, random: Random) -> dict[Config, Outcome]:
        """The outcomes of a run, each with its noise."""
        return {config: self.again(config, random) for config in self.outcomes}


@lru_cache(1)
def load(path: Path, blind: bool) -> Space:
    """The space of a file; `blind` leaves only the parameters of a recording.

    Raises:
        NotFoundError: if there is no such recording.
        AutotuneError: if the file is not a space, or nothing in it ran.
    """
    table = path.name.endswith((".csv", ".csv.gz"))
    space = _of_table(path) if table else _of_recording(Recording.load(path), blind)
    if space.failures == len(space.outcomes):
        raise AutotuneError(f"{path}: no configuration of it has a time")
    return space


def _of_recording(recording: Recording, blind: bool) -> Space:
    rows = {row.config: row for row in recording.rows}
    first: tuple[Config, ...] = ()
    configs = tuple(rows)
    describe: Describe | None = None
    if not blind:
        runner, problem = ReplayRunner(recording), recording.problem
        ranked = GemmTunable(problem).candidates(runner, lambda _: False, ranked=None)
        configs, first = ranked.configs, guesses(ranked.ranked, problem)
        describe = GemmTunable(problem).describe(recording.device)
    return Space(
        outcomes={config: rows[config].outcome for config in configs},
        resources={config: rows[config].resources for config in configs},
        guesses=first,
        recording=recording,
        describe=describe,
    )


def _of_table(path: Path) -> Space:
    outcomes: dict[Config, Outcome] = {}
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for row in csv.DictReader(io.StringIO(text)):
            config, outcome = _row(row)
            if config in outcomes:
                raise ValueError(f"{config} appears twice")
            outcomes[config] = outcome
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise AutotuneError(f"{path}: not a table of configurations: {why}") from error
    return Space(outcomes, {})


def _row(row: Mapping[str, str]) -> tuple[Config, Outcome]:
    params = (f"{key}={row[key]}" for key in row if key not in (TIME, COMPILE, FAILURE))
    config = Config.parse(f"table:{','.join(params)}")
    if row.get(FAILURE):
        return config, Failure("launch", row[FAILURE])
    return config, Measurement(float(row[TIME]) * 1e3)
