"""Compiled candidates of user kernels, for tests of their bench."""

from __future__ import annotations

from typing import Any

from autotune.cuda import compiler
from autotune.device import Device
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import PredictedRunner
from autotune.problem import Problem
from autotune.tuning.pipeline import prepare
from autotune.user_kernels.definition import define_kernel
from autotune.user_kernels.source import unpacked
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Workload


def candidates(
    work: Workload, device: Device, source: str, name: str, values: dict[str, Any], **changes: Any
) -> list[Candidate]:
    """Every configuration of a kernel, compiled."""
    geometry: dict[str, Any] = {"grid": 1, "block": 256, "shared": 0, **changes}
    kernel = define_kernel(source, name, values, constraints=None, **geometry)
    tunable = KernelTunable(kernel, work.call, work.arguments)
    runner = PredictedRunner(Problem(1, 1, 1), device)  # has the device; measures nothing
    prepared: list[Candidate] = []
    with unpacked(kernel.source, kernel.includes) as (folder, includes):
        for config in kernel.combinations():
            outcome = prepare(
                tunable.plan(config),
                runner,
                lambda template, arch: compiler.compile(
                    template, arch, cache=None, sources=folder, includes=includes
                ),
            )
            assert isinstance(outcome, Candidate), f"{config}: {outcome}"
            prepared.append(outcome)
    return prepared
