"""The runner that measures on a GPU keeps the contract that `autotune.testing` ships."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_kernels import broken

from autotune.errors import MissingError
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.runner import Candidate, Runner
from autotune.problem import Problem
from autotune.testing import RunnerContract

pytestmark = pytest.mark.timing


class TestGpuRunner(RunnerContract):
    """Through PyCUDA where it is installed."""

    problem = Problem(512, 512, 512)
    agreement = 0.5  # other processes may use the GPU

    @pytest.fixture(params=["illegal access", "endless loop", "wrong element"])
    def failing(self, request: pytest.FixtureRequest, runner: Runner, programs: Path) -> Candidate:
        return broken(request.param, self.problem, runner.device, programs)

    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        runner = GpuRunner(self.problem, time_limit=5.0)
        try:
            _ = runner.device
            yield runner
        except MissingError as error:
            pytest.skip(str(error))
        finally:
            runner.close()


class TestGpuRunnerThroughBindings(TestGpuRunner):
    """Through `cuda.bindings`, as on a machine without PyCUDA."""

    @pytest.fixture(autouse=True)
    def session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AUTOTUNE_SESSION", "bindings")
