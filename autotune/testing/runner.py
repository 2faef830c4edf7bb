"""The contract of `autotune.measure.runner.Runner`, as tests."""

from __future__ import annotations

import time
from functools import partial
from typing import ClassVar

import pytest

from autotune import compiler
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import COLD, BestTimes
from autotune.measure.runner import Candidate, Runner
from autotune.problem import Problem
from autotune.tuning.pipeline import Compile, prepare

READY_S = 30.0


class RunnerContract:
    """The guarantees of every runner, whichever way it gets its times.

    A subclass overrides the fixture `runner`, and what else does not fit: the attributes, `build`
    (by default programs are compiled with the installed compiler) and `failing`.

    Attributes:
        problem: the problem that the runner measures.
        configs: two configurations that it can answer for, in an order that their times tell.
        agreement: relative difference allowed between the times of `measure` and `rematch`.
    """

    problem: ClassVar[Problem] = Problem(4096, 4096, 4096)
    configs: ClassVar[tuple[Config, Config]] = (
        Config.parse("naive:mapping=coalesced,block=32"),
        Config.parse("tiled:tile_width=16,specialized=1"),
    )
    agreement: ClassVar[float] = 0.05

    @pytest.fixture
    def runner(self) -> Runner:
        """The runner under test; close it afterwards."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `runner`")

    @pytest.fixture
    def build(self, tmp_path_factory: pytest.TempPathFactory) -> Compile:
        """Compiles the launches of a candidate, each once in a run of the tests."""
        cache = tmp_path_factory.getbasetemp() / "contract"
        return partial(compiler.compile, cache=cache)

    @pytest.fixture
    def candidates(self, runner: Runner, build: Compile) -> list[Candidate]:
        """The two configurations, ready to run."""
        return [self.prepared(config, runner, build) for config in self.configs]

    @pytest.fixture
    def failing(self, runner: Runner, build: Compile) -> Candidate:  # noqa: ARG002
        """A candidate that is wrong or takes its process down; by default its tests are skipped."""
        pytest.skip("no failing candidate is given for this runner")

    def prepared(self, config: Config, runner: Runner, build: Compile) -> Candidate:
        """The candidate of a configuration."""
        outcome = prepare(registry.plan(config, self.problem), runner, build)
        assert isinstance(outcome, Candidate), f"{config}: {outcome}"
        return outcome

    def test_measurement_has_a_positive_time(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        for candidate in candidates:
            assert measured(runner, candidate).time_us > 0

    def test_measurement_was_verified_unless_predicted(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        measurement = measured(runner, candidates[0])
        if runner.evidence == "predicted":
            assert (measurement.samples, measurement.error) == (0, None)
        else:
            assert (measurement.error or 0) <= (measurement.tolerance or 0)

    def test_clearly_slower_candidate_still_has_a_time(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        assert measured(runner, candidates[0], BestTimes(1e-3, 1e-3)).time_us > 0

    def test_objective_cold_has_a_hot_time(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        outcome = runner.measure(candidates[0], None, COLD)
        assert isinstance(outcome, Measurement), outcome
        assert outcome.time_us > 0

    def test_objective_cold_has_a_cold_time_if_measured(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        outcome = runner.measure(candidates[0], None, COLD)
        assert isinstance(outcome, Measurement), outcome
        if runner.evidence == "measured":
            assert outcome.cold_us is not None
            assert outcome.cold_us > 0

    def test_first_measurement_has_a_cold_time_if_measured(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        if runner.evidence == "measured":
            assert (measured(runner, candidates[0]).cold_us or 0) > 0

    def test_rematch_answers_in_the_order_of_its_candidates(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        separate = [measured(runner, candidate).time_us for candidate in candidates]
        outcomes = runner.rematch(candidates)
        together = [item.time_us for item in outcomes if isinstance(item, Measurement)]
        assert together == pytest.approx(separate, rel=self.agreement)

    def test_rematch_of_nothing_is_empty(self, runner: Runner) -> None:
        assert runner.rematch([]) == []

    def test_known_configurations_are_answered(self, runner: Runner, build: Compile) -> None:
        for config in (runner.known() or self.configs)[:3]:
            candidate = self.prepared(config, runner, build)
            assert isinstance(runner.measure(candidate, None), Measurement | Failure)

    def test_baseline_stays_the_same(self, runner: Runner) -> None:
        assert runner.baseline() == runner.baseline()

    def test_refused_baseline_is_none(self, runner: Runner) -> None:
        assert runner.baseline() is None or runner.baseline_fault == ""

    def test_baseline_becomes_ready(self, runner: Runner) -> None:
        deadline = time.monotonic() + READY_S
        while not runner.baseline_ready and time.monotonic() < deadline:
            time.sleep(0.01)
        assert runner.baseline_ready

    def test_failing_candidate_is_a_failure(self, runner: Runner, failing: Candidate) -> None:
        assert isinstance(runner.measure(failing, None), Failure)

    def test_runner_stays_usable_after_a_failure(
        self, runner: Runner, failing: Candidate, candidates: list[Candidate]
    ) -> None:
        runner.measure(failing, None)
        assert measured(runner, candidates[0]).time_us > 0

    def test_rematch_with_a_failing_candidate_times_the_others(
        self, runner: Runner, failing: Candidate, candidates: list[Candidate]
    ) -> None:
        outcomes = runner.rematch([candidates[0], failing, candidates[1]])
        assert [type(outcome) for outcome in outcomes] == [Measurement, Failure, Measurement]

    def test_energies_are_in_order_or_missing_for_a_reason(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        if (fault := runner.energy_fault()) is not None:
            assert fault
            assert "\n" not in fault
            return
        singles = [runner.energies([candidate])[0] for candidate in candidates]
        for alone, energy in zip(singles, runner.energies(candidates), strict=True):
            assert isinstance(alone, Energy), alone
            assert isinstance(energy, Energy), energy
            assert abs(energy.joules / alone.joules - 1) <= 2 * self.agreement

    def test_examination_of_a_right_candidate_finds_nothing(
        self, runner: Runner, candidates: list[Candidate]
    ) -> None:
        assert runner.examine(candidates[0]) is None

    def test_examination_of_a_failing_candidate_is_a_failure(
        self, runner: Runner, failing: Candidate
    ) -> None:
        if runner.evidence == "measured":
            assert isinstance(runner.examine(failing), Failure)

    def test_close_after_a_failure(self, runner: Runner, failing: Candidate) -> None:
        runner.measure(failing, None)
        runner.close()

    def test_close_twice(self, runner: Runner) -> None:
        runner.close()
        runner.close()


def measured(runner: Runner, candidate: Candidate, best: BestTimes | None = None) -> Measurement:
    """The measurement of a candidate that has to have one."""
    outcome = runner.measure(candidate, best)
    assert isinstance(outcome, Measurement), f"{candidate.config}: {outcome}"
    return outcome
