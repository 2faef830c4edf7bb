"""The worked examples: they compile, fit, and compute what their references say, on the CPU."""

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
from autotune.problem import Problem
from autotune.problem.call import Call
from autotune.user_kernels import KernelTunable, UserKernel, define_kernel, source_folder
from autotune.user_kernels.comparison import compare
from autotune.user_kernels.workload import Workload, workload

H100 = autotune.device.find("h100")
# Neither is a multiple of a tile.
ROWS, COLUMNS = 37, 50
TRANSPOSED = ({"TILE": 8, "ROWS": 2, "PAD": 0}, {"TILE": 16, "ROWS": 16, "PAD": 1})
STEPPED = (
    {"BX": 16, "BY": 4, "COLUMNS": 1, "ROWS": 1},
    {"BX": 32, "BY": 2, "COLUMNS": 2, "ROWS": 4},
)


DEFINITION = ("source", "name", "parameters", "constraints", "block", "shared")


def kernel_of(given: Mapping[str, Any]) -> UserKernel:
    definition = {name: given[name] for name in DEFINITION}
    return define_kernel(**definition, grid=given.get("grid", 1), include=())


class Asked(Exception):
    """Holds what an example asks of `tune_kernel`."""


def asked(monkeypatch: pytest.MonkeyPatch, example: Callable[..., object]) -> dict[str, Any]:
    """What an example would have tuned for ROWS x COLUMNS."""

    def tune_kernel(**given: Any) -> None:
        raise Asked(given)

    monkeypatch.setattr(autotune, "tune_kernel", tune_kernel, raising=False)
    with pytest.raises(Asked) as held:
        example(ROWS, COLUMNS)
    found: dict[str, Any] = held.value.args[0]
    return found


def case_of(tunable: KernelTunable, work: Workload, config: Config) -> Case:
    """The launch of a configuration, with the input as A and the output as C."""
    (launch,) = tunable.plan(config).launches
    names = {buffer.name: "ac"[n] for n, buffer in enumerate(work.buffers)}
    arguments = [
        replace(one, value=names.get(str(one.value), one.value)) for one in launch.arguments
    ]
    before, after = (buffer.before for buffer in work.buffers)
    plan = LaunchPlan(config, (replace(launch, arguments=tuple(arguments)),))
    nothing = np.zeros((1, 1), np.float32)
    leading = before.shape[1], 1, after.shape[1]
    problem = Problem(after.shape[0], after.shape[1], 1)
    return Case(problem, plan, Alignment(1, 1, 1), before, nothing, after, leading)


def ran(given: Mapping[str, Any], values: Sequence[Mapping[str, int]], directory: Path) -> None:
    """Runs configurations on the CPU and compares with the example's reference."""
    kernel = kernel_of(given)
    work = workload(kernel.name, given["arguments"], given["reference"], rtol=None, atol=None)
    tunable = KernelTunable(kernel, work.call, work.arguments)
    configs = [Config.of(kernel.family, one) for one in values]
    expected = work.buffers[1].expected
    assert expected is not None
    assert work.buffers[1].written
    with source_folder(kernel) as folder:
        program: Program = build(map(kernel.template, configs), directory, sources=folder)
        results = run(program, [case_of(tunable, work, config) for config in configs])
    assert [compare(found, expected).wrong for found in results] == [0] * len(configs)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.getbasetemp(), "host")


def test_the_transposition_transposes(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    ran(asked(monkeypatch, transpose.tune), TRANSPOSED, host)


@pytest.mark.parametrize("points", [5, 9])
def test_the_stencil_takes_a_step(monkeypatch: pytest.MonkeyPatch, host: Path, points: int) -> None:
    ran(asked(monkeypatch, partial(stencil.tune, points=points)), STEPPED, host)


def test_a_step_of_few_points_is_the_weighted_mean() -> None:
    grid: NDArray[np.float32] = np.zeros((3, 3), np.float32)
    grid[0, 0], grid[0, 1], grid[1, 1] = 4.0, 2.0, 1.0
    assert stencil.step(grid, 5)[1, 1] == pytest.approx(1 + 0.05 * (2 - 4))
    assert stencil.step(grid, 9)[1, 1] == pytest.approx(1 + 0.05 * (4 + 2 - 8))


@pytest.mark.parametrize(
    ("given", "values"),
    [(transpose.KERNEL, TRANSPOSED[1]), (stencil.kernel(9), STEPPED[1])],
    ids=["transpose", "stencil"],
)
def test_an_instance_fits_an_h100(
    given: Mapping[str, Any], values: Mapping[str, int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    only = {**given, "parameters": {name: (value,) for name, value in values.items()}}
    (row,) = autotune.kernel_occupancy(**only, device="h100").rows
    assert row.rejection is None
    assert row.resources is not None
    block, shared = given["block"](values), given["shared"](values)
    assert (row.resources.threads, row.resources.shared) == (block[0] * block[1], shared)
    assert row.resources.local == 0


@pytest.mark.parametrize(
    ("given", "fits", "fallen"),
    # 4, 5, 6 and 5 of the rows divide a tile and make a block; 16 of the 20 blocks are in between.
    [(transpose.KERNEL, 60, {"rows divide the tile", "threads"}),
     (stencil.kernel(5), 192, {"at least two warps", "threads"})],
    ids=["transpose", "stencil"],
)  # fmt: skip
def test_the_rest_is_rejected_for_a_reason(
    given: Mapping[str, Any], fits: int, fallen: set[str]
) -> None:
    rows = list(KernelTunable(kernel_of(given), Call("k", ())).rejected(H100))
    reasons = [why.reason for _, why in rows if why]
    assert (len(rows) - len(reasons), set(reasons)) == (fits, fallen)


@pytest.mark.parametrize("module", [transpose, stencil], ids=lambda one: one.__name__)
def test_an_example_says_how_to_run_it(module: Any) -> None:
    assert f"python examples/{module.__name__}.py" in module.__doc__
