"""Verification: the work it enqueues and how it checks the results; nothing runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fake_runner import compiled
from support.fake_session import FakeSession, Launch

from autotune import settings
from autotune.cuda.launches import Values
from autotune.errors import RunnerError
from autotune.measure import exact, verify_kernels
from autotune.measure.measurement import Failure
from autotune.measure.operands import GUARD, Operands
from autotune.measure.session import Run
from autotune.measure.verify import (
    ERRORS,
    KERNEL,
    LIBRARY,
    THOROUGH,
    WRITTEN,
    EnqueuedRun,
    Passed,
    Verifier,
    first_failure,
)
from autotune.measure.verify_kernels import (
    LOWERED,
    MEMSET_LIMIT,
    NORMAL,
    POISON,
    POISONED,
    RAISED,
)
from autotune.problem import Problem

PROBLEM = Problem(30, 20, 10, batch=4, epilogue="bias_gelu")
EXACT = [0.0] * (len(WRITTEN) + ERRORS)
FINE = [0.0] * len(WRITTEN) + [1e-6, 0.0, 4e-12, 1.0]
RIGHT = [0.0] * len(WRITTEN) + [0.0, 0.0, 0.0, 1.0]
UNSCALED, SCALED = 3, 5
"""Buffers that a kernel only reads, without those of scales and with them."""
SECOND = len(EXACT)
"""Where the findings of the second run of a kernel begin."""

# Positions of arguments of `fill` and `check`.
MEMORY, CONTENT, SEED = 0, 7, 8


class Bench:
    """A verifier with a fake session, and the results it reads back."""

    def __init__(self, problem: Problem = PROBLEM) -> None:
        session: Any = FakeSession(answer=self._fill)
        self.session = session
        self.operands = Operands(session, problem)
        self.verifier = Verifier(session, self.operands, cache=None)
        self.results = np.array([*EXACT, *FINE, *[0.0] * UNSCALED])
        self.seen: list[tuple[int | float, int | float]] = []

    def _fill(self, array: NDArray[np.float64]) -> None:
        array[: len(self.results)] = self.results

    def bound(self, values: Values) -> Run:
        def run() -> None:
            self.session.log.append(Launch("run", (1, 1, 1), (), ()))
            self.seen.append((values["alpha"], values["beta"]))

        return run

    def verify(self) -> Any:
        self.session.log.clear()
        return self.verifier.verify(self.bound)

    def launched(self, name: str) -> list[Launch]:
        return [launch for launch in self.session.log if launch.kernel == name]

    def resets(self) -> list[str]:
        """How C, workspace and counters were filled, and the runs, in order."""
        operands = self.operands
        written = {"C": operands.c, "workspace": operands.workspace, "counters": operands.counters}
        starts = {int(matrix.allocation): name for name, matrix in written.items()}
        inner = {matrix.address: name for name, matrix in written.items()}
        steps = []
        for launch in self.session.log:
            if launch.kernel == "run":
                steps.append("run")
            elif launch.kernel == "fill" and launch.arguments[MEMORY] in starts:
                contents = {NORMAL: "normal", RAISED: "raised", LOWERED: "lowered"}
                content = contents.get(int(launch.arguments[CONTENT]), "poison")
                steps.append(f"{content} {starts[int(launch.arguments[MEMORY])]}")
            elif launch.kernel.startswith("memset") and launch.arguments[0] in starts:
                name = starts[int(launch.arguments[0])]
                size = 4 if launch.kernel == "memset 32" else 2
                assert launch.arguments[1:] == (POISON[size], written[name].guarded_length)
                steps.append(f"poison {name}")
            elif launch.kernel.startswith("memset") and launch.arguments[0] in inner:
                name = inner[int(launch.arguments[0])]
                assert launch.arguments[1:] == (0, written[name].length)
                steps.append(f"zero {name}")
        return steps


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        verify_kernels,
        "compile",
        lambda *source, cache, here: here and (cache or compiled(*source)),
    )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_result_is_of_the_unscaled_run(bench: Bench) -> None:
    bench.results[SECOND:][: len(FINE)] = [*[0.0] * len(WRITTEN), 2e-6, 0.0, 9e-12, 4.0]
    result = bench.verify()
    assert (bench.seen, result.error, result.relative, result.time_us) == (
        [(2.0, -1.0), (1.0, 0.0)],
        2e-6,
        pytest.approx(1.5e-6),
        pytest.approx(7.0),
    )


def test_reference_is_computed_once_for_many_kernels(bench: Bench) -> None:
    counts = []
    for _ in range(3):
        bench.verify()
        counts.append(len(bench.launched("reference")))
    assert counts == [1, 0, 0]


def test_refresh_draws_new_operands(bench: Bench) -> None:
    bench.verify()
    bench.verifier.refresh()
    fills = bench.launched("fill")[-3:]
    checks = bench.launched("check")[-3:]
    assert {fill.arguments[SEED] for fill in fills}.isdisjoint(
        check.arguments[SEED] for check in checks
    )


def test_each_run_starts_with_fresh_poison_and_zeros(bench: Bench) -> None:
    bench.operands.reserve(64, 5)
    bench.verify()
    bench.verify()
    scratch = ["poison workspace", "poison counters", "zero counters", "run"]
    assert bench.resets() == ["lowered C", *scratch, "poison C", *scratch]


def test_counters_of_no_length_are_not_zeroed(bench: Bench) -> None:
    bench.verify()
    assert "zero counters" not in bench.resets()


def test_thorough_verification_scales_and_adds(bench: Bench) -> None:
    bench.results = np.array([*EXACT * 5, *FINE * 3, *[0.0] * SCALED])
    assert isinstance(bench.verifier.verify(bench.bound, THOROUGH), Passed)
    assert bench.seen == [(2.0, 1.0)] * 5 + [(0.75, -0.5), (0.0, 1.0), (1.0, 0.0)]


def test_special_values_are_of_the_first_matrices(bench: Bench) -> None:
    bench.results = np.array([*EXACT * 5, *FINE * 3, *[0.0] * SCALED])
    bench.verifier.verify(bench.bound, THOROUGH)
    operands = bench.operands
    ends = {m.address: m.address + 4 * m.rows * m.columns for m in (operands.a, operands.b)}
    stored = [
        launch.arguments[1]
        for launch in bench.session.log
        for start, end in ends.items()
        if launch.kernel == "memset 32" and start <= int(launch.arguments[0]) < end
    ]
    assert stored == [0x7F800000, 0x7FC00000, 0x00080000, 0x80080000]


def test_normal_numbers_return_after_the_integers(bench: Bench) -> None:
    bench.verify()
    kernels = [launch.kernel for launch in bench.session.log]
    last = max(i for i, name in enumerate(kernels) if name == "fill_exact")
    refilled = [
        launch
        for launch in bench.session.log[last:]
        if launch.kernel == "fill" and launch.arguments[CONTENT] == NORMAL
    ]
    assert [launch.arguments[-1] for launch in refilled] == [0, 0, 0]  # guards stay
    checks = {launch.arguments[SEED] for launch in bench.launched("check")[-3:]}
    assert {launch.arguments[SEED] for launch in refilled} == checks


def test_each_exact_product_is_drawn_anew(bench: Bench) -> None:
    seeds = set()
    for _ in range(4):
        bench.verify()
        seeds |= {launch.arguments[-1] for launch in bench.launched("fill_exact")}
    assert len(seeds) == 8


def test_repeated_launches_cancel_out(bench: Bench) -> None:
    bench.results = np.zeros(1 + len(WRITTEN))
    assert bench.verifier.repeat(bench.bound, 6) is None
    assert bench.seen == [(1.0, 1.0), (-1.0, 1.0)] * 3
    c = int(bench.operands.c.allocation)
    (before,) = (run for run in bench.launched("fill") if run.arguments[MEMORY] == c)
    after, guards = (run for run in bench.launched("check") if run.arguments[MEMORY] == c)
    contents = [run.arguments[CONTENT : SEED + 1] for run in (before, after)]
    assert contents[0] == contents[1]
    assert (contents[0][0], guards.arguments[CONTENT]) == (RAISED, POISONED)


def test_c_is_compared_after_fifty_launches(bench: Bench) -> None:
    bench.results = np.zeros(1 + len(WRITTEN))
    bench.verifier.repeat(bench.bound, 120)
    launches = [launch for launch in bench.session.log if launch.kernel in ("run", "check")]
    raised = [run.kernel == "check" and run.arguments[CONTENT] == RAISED for run in launches]
    assert [i for i, check in enumerate(raised) if check] == [50, 101, 122]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (0, "3 elements in or around C differ in 6 launches that cancel out"),
        (2, "stray writes: changed 3 elements around the workspace in 6 launches"),
    ],
)
def test_launches_that_differ_are_a_failure(bench: Bench, place: int, reason: str) -> None:
    bench.results = np.zeros(1 + len(WRITTEN))
    bench.results[place] = 3
    outcome = bench.verifier.repeat(bench.bound, 6)
    assert isinstance(outcome, Failure)
    assert reason in outcome.reason


def test_recheck_compares_c_without_a_run(bench: Bench) -> None:
    bench.verify()
    bench.seen.clear()
    bench.results = np.array(FINE)
    assert (bench.verifier.recheck(), bench.seen) == (None, [])


def test_recheck_failure_says_when(bench: Bench) -> None:
    bench.verify()
    bench.results = np.array([0, 0, 0, 0.5, 1, 0.25, 1])
    outcome = bench.verifier.recheck()
    assert isinstance(outcome, Failure)
    assert outcome.reason.startswith("wrong result after timing: largest error 0.5")


@pytest.mark.parametrize("output", ["same", "f32"])
def test_c_of_either_size_is_poisoned(output: str) -> None:
    bench = Bench(Problem(30, 20, 10, "bf16", output=output))
    bench.verify()
    assert bench.resets().count("poison C") == 1


def test_poison_matches_the_verify_kernels() -> None:
    source = (settings.source_dir() / "verify.cu").read_text()
    assert all(f"POISON = {bits:#x};" in source for bits in POISON.values())


def test_buffers_beyond_a_memset_are_poisoned_by_a_kernel(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MEMSET_LIMIT < 2**32  # PyCUDA's counts
    monkeypatch.setattr(verify_kernels, "MEMSET_LIMIT", 1)
    bench.verify()
    assert not [launch for launch in bench.session.log if launch.arguments[1:2] == (POISON[4],)]
    assert bench.resets().count("poison C") == 1


def test_verification_takes_19_launches_and_one_copy(bench: Bench) -> None:
    bench.verify()
    bench.session.copies = bench.session.synchronisations = 0
    bench.verify()
    kernels = [launch.kernel for launch in bench.session.log]
    names = ("fill", "fill_exact", "check", "compare", "compare_exact", "reference")
    assert [kernels.count(name) for name in names] == [5, 2, 9, 1, 1, 0]
    assert sum(name.startswith("memset") for name in kernels) == 6
    assert (bench.session.copies, bench.session.synchronisations) == (1, 1)


@pytest.mark.parametrize(("shape", "blocks"), [((30, 20, 10), 11), ((512, 512, 10), 1024)])
def test_small_buffers_take_few_blocks(shape: tuple[int, int, int], blocks: int) -> None:
    bench = Bench(Problem(*shape))
    bench.verify()
    c, workspace = (int(x.allocation) for x in (bench.operands.c, bench.operands.workspace))
    launches = bench.launched("check")
    checks = {launch.grid for launch in launches if launch.arguments[MEMORY] == c}
    guards = {launch.grid for launch in launches if launch.arguments[MEMORY] == workspace}
    assert (checks, guards) == ({(blocks, 1, 1)}, {(8, 1, 1)})


def test_each_verification_draws_a_new_c(bench: Bench) -> None:
    seeds = set()
    for _ in range(4):
        bench.verify()
        seeds |= {launch.arguments[-4] for launch in bench.launched("compare")}
        seeds |= {launch.arguments[12] for launch in bench.launched("compare_exact")}
    assert len(seeds) == 8


def test_every_buffer_is_checked(bench: Bench) -> None:
    bench.verify()
    operands = bench.operands
    matrices = (operands.a, operands.b, operands.c, operands.bias)
    buffers = (*matrices, operands.workspace, operands.counters)
    checked = {launch.arguments[MEMORY] for launch in bench.launched("check")}
    assert checked == {int(buffer.allocation) for buffer in buffers}


def test_each_check_has_its_own_result(bench: Bench) -> None:
    bench.verify()
    compared = (*bench.launched("compare"), *bench.launched("compare_exact"))
    launches = (*bench.launched("check"), *compared)
    places = [launch.arguments[-1] for launch in launches]
    assert len(set(places)) == len(places)


def test_reference_grid_has_a_layer_for_each_matrix(bench: Bench) -> None:
    bench.verify()
    (reference,) = bench.launched("reference")
    assert (reference.grid[2], reference.arguments[-2:]) == (4, (300, 200))


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 3, "stray writes: changed 3 elements around C (alpha=2, beta=-1)"),
        (1, 1, "stray writes: changed 1 elements around the workspace (alpha=2, beta=-1)"),
        (
            SECOND + 2,
            2,
            "stray writes: changed 2 elements in or around the counters, which stay zero "
            "(alpha=1, beta=0)",
        ),
        (3, 0.5, "wrong result for small integers: largest error 0.5, tolerance "),
        (4, 1, "wrong result for small integers: largest error 0, tolerance "),
        (SECOND + 3, 0.5, "wrong result: largest error 0.5, tolerance "),
        (SECOND + 3, np.nan, "wrong result: largest error nan, tolerance "),
        (-3, 1, "stray writes: changed 1 elements in or around A"),
        (-1, 4, "stray writes: changed 4 elements in or around the bias"),
    ],
)
def test_failure_names_what_is_wrong(bench: Bench, place: int, value: float, reason: str) -> None:
    bench.results[place] = value
    outcome = bench.verify()
    assert isinstance(outcome, Failure)
    assert (outcome.stage, outcome.reason[: len(reason)]) == ("verify", reason)


def test_failure_counts_elements_of_the_whole_batch(bench: Bench) -> None:
    bench.results[3:5] = 0.5, 7
    assert "exceeded by 7 of 2400 elements" in bench.verify().reason


def test_failure_renews_operands_and_reference(bench: Bench) -> None:
    bench.verify()
    bench.results[0] = 1
    bench.verify()
    bench.results[0] = 0
    bench.verify()
    assert len(bench.launched("reference")) == 1


def test_refused_launch_renews_operands(bench: Bench) -> None:
    bench.verify()

    def refused(_: Values) -> Run:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench.verifier.verify(refused)
    bench.verify()
    assert len(bench.launched("reference")) == 1


def test_library_is_run_without_reading_c(bench: Bench) -> None:
    bench.results[: len(FINE)] = FINE
    bench.verifier.verify(bench.bound, LIBRARY)
    assert bench.seen == [(1.0, 0.0)] * 2


def test_library_may_round_more_often_than_a_kernel() -> None:
    bench = Bench(Problem(30, 20, 10, "bf16"))
    coarse = [0.0, 0.0, 0.0, 0.5, 0.0, 1e-6, 1.0]
    outcomes = []
    for checks, first in ((KERNEL, EXACT), (LIBRARY, coarse)):
        integers = [*EXACT, *EXACT] if checks is LIBRARY else []
        bench.results = np.array([*integers, *first, *coarse, *[0.0] * SCALED])
        outcomes.append(bench.verifier.verify(bench.bound, checks))
    assert [type(outcome) for outcome in outcomes] == [Failure, Passed]


def test_library_has_to_sum_all_of_k() -> None:
    bench = Bench(Problem(30, 20, 10, "bf16"))
    short = [*[0.0] * len(WRITTEN), 1.0, 7.0, 0.0, 0.0]
    bench.results = np.array([*EXACT, *short, *FINE, *FINE, *[0.0] * SCALED])
    outcome = bench.verifier.verify(bench.bound, LIBRARY)
    assert isinstance(outcome, Failure)
    assert "wrong result for small integers: largest error 1, tolerance 0" in outcome.reason


@pytest.mark.parametrize("epilogue", ["gelu", "swiglu"])
def test_library_may_round_before_the_epilogue(epilogue: str) -> None:
    problem = Problem(32, 32, 16, "bf16", epilogue=epilogue)
    assert LIBRARY.of_integers(problem) == ()
    assert LIBRARY.of_integers(replace(problem, epilogue="bias_relu")) == ((1.0, 0.0), (1.0, 0.0))


@pytest.mark.parametrize(
    ("problem", "operand", "output", "roundoff"),
    [
        (Problem(30, 20, 10, "tf32"), 0, 0, 0.0),
        (Problem(30, 20, 10, "f16"), 1, 1, 2.0**-11),
        (Problem(30, 20, 10, "bf16"), 2, 2, 2.0**-8),
        (Problem(30, 20, 10, "bf16", output="f32"), 2, 0, 0.0),
    ],
    ids=str,
)
def test_each_buffer_is_checked_in_its_type(
    problem: Problem, operand: int, output: int, roundoff: float
) -> None:
    bench = Bench(problem)
    bench.verify()
    types = {"a": operand, "b": operand, "c": output, "bias": output, "workspace": 0, "counters": 0}
    for name, kind in types.items():
        place = int(getattr(bench.operands, name).allocation)
        for kernel in ("fill", "check") if name in "abc" or name == "bias" else ("check",):
            launches = bench.launched(kernel)
            templates = {run.template for run in launches if run.arguments[MEMORY] == place}
            assert templates == {(kind,)}
    (reference,), (compare,) = bench.launched("reference"), bench.launched("compare")
    assert (reference.template[0], compare.template[0]) == (operand, output)
    assert compare.arguments[-3] == roundoff


def test_dense_batch_lies_matrix_by_matrix() -> None:
    operands = Bench(Problem(3, 5, 7, layout="nt", batch=2)).operands
    assert (operands.strides, operands.c.length) == ((21, 35, 15), 30)


def test_strides_default_to_leading_dimensions() -> None:
    session: Any = FakeSession()
    operands = Operands(session, Problem(3, 5, 7, batch=2), (8, 9, 10))
    assert operands.strides == (24, 63, 30)


def test_shared_operand_is_allocated_once() -> None:
    session: Any = FakeSession()
    operands = Operands(session, Problem(3, 5, 7, batch=9), strides=(21, 0, 15))
    assert (operands.b.length, operands.values(1, 0)["stride_b"]) == (35, 0)


@pytest.mark.parametrize("strides", [(21, 35, 0), (21, 35, 14), (20, 35, 15)])
def test_overlapping_batch_is_refused(strides: tuple[int, int, int]) -> None:
    session: Any = FakeSession()
    with pytest.raises(RunnerError, match="stride"):
        Operands(session, Problem(3, 5, 7, batch=2), strides=strides)


@pytest.mark.parametrize(("epilogue", "present"), [("bias", True), ("gelu", False)])
def test_bias_address_is_null_without_a_bias(epilogue: str, present: bool) -> None:
    operands = Bench(Problem(3, 5, 7, epilogue=epilogue)).operands
    assert bool(operands.values(1, 0)["bias"]) == present


def test_too_large_batch_is_refused_with_numbers() -> None:
    session: Any = FakeSession(free=10**9)
    with pytest.raises(RunnerError, match=r"needs 2\.\d GiB .* 0\.9 GiB free.* or batch"):
        Operands(session, Problem(512, 512, 512, batch=500))


def test_shrinking_workspace_keeps_its_memory(bench: Bench) -> None:
    bench.operands.reserve(4096, 10)
    before = bench.operands.workspace.address, bench.operands.counters.address
    bench.operands.reserve(16, 1)
    after = bench.operands.workspace.address, bench.operands.counters.address
    assert (after, bench.operands.workspace.length) == (before, 4)


def test_too_large_workspace_is_refused_with_numbers(bench: Bench) -> None:
    with pytest.raises(MemoryError, match=r"needs 32\.0 GiB, 16\.0 GiB are free"):
        bench.operands.reserve(2**35, 0)


def test_guard_follows_the_last_word(bench: Bench) -> None:
    bench.operands.reserve(10, 3)
    assert bench.operands.counters.region[1:] == (GUARD // 4, 3, 3, 3, 1, 3)


def test_guard_follows_an_odd_number_of_16_bit_elements() -> None:
    session: Any = FakeSession()
    a = Operands(session, Problem(3, 5, 7, "f16")).a
    assert a.region[1:] == (GUARD // 2, 21, 7, 7, 3, 21)
    assert (a.address - int(a.allocation), a.allocation.size) == (GUARD, 2 * GUARD + 42)


def test_16_bit_types_take_half_the_memory() -> None:
    sizes = []
    for problem in (Problem(512, 256, 128, compute) for compute in ("f32", "bf16")):
        operands: Any = Operands(cast(Any, FakeSession()), problem)
        sizes.append([matrix.allocation.size - 2 * GUARD for matrix in (operands.a, operands.c)])
    assert sizes == [[4 * 512 * 128, 4 * 512 * 256], [2 * 512 * 128, 2 * 512 * 256]]


def test_residual_is_drawn_filled_and_checked() -> None:
    bench = Bench(Problem(30, 20, 300, "f8", "nt", 2, "residual", scale="row"))
    bench.results = np.array([*EXACT, *FINE, *[0.0] * SCALED, 0.0])
    assert isinstance(bench.verify(), Passed)
    place = int(bench.operands.residual.allocation)
    fills, checks = (
        [run.arguments[CONTENT] for run in bench.launched(name) if run.arguments[MEMORY] == place]
        for name in ("fill", "check")
    )
    assert (fills[-2:], checks) == ([verify_kernels.EVEN, NORMAL], [NORMAL])
    bench.results[-1] = 2
    failure = bench.verify()
    assert failure.reason == "stray writes: changed 2 elements in or around the residual"


def test_residual_has_gaps_of_its_own() -> None:
    problem = Problem(3, 5, 7, "bf16", batch=2, epilogue="residual")
    operands = Operands(cast(Any, FakeSession()), problem, (8, 8, 9))
    values = operands.values(1, 0)
    assert (values["ldc"], values["ldr"], values["stride_r"]) == (9, 13, 39)
    assert values["residual"] == operands.residual.address
    plain = Operands(cast(Any, FakeSession()), Problem(3, 5, 7)).values(1, 0)
    assert (plain["residual"], plain["ldr"], plain["stride_r"]) == (0, 0, 0)


def test_scales_are_drawn_filled_and_checked() -> None:
    bench = Bench(Problem(30, 20, 300, "f8", "nt", scale="block"))
    bench.results = np.array([*EXACT, *FINE, *[0.0] * SCALED])
    assert isinstance(bench.verify(), Passed)
    scales = [
        int(each.vector.allocation) for each in (bench.operands.scale_a, bench.operands.scale_b)
    ]
    for name in ("fill", "check"):
        seen = [run.arguments for run in bench.launched(name) if run.arguments[MEMORY] in scales]
        assert {run[MEMORY] for run in seen} == {*scales}
        assert {run[CONTENT] for run in seen} == {verify_kernels.SCALES}
    sizes = [run.arguments[1:4] for run in bench.launched("fill_scales")]
    assert sizes == [(30, 3, 1), (1, 3, 1)]


def test_damaged_scales_are_named() -> None:
    bench = Bench(Problem(30, 20, 300, "f8", "nt", scale="row"))
    bench.results = np.array([*EXACT, *FINE, 0.0, 0.0, 0.0, 0.0, 2.0])
    outcome = bench.verify()
    assert isinstance(outcome, Failure)
    assert outcome.reason == "stray writes: changed 2 elements in or around the scales of B"


def test_int32_sums_are_verified_without_factors() -> None:
    bench = Bench(Problem(30, 20, 40, "i8", "nt", output="i32"))
    bench.results = np.array([*EXACT, *RIGHT, *[0.0] * UNSCALED])
    result = bench.verify()
    assert (bench.seen, result.tolerance) == ([(1.0, 0.0), (1.0, 0.0)], 0.0)
    bench.seen.clear()
    bench.session.log.clear()
    bench.results = np.zeros(2 + len(WRITTEN))
    assert bench.verifier.repeat(bench.bound, 6) is None
    assert bench.seen == [(1.0, 0.0)] * 6
    assert len(bench.launched("compare_exact")) == 6
    bench.results[1] = 3
    outcome = bench.verifier.repeat(bench.bound, 6)
    assert isinstance(outcome, Failure)
    assert "3 elements in or around C differ in 6 launches: " in outcome.reason


def test_gates_are_verified_without_factors() -> None:
    bench = Bench(Problem(30, 32, 40, "bf16", epilogue="swiglu"))
    bench.results = np.array([*EXACT, *FINE, *[0.0] * UNSCALED])
    assert isinstance(bench.verify(), Passed)
    assert bench.seen == [(1.0, 0.0), (1.0, 0.0)]
    assert (bench.operands.c.columns, bench.operands.b.columns) == (16, 32)
    bench.results = np.zeros(2 + len(WRITTEN))
    assert bench.verifier.repeat(bench.bound, 6) is None
    compared = bench.launched("compare_exact")
    assert {launch.arguments[20] for launch in compared} == {exact.GATED_ROUNDED}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("f8:nt", ["nan", "0.00195312", "-0.00195312"]),
        ("f8e5:nt:e5m2=b", ["inf", "nan", "0.00195312", "-1.52588e-05"]),
        ("i8:nt", ["127", "-128"]),
        ("i8:nt:scale=row", ["127", "-128", *["0", "7.88861e-31", "1.26765e+30"] * 2]),
    ],
)
def test_special_values_are_those_of_the_type(text: str, values: list[str]) -> None:
    problem = Problem.parse(f"30x20x40:{text}")
    assert [f"{special.value:g}" for special in exact.specials(problem)] == values


def test_extreme_operands_get_a_reference_of_their_own() -> None:
    bench = Bench(Problem(30, 20, 40, "f8", "nt", scale="row"))
    runs = 1 + len(exact.specials(bench.operands.problem))
    extremes, rounded = 2, 3
    bench.results = np.array([*EXACT * runs, *RIGHT * (extremes + rounded), *[0.0] * SCALED])
    outcome = bench.verifier.verify(bench.bound, THOROUGH)
    assert isinstance(outcome, Passed)
    assert len(bench.launched("reference")) == 1 + extremes + 1


FP8 = Problem(8, 8, 8, "f8", output="e4m3")
RUN = EnqueuedRun("(alpha=1, beta=0)", 0, 0.0, exact=True)


def findings(expected: float, largest: float) -> list[float]:
    return [*[0.0] * len(WRITTEN), 0.0, 0.0, expected, largest]


@pytest.mark.parametrize("expected", [13.0, float("inf")])
def test_right_amax_passes(expected: float) -> None:
    assert first_failure(FP8, [RUN], findings(expected, expected)) is None


@pytest.mark.parametrize("largest", [12.0, 14.0, float("nan"), float("inf")])
def test_wrong_amax_fails(largest: float) -> None:
    failure = first_failure(FP8, [RUN], findings(13.0, largest))
    assert failure is not None
    assert failure.reason == (f"amax is {largest:.6g}, the largest size of C 13 (alpha=1, beta=0)")


def test_sums_of_squares_of_rounded_runs_are_no_amax() -> None:
    rounded = EnqueuedRun("(alpha=1, beta=0)", 0, 0.0)
    assert first_failure(FP8, [rounded], findings(1.0, 200.0)) is None
