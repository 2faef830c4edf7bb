"""Every runner keeps the contract that `autotune.testing` ships."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fake_runner import FakeRunner, compiled

from autotune.device import find
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure import recording
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.runner import Candidate, Runner
from autotune.measure.without_gpu import PredictedRunner, ReplayRunner
from autotune.testing import RunnerContract
from autotune.tuning.pipeline import Compile

# A bench in a worker process that answers without a GPU.
TIRELESS = "support.worker_benches:tireless"


class FakeCompilerContract(RunnerContract):
    """The contract with programs that nobody compiles."""

    @pytest.fixture
    def build(self) -> Compile:
        return compiled


class TestFakeRunner(FakeCompilerContract):
    crashing = Config.parse("tiled:tile_width=8,specialized=1")

    @pytest.fixture
    def runner(self) -> Runner:
        return FakeRunner(self.outcome, energy=self.energy)

    @pytest.fixture
    def failing(self, runner: Runner, build: Compile) -> Candidate:
        return self.prepared(self.crashing, runner, build)

    def outcome(self, config: Config) -> Measurement | Failure:
        if config == self.crashing:
            return Failure("crash", "illegal access")
        return Measurement(float(len(str(config))), cold_us=2.0 * len(str(config)))

    def energy(self, config: Config) -> Energy | Failure:
        outcome = self.outcome(config)
        if isinstance(outcome, Failure):
            return outcome
        return Energy(outcome.time_us, 0.0, 1e6, 1.0)


class TestPredictedRunner(FakeCompilerContract):
    @pytest.fixture
    def runner(self) -> Runner:
        return PredictedRunner(self.problem, find("h100"))


class TestReplayRunner(FakeCompilerContract):
    @pytest.fixture
    def runner(self) -> Runner:
        return ReplayRunner(recording.find("h100", self.problem))

    @pytest.fixture
    def failing(self, runner: Runner, build: Compile) -> Candidate:
        rows = recording.find("h100", self.problem).rows
        failed = next(row for row in rows if isinstance(row.outcome, Failure))
        return self.prepared(failed.config, runner, build)


class WorkerContract(FakeCompilerContract):
    """The contract of the runner that measures, with benches that need no GPU."""

    @pytest.fixture
    def failing(self) -> Candidate:
        killing = Config.of("fake", {"act": "kill"})
        return Candidate(killing, LaunchPlan(killing, ()), (), Resources(32, 32, 0))


class TestGpuRunner(WorkerContract):
    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        runner = GpuRunner(self.problem, bench=TIRELESS, baseline_bench=TIRELESS)
        yield runner
        runner.close()


class TestGpuRunnerWithoutVendorLibrary(WorkerContract):
    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        runner = GpuRunner(self.problem, bench=TIRELESS, baseline_bench=None)
        yield runner
        runner.close()
