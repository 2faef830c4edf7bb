"""Which kernel of a family the ladder shows: a recorded one, or else the cost model's choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.candidates import cost, space
from autotune.candidates.legality import as_tuned, is_legal
from autotune.candidates.space import survey
from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.records import Entry, Record, Records, Store
from autotune.records.standing import BEST_FIRST


@dataclass(frozen=True)
class LadderChoice:
    """The kernel of a step, and where it comes from: a search that ended, one that was interrupted,
    or the cost model."""

    config: Config
    source: Literal["tuned", "interrupted", "model"]

    @property
    def ended(self) -> bool:
        """Whether a search of it has ended."""
        return self.source == "tuned"


def choice(problem: Problem, device: Device, family: str, store: Store) -> LadderChoice:
    """The fastest recorded kernel of a family that is legal today, or else the cost model's choice.

    Measured searches come before replayed and predicted ones, then searches that ended before
    interrupted ones.

    Raises:
        NotFoundError: if the device can run none; the message says why.
    """
    records = Records(store).load(device, problem), store.family(device, problem, family)
    entries = [
        (BEST_FIRST.index(record.evidence), record.provenance.interrupted, entry, record)
        for record in records
        if record is not None
        for entry in record.entries
        if entry.config.family == family
    ]
    for _, interrupted, entry, record in sorted(entries, key=_rank):
        if is_legal(entry.config, problem, as_tuned(device, record.device)):
            return LadderChoice(entry.config, "interrupted" if interrupted else "tuned")
    return LadderChoice(_model_choice(problem, device, family), "model")


def choice_or_reason(
    problem: Problem, device: Device, family: str, store: Store
) -> LadderChoice | str:
    """The `choice`, or why the device can run none."""
    try:
        return choice(problem, device, family, store)
    except NotFoundError as error:
        return str(error)


def _rank(row: tuple[int, bool, Entry, Record]) -> tuple[int, bool, float]:
    evidence, interrupted, entry, _ = row
    return evidence, interrupted, entry.measurement.time_us


def _model_choice(problem: Problem, device: Device, family: str) -> Config:
    """The cost model's choice among a family's legal configurations.

    Raises:
        NotFoundError: if there are none; the message says why.
    """
    configs = survey(problem, device, family)
    if not configs:
        reasons = space.feasible(problem, device, family).rejected
        raise NotFoundError(f"{device.name} cannot run it ({', '.join(reasons)})")
    (_, config), *_ = cost.rank(configs, problem, device)
    return config
