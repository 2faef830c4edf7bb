"""A trial as Optuna keeps it, both ways."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.records import codec
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.axes import FAMILY
from autotune.tuning.search.journal.owners import Owner

RESULT = "result"
"""The attribute that holds what was found out. It is written before the state is, so a claim that
has one is finished, whatever its state says."""
SINCE = "since"
"""The attribute that holds when the trial was begun, in seconds since 1970."""

Space = Mapping[str, BaseDistribution]


def claim(config: Config, space: Space, owner: Owner) -> FrozenTrial:
    """A trial that is under way."""
    return _trial(config, space, owner, TrialState.RUNNING, None, {})


def whole(trial: Trial, space: Space, owner: Owner) -> FrozenTrial:
    """A finished trial that was never claimed."""
    state, values = verdict(trial)
    value = values[0] if values else None
    return _trial(trial.config, space, owner, state, value, {RESULT: encode(trial)})


def verdict(trial: Trial) -> tuple[TrialState, list[float] | None]:
    """The state of a finished trial, and its value: microseconds."""
    if isinstance(trial.outcome, Measurement):
        return TrialState.COMPLETE, [trial.time_us]
    return TrialState.PRUNED, None


def encode(trial: Trial) -> dict[str, Any]:
    """What was found out, as JSON data."""
    return {
        "outcome": asdict(trial.outcome),
        "resources": trial.resources and asdict(trial.resources),
        "occupancy": trial.occupancy,
        "limiter": trial.limiter,
    }


def decode(attributes: Mapping[str, Any]) -> Trial:
    """The trial whose attributes these are.

    Raises:
        KeyError, TypeError, ValueError: if they are not what this module writes.
    """
    # Before there were claims, the parts of the result were attributes by themselves.
    given = attributes.get(RESULT, attributes)
    outcome, resources = given["outcome"], given["resources"]
    return Trial(
        config=Config.parse(attributes["config"]),
        outcome=Failure(**outcome) if "stage" in outcome else codec.measurement(outcome),
        resources=resources and Resources(**resources),
        occupancy=given["occupancy"],
        limiter=given["limiter"],
    )


def _trial(
    config: Config,
    space: Space,
    owner: Owner,
    state: TrialState,
    value: float | None,
    result: Mapping[str, Any],
) -> FrozenTrial:
    held = {FAMILY: config.family, **config.values}
    shown = [name for name in space if name in held]
    return optuna.create_trial(
        state=state,
        value=value,
        params={name: held[name] for name in shown},
        distributions={name: space[name] for name in shown},
        user_attrs={
            "config": str(config),
            **owner.attributes(),
            SINCE: time.time(),
            **result,
        },
    )
