"""A trial as Optuna stores it, both ways, with the process that it belongs to."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from autotune.families.config import Config, Value
from autotune.families.plan import Resources
from autotune.files.decoding import convert, shown
from autotune.files.domains import Share, Text
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.axes import FAMILY

# Attributes: the outcome, which is written before the state, so that a claim with one is finished
# whatever its state; and when the trial began, in Unix seconds.
RESULT, SINCE = "result", "since"
# A process of another host or container cannot be looked up: it is taken for gone when it has
# neither claimed nor finished a configuration for this many seconds.
SILENT_S = 900.0
# How the name of a journal's thread begins, which runs until the journal is closed.
THREAD = "journal-"

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class _TrialFields:
    """A trial as it is written."""

    config: Text
    outcome: dict[str, Any]
    resources: Resources | None
    occupancy: Share | None
    limiter: Text | None


def owner() -> dict[str, Any]:
    """The attributes that name this process and one journal that it has opened.

    A host name and a PID do not: containers share the one and have PIDs of their own, and a PID is
    used again.
    """
    return {
        "host": socket.gethostname(),
        "namespace": _namespace(),
        "pid": os.getpid(),
        "started": _started(os.getpid()) or "",
        "run": uuid.uuid4().hex,
    }


def abandoned(claim: Attributes, active: float) -> bool:
    """Whether the process that made a claim has ended or closed the journal.

    Args:
        claim: the claim's attributes.
        active: when that process last claimed or finished a configuration, in Unix seconds.
    """
    if not _visible(claim):
        return time.time() - active > SILENT_S
    names = [thread.name for thread in threading.enumerate()]
    closed = not any(name.startswith(THREAD + claim["run"]) for name in names)
    if claim["pid"] == os.getpid() and closed:
        return True
    return _started(claim["pid"]) != str(claim["started"])


def stored(
    config: Config, space: Mapping[str, BaseDistribution], owner: Attributes, trial: Trial | None
) -> FrozenTrial:
    """A trial to store: a claim, or finished if there is a result.

    Optuna shows the parameters whose values are in `space`. Another run of the study may have tried
    other values, so the whole configuration is an attribute too.
    """
    values = {FAMILY: config.family, **config.values}
    shown = [name for name in space if name in values and _contains(space[name], values[name])]
    state, value = (TrialState.RUNNING, None) if trial is None else verdict(trial)
    result = {} if trial is None else {RESULT: encode(trial)}
    return optuna.create_trial(
        state=state,
        value=value,
        params={name: values[name] for name in shown},
        distributions={name: space[name] for name in shown},
        user_attrs={"config": str(config), **owner, SINCE: time.time(), **result},
    )


def _contains(distribution: BaseDistribution, value: Value) -> bool:
    if isinstance(distribution, IntDistribution | FloatDistribution):
        return not isinstance(value, str) and distribution.low <= value <= distribution.high
    return isinstance(distribution, CategoricalDistribution) and value in distribution.choices


def verdict(trial: Trial) -> tuple[TrialState, float | None]:
    """The state of a finished trial, and its value: microseconds."""
    if isinstance(trial.outcome, Measurement):
        return TrialState.COMPLETE, trial.time_us
    return TrialState.PRUNED, None


def encode(trial: Trial) -> dict[str, Any]:
    """The result of a trial as JSON data.

    It names the configuration too: of a damaged journal it shows which trial the result is of.
    """
    return asdict(trial) | {"config": str(trial.config)}


def decode(attributes: Attributes) -> Trial:
    """The trial with these attributes.

    Raises:
        ValueError: if they are not those of a trial with a result, or a value is impossible.
    """
    # Before there were claims, the parts of the result were attributes by themselves.
    result = {"config": attributes.get("config"), **attributes.get(RESULT, attributes)}
    if result["config"] != attributes.get("config"):
        raise ValueError(f"the result is that of {shown(result['config'])}")
    written = convert(result, _TrialFields, "trial")
    kind: type[Measurement | Failure] = Failure if "stage" in written.outcome else Measurement
    # A field that this version does not know is an error, so that no other version is misread.
    names = {field.name for field in fields(kind)}
    if unknown := sorted(written.outcome.keys() - names):
        raise ValueError(f"outcome has {', '.join(unknown)}; this version does not know that")
    outcome = convert(written.outcome, kind, "outcome")
    config = Config.parse(written.config)
    return Trial(config, outcome, written.resources, written.occupancy, written.limiter)


def _visible(claim: Attributes) -> bool:
    """Whether /proc lists the process of a claim as long as it lives: it is of this boot of this
    machine and of this PID namespace."""
    namespace = _namespace()
    return (
        namespace != ""
        # Claims of earlier versions do not name theirs.
        and claim.get("namespace", namespace) == namespace
        and claim["host"] == socket.gethostname()
        and str(claim["started"]).partition(":")[0] == _boot()
    )


def _namespace() -> str:
    """The PID namespace of this process; empty if /proc is missing or another namespace's."""
    try:
        own = str(Path("/proc/self").readlink()) == str(os.getpid())
        return str(Path("/proc/self/ns/pid").readlink()) if own else ""
    except OSError:
        return ""


def _boot() -> str | None:
    """The boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process began, in ticks of a boot of the machine; None if it has ended."""
    try:
        # The name in front of the last bracket may hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A killed process that was not waited for yet does nothing more.
    return None if fields[0] in "ZX" else f"{_boot()}:{fields[19]}"
