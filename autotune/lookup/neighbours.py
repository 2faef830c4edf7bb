"""What to run on a problem, by what is recorded of others."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources as files

from autotune.candidates import space
from autotune.candidates.model_error import Belief, Experience, Sample
from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem, distance
from autotune.records import Entry, Record
from autotune.records.shipped import alike
from autotune.tuning.candidates import of_compute, todays_of

# Records whose entries can be answered: so many, no further off than this in octaves. What else
# keeps configurations from being good on both counts as octaves too.
NEIGHBOURS, REACH = 24, 6.0
A_LAYOUT, A_COMPUTE, AN_OUTPUT, AN_EPILOGUE, A_DEVICE = 1.0, 2.0, 0.2, 0.1, 1.0
TWINS = {"f16", "bf16"}
A_TWIN = 0.1
# Records that the model is corrected by.
TEACHERS = 128
# A configuration's time is taken to be so many standard deviations worse than is believed: those
# of which little is known disappoint more often than they surprise.
CAUTION = 2.0
# Configurations that the model chooses among; all would keep the first product waiting for seconds.
SURVEY = 3000


@dataclass(frozen=True)
class NeighbourChoice:
    """A configuration that could be answered.

    Attributes:
        cautious_us: microseconds that it rarely exceeds; choices are ranked by them.
        time_us: microseconds that are expected.
        doubt: standard deviation of their log.
        config: what could run.
        record: where it is from; None if the model came up with it.
    """

    cautious_us: float
    time_us: float
    doubt: float
    config: Config
    record: Record | None


def ranked(
    problem: Problem, device: Device, records: Sequence[Record], taught: Experience
) -> list[NeighbourChoice]:
    """The entries of the nearest records, the most promising on this problem first.

    Each has the time that the cost model predicts, corrected by what its errors on other problems
    have `taught`.
    """
    pool: dict[Config, tuple[Entry, Record]] = {}
    for record in nearest(problem, device, records)[:NEIGHBOURS]:
        if remoteness(record, problem, device) > REACH:
            break
        for entry in record.entries:
            config = of_compute(entry.config, problem)
            if config not in pool and legal(config, problem, device):
                pool[config] = entry, record
    taken = [entry.resources for entry, _ in pool.values()]
    belief = taught.judge([*pool], problem, taken)
    return _in_order(belief, [*pool], [record for _, record in pool.values()])


def surveyed(problem: Problem, device: Device, taught: Experience) -> list[NeighbourChoice]:
    """Many of all legal configurations, spread evenly, in the same order."""
    configs = survey(problem, device)
    belief = taught.judge(configs, problem)
    return _in_order(belief, configs, [None] * len(configs))


def experience(problem: Problem, device: Device, records: Sequence[Record]) -> Experience:
    """What the nearest records teach of the cost model's errors."""
    return Experience(
        (
            Sample(
                entry.config,
                entry.resources,
                entry.measurement.time_us,
                record.problem,
                record.device,
            )
            for record in nearest(problem, device, records)[:TEACHERS]
            for entry in _usable(record)
        ),
        device,
    )


def nearest(problem: Problem, device: Device, records: Iterable[Record]) -> list[Record]:
    """The records that rest on measurements, those that say most of the problem first."""
    known = [record for record in records if record.evidence != "predicted"]
    return sorted(known, key=lambda record: (remoteness(record, problem, device), record.problem))


def remoteness(record: Record, problem: Problem, device: Device) -> float:
    """How little a record says of a problem, in octaves."""
    other = record.problem
    computes = {other.compute, problem.compute}
    apart = sum(one != two for one, two in zip(other.layout, problem.layout, strict=True))
    return (
        distance(other, problem)
        + A_LAYOUT * apart
        + (0.0 if len(computes) == 1 else A_TWIN if computes == TWINS else A_COMPUTE)
        + AN_OUTPUT * (other.output_type != problem.output_type and other.output != problem.output)
        + AN_EPILOGUE * (other.epilogue != problem.epilogue)
        + A_DEVICE * (not alike(record.device, device))
    )


def legal(config: Config, problem: Problem, device: Device) -> bool:
    """Whether the families of this version can run the configuration."""
    try:
        return space.rejection(config, problem, device) is None
    except ConfigError:
        return False


def expected_loss(how: str, doubt: float) -> float:
    """The loss against full tuning that answers of a kind had, on average, on shapes left out.

    `doubt` is that of the choice. The figures are in `data/regret.json`, with where they are from.
    """
    bounds, losses = _losses()[how]
    return losses[bisect_right(bounds, doubt)]


def survey(problem: Problem, device: Device) -> list[Config]:
    """Legal configurations of all families, evenly spread."""
    spaces = (space.feasible(problem, device, name) for name in registry.tuned(problem))
    return [config for one in spaces for config in space.spread(one.configs, SURVEY)]


def _usable(record: Record) -> list[Entry]:
    """The entries that the families of this version know."""
    known: set[Config] = set()
    configs = [entry.config for entry in record.entries]
    for family in {config.family for config in configs} & registry.FAMILIES.keys():
        known |= {*todays_of(family, configs, record.problem, record.device)}
    return [entry for entry in record.entries if entry.config in known]


def _in_order(
    belief: Belief, configs: Sequence[Config], records: Sequence[Record | None]
) -> list[NeighbourChoice]:
    """What can run, the most promising first."""
    columns = belief.cautious(CAUTION), belief.times, belief.doubts
    cautious, times, doubts = (column.tolist() for column in columns)
    choices = map(NeighbourChoice, cautious, times, doubts, configs, records)
    return sorted((one for one in choices if math.isfinite(one.cautious_us)), key=order)


def order(choice: NeighbourChoice) -> tuple[float, str]:
    """By which the most promising comes first."""
    return choice.cautious_us, str(choice.config)


@cache
def _losses() -> dict[str, tuple[list[float], list[float]]]:
    """Of each kind of answer, ascending doubts and the losses below, between and above them."""
    data = files.files("autotune") / "data" / "regret.json"
    given = json.loads(data.read_text(encoding="utf-8"))["losses"]
    return {how: (one["doubts"], one["losses"]) for how, one in given.items()}
