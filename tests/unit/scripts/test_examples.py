"""The worked examples compile, fit an H100 and agree with their references on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stencil
import transpose
from numpy.typing import NDArray
from support.host_cases import Case
from support.host_cuda import Program, build, run

import autotune
from autotune.families.config import Config
from autotune.families.plan import Alignment, LaunchPlan
from autotune.measure.measurement import Measurement
from autotune.measure.recording import ROOT, KernelRecording
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.user_kernels.arguments import call_of
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.results import Verification, compare
from autotune.user_kernels.source import unpacked
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import Workload, workload

H100 = autotune.device.find("h100")
# Not multiples of a tile.
ROWS, COLUMNS = 37, 50
TRANSPOSE_CONFIGS = ({"TILE": 8, "ROWS": 2, "PAD": 0}, {"TILE": 16, "ROWS": 16, "PAD": 1})
STENCIL_CONFIGS = (
    {"BX": 16, "BY": 4, "COLUMNS": 1, "ROWS": 1},
    {"BX": 32, "BY": 2, "COLUMNS": 2, "ROWS": 4},
)


DEFINITION = ("source", "name", "parameters", "constraints", "block", "shared")


def kernel_of(example: Mapping[str, Any]) -> UserKernel:
    definition = {name: example[name] for name in DEFINITION}
    return define_kernel(**definition, grid=example.get("grid", 1))


class TuneCall(Exception):
    """Carries the arguments of a call of `tune_kernel`."""


def tune_arguments(
    monkeypatch: pytest.MonkeyPatch, example: Callable[..., object]
) -> dict[str, Any]:
    """The arguments an example passes to `tune_kernel` for ROWS x COLUMNS."""

    def tune_kernel(**arguments: Any) -> None:
        raise TuneCall(arguments)

    monkeypatch.setattr(autotune, "tune_kernel", tune_kernel, raising=False)
    with pytest.raises(TuneCall) as caught:
        example(ROWS, COLUMNS)
    arguments: dict[str, Any] = caught.value.args[0]
    return arguments


def case_of(tunable: KernelTunable, work: Workload, config: Config) -> Case:
    """The launch of a configuration, with its input as A and its output as C."""
    (launch,) = tunable.plan(config).launches
    names = {buffer.name: "ac"[n] for n, buffer in enumerate(work.buffers)}
    arguments = [
        replace(argument, value=names.get(str(argument.value), argument.value))
        for argument in launch.arguments
    ]
    before, after = (buffer.before for buffer in work.buffers)
    plan = LaunchPlan(config, (replace(launch, arguments=tuple(arguments)),))
    nothing = np.zeros((1, 1), np.float32)
    leading = before.shape[1], 1, after.shape[1]
    problem = Problem(after.shape[0], after.shape[1], 1)
    return Case(problem, plan, Alignment(1, 1, 1), before, nothing, after, leading)


def check_on_cpu(
    example: Mapping[str, Any], values: Sequence[Mapping[str, int]], directory: Path
) -> None:
    """Runs configurations on the CPU and compares with the example's reference."""
    kernel = kernel_of(example)
    work = workload(kernel.name, example["arguments"], example["reference"], Verification())
    tunable = KernelTunable(kernel, work.call, work.arguments)
    configs = [Config.of(kernel.family, choice) for choice in values]
    expected = work.buffers[1].expected
    assert expected is not None
    assert work.buffers[1].written
    with unpacked(kernel.source, kernel.includes) as (folder, _):
        program: Program = build(map(kernel.source.template, configs), directory, sources=folder)
        results = run(program, [case_of(tunable, work, config) for config in configs])
    assert [compare(result, expected).wrong for result in results] == [0] * len(configs)


def test_transpose_example_matches_its_reference(
    monkeypatch: pytest.MonkeyPatch, host_objects: Path
) -> None:
    check_on_cpu(tune_arguments(monkeypatch, transpose.tune), TRANSPOSE_CONFIGS, host_objects)


@pytest.mark.parametrize("points", [5, 9])
def test_stencil_example_matches_its_reference(
    monkeypatch: pytest.MonkeyPatch, host_objects: Path, points: int
) -> None:
    check_on_cpu(
        tune_arguments(monkeypatch, partial(stencil.tune, points=points)),
        STENCIL_CONFIGS,
        host_objects,
    )


def test_stencil_step_is_a_weighted_mean() -> None:
    grid: NDArray[np.float32] = np.zeros((3, 3), np.float32)
    grid[0, 0], grid[0, 1], grid[1, 1] = 4.0, 2.0, 1.0
    assert stencil.step(grid, 5)[1, 1] == pytest.approx(1 + 0.05 * (2 - 4))
    assert stencil.step(grid, 9)[1, 1] == pytest.approx(1 + 0.05 * (4 + 2 - 8))


@pytest.mark.parametrize(
    ("example", "values"),
    [(transpose.KERNEL, TRANSPOSE_CONFIGS[1]), (stencil.kernel(9), STENCIL_CONFIGS[1])],
    ids=["transpose", "stencil"],
)
def test_example_fits_an_h100(
    example: Mapping[str, Any], values: Mapping[str, int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    single = {**example, "parameters": {name: (value,) for name, value in values.items()}}
    (row,) = autotune.kernel_occupancy(**single, device="h100").rows
    assert row.rejection is None
    assert row.resources is not None
    block, shared = example["block"](values), example["shared"](values)
    assert (row.resources.threads, row.resources.shared) == (block[0] * block[1], shared)
    assert row.resources.local == 0


@pytest.mark.parametrize(
    ("example", "fits", "reasons"),
    # transpose: 4, 5, 6 and 5 values of ROWS make a legal block; stencil: 19 of 25 blocks.
    [(transpose.KERNEL, 60, {"rows divide the tile", "threads"}),
     (stencil.kernel(5), 228, {"at least two warps", "threads"})],
    ids=["transpose", "stencil"],
)  # fmt: skip
def test_other_configurations_are_rejected_with_reasons(
    example: Mapping[str, Any], fits: int, reasons: set[str]
) -> None:
    rows = list(KernelTunable(kernel_of(example), KernelCall("k", ())).rejected(H100))
    rejections = [rejection.reason for _, rejection in rows if rejection]
    assert (len(rows) - len(rejections), set(rejections)) == (fits, reasons)


def test_shipped_recording_has_what_the_example_searches() -> None:
    recording = KernelRecording.load(ROOT / "stencil.json.gz")
    assert recording.call == call_of("stencil", stencil.call()["arguments"])
    tunable = KernelTunable(kernel_of(stencil.kernel(9)), recording.call)
    legal = {config for config, rejected in tunable.rejected(recording.device) if not rejected}
    assert {row.config for row in recording.rows} == legal
    assert all(isinstance(row.outcome, Measurement) for row in recording.rows)


@pytest.mark.parametrize("module", [transpose, stencil], ids=lambda module: module.__name__)
def test_example_docstring_shows_its_command(module: Any) -> None:
    assert f"python examples/{module.__name__}.py" in module.__doc__
