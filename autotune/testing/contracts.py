"""The contracts of `runtime.frameworks.Framework` and `measure.runner.Runner`, as tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from autotune.cuda import compiler
from autotune.errors import ArrayError
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import COLD, BestTimes
from autotune.measure.runner import Candidate, Runner
from autotune.problem import Problem
from autotune.runtime.frameworks import Framework
from autotune.tuning.pipeline import Compile, prepare

MakeArray = Callable[[tuple[int, ...], str], Any]
"""Makes a row-major array of a shape and an element type, such as `float32`, on CUDA device 0."""


class FrameworkContract:
    """The contract that the run time relies on in every array library.

    A subclass overrides the fixtures `framework` and `make`, and `transposed` if arrays of the
    library have no `T`.

    Attributes:
        allocates: whether `empty` makes arrays; else it has to raise an `ArrayError`.
        dtypes: names of the element types that the library can make.
    """

    allocates: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16")

    @pytest.fixture
    def framework(self) -> Framework:
        """The framework under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `framework`")

    @pytest.fixture
    def make(self) -> MakeArray:
        """Makes arrays of the library."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `make`")

    def transposed(self, array: Any) -> Any:
        """The array with its two axes exchanged, over the same memory."""
        return array.T

    def test_read_gives_an_address_and_a_hashable_signature(
        self, framework: Framework, make: MakeArray
    ) -> None:
        address, signature = framework.read(make((5, 3), "float32"))
        assert address > 0
        assert hash(signature) == hash(signature)

    def test_arrays_of_one_kind_share_a_signature(
        self, framework: Framework, make: MakeArray
    ) -> None:
        first, second = make((5, 3), "float32"), make((5, 3), "float32")
        assert framework.read(first)[1] == framework.read(second)[1]
        assert framework.read(first)[0] != framework.read(second)[0]
        assert framework.describe(first, "A") == framework.describe(second, "A")

    def test_signature_tells_shapes_and_layouts_apart(
        self, framework: Framework, make: MakeArray
    ) -> None:
        square = make((4, 4), "float32")
        arrays = (square, self.transposed(square), make((4, 5), "float32"))
        assert len({framework.read(array)[1] for array in arrays}) == len(arrays)

    def test_signature_tells_element_types_apart(
        self, framework: Framework, make: MakeArray
    ) -> None:
        signatures = {framework.read(make((5, 3), dtype))[1] for dtype in self.dtypes}
        assert len(signatures) == len(self.dtypes)

    def test_description_has_shape_strides_type_and_device(
        self, framework: Framework, make: MakeArray
    ) -> None:
        for dtype in self.dtypes:
            operand = framework.describe(make((2, 5, 3), dtype), "A")
            assert (operand.name, operand.dtype, operand.ordinal) == ("A", dtype, 0)
            assert (operand.shape, operand.strides) == ((2, 5, 3), (15, 3, 1))

    def test_transposed_array_is_described_by_its_strides(
        self, framework: Framework, make: MakeArray
    ) -> None:
        operand = framework.describe(self.transposed(make((5, 3), "float32")), "B")
        assert (operand.shape, operand.strides) == ((3, 5), (1, 3))

    def test_stream_is_a_handle(self, framework: Framework, make: MakeArray) -> None:
        arrays = [make((5, 3), "float32"), make((3, 7), "float32")]
        assert framework.stream(arrays, 0) >= 0

    def test_arrays_without_gradients_record_nothing(
        self, framework: Framework, make: MakeArray
    ) -> None:
        a, b, out = (make(shape, "float32") for shape in ((5, 3), (3, 7), (5, 7)))
        assert not framework.records_gradient(a, b, out, None)

    def test_exports_answers_for_any_type(self, framework: Framework, make: MakeArray) -> None:
        assert framework.exports(type(make((5, 3), "float32"))) in (True, False)
        assert framework.exports(object) is False

    def test_plain_arrays_are_not_negated(self, framework: Framework, make: MakeArray) -> None:
        negated = framework.negated
        assert negated is None or negated(make((5, 3), "float32")) is False

    @pytest.mark.parametrize("named", [None, "float32", "int32"])
    def test_empty_is_a_row_major_array_of_the_right_type(
        self, framework: Framework, make: MakeArray, named: str | None
    ) -> None:
        for dtype in self.dtypes:
            model = make((5, 3), dtype)
            if not self.allocates:
                with pytest.raises(ArrayError, match="out="):
                    framework.empty(model, (5, 7), named)
                continue
            operand = framework.describe(framework.empty(model, (5, 7), named), "out")
            assert (operand.shape, operand.strides) == ((5, 7), (7, 1))
            assert operand.dtype == (named or dtype)


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
