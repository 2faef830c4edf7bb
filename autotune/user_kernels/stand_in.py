"""Results of the first configuration that runs, where a kernel has no reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate, Runner
from autotune.tuning.evaluate import Compile, prepare
from autotune.user_kernels.tunable import KernelTunable


class ResultRunner(Runner, Protocol):
    """A runner that hands the arrays of a run back."""

    def results(self, candidate: Candidate) -> Sequence[NDArray[Any]] | Failure:
        """The contents that a run leaves in each array argument, in order."""
        ...


def first_results(
    tunable: KernelTunable, runner: ResultRunner, compile: Compile
) -> tuple[Config, Sequence[NDArray[Any]]]:
    """The first configuration that runs, in the order of the parameters, and what it leaves in the
    array arguments.

    Raises:
        AutotuneError: if none runs; with the first reason.
    """
    device: Device = runner.device
    reason = "the device can launch none"
    for config, rejected in tunable.rejected(device):
        if rejected is not None:
            continue
        candidate = prepare(tunable.plan(config), runner, compile)
        outcome = candidate if isinstance(candidate, Failure) else runner.results(candidate)
        if not isinstance(outcome, Failure):
            return config, outcome
        if reason.startswith("the device"):
            reason = f"{config}: {outcome.stage}: {outcome.reason}"
    raise AutotuneError(
        f"no configuration of {tunable} runs, so that none can stand in for a reference: {reason}"
    )
