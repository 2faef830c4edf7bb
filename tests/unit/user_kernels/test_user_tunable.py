"""A user kernel in the tuning loop: trials, records, repeated runs; the occupancy table."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.fake_runner import ORIGIN, compiled, program
from support.sample_records import H100
from support.sample_user_kernels import EACH, LEGAL, THREADS, KernelRunner, kernel, tunable

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.table import occupancy_table
from autotune.user_kernels.tunable import KernelTunable

TUNABLE = tunable()


def go(
    runner: KernelRunner,
    store: Store,
    tuned: KernelTunable = TUNABLE,
    compile: Compile = compiled,
    **options: Any,
) -> KernelRecord:
    return tune(tuned, runner, store, Search(**options), compile=compile, origin=ORIGIN)


def test_fastest_configuration_is_recorded(store: Store) -> None:
    record = go(KernelRunner(), store)
    assert str(record.best.config) == "saxpy:THREADS=256,EACH=1"
    assert store.kernel(H100, TUNABLE.call) == record


class Valley(KernelRunner):
    """A recording of 6,144 configurations with one optimum, each with registers of its own."""

    evidence: Evidence = "replayed"

    def __init__(self, configs: tuple[Config, ...]) -> None:
        super().__init__()
        self._configs = configs

    def known(self) -> tuple[Config, ...]:
        return self._configs

    def resources(self, config: Config) -> Resources:
        threads, each = config.integer("THREADS"), config.integer("EACH")
        return Resources(threads, 40 + 12 * each + threads % 13, 0)

    def share(self, config: Config) -> float:
        """The speed of a configuration as a share of the best."""
        threads, each, a, b, c = (config.integer(name) for name in VALLEY)
        slower = (
            1 + 0.5 * abs(math.log2(threads / 352)),
            1 + 0.25 * abs(math.log2(each) - 2),
            1 + 0.15 * abs(a - 4),
            1 + 0.2 * abs(math.log2(b) - 1) * (1 + c),
            1.1 - 0.1 * c,
        )
        return 1 / math.prod(slower)

    def _outcome(self, config: Config) -> Measurement:
        return Measurement(100 / self.share(config), 0.1, 20, 200.0)


VALLEY = {
    "THREADS": tuple(range(32, 1025, 32)),
    "EACH": (1, 2, 4, 8),
    **{"A": (1, 2, 3, 4, 5, 6), "B": (1, 2, 4, 8), "C": (0, 1)},
}


@pytest.mark.parametrize("seed", range(3))
def test_search_learns_although_registers_differ(store: Store, seed: int) -> None:
    tuned = tunable(parameters=VALLEY, constraints=None)
    runner = Valley(tuple(tuned.kernel.combinations()))
    record = go(runner, store, tuned, trials=40, seed=seed)
    # The best of 40 at random reaches about 0.65.
    assert runner.share(record.best.config) > 0.9


def test_record_describes_the_call(store: Store) -> None:
    record = go(KernelRunner(), store)
    arguments = "float32[1000]", "float32[1000]", "float32=2.5", "int32=1000"
    assert record.call == KernelCall("saxpy", arguments)
    assert (record.evidence, record.baseline, record.provenance.source) == (
        "measured",
        None,
        "5e1f",
    )
    assert record.provenance.trials == LEGAL


def test_every_legal_configuration_is_tried_once(store: Store) -> None:
    runner = KernelRunner()
    go(runner, store)
    legal = {(t, e) for t in THREADS for e in EACH if t >= 16 * e and t <= 1024}
    tried = [(c.integer("THREADS"), c.integer("EACH")) for c in runner.measured]
    assert (len(tried), set(tried)) == (LEGAL, legal)


def test_rejected_configurations_are_counted_by_reason() -> None:
    candidates = TUNABLE.candidates(KernelRunner(), (), ranked=None)
    assert candidates.rejected == {"threads": 3, "enough threads": 1}


def test_second_run_continues_the_first(store: Store) -> None:
    first, second = KernelRunner(), KernelRunner()
    go(first, store, trials=5)
    go(second, store)
    assert len(first.measured) == 5
    assert set(first.measured).isdisjoint(second.measured)
    assert len(first.measured) + len(second.measured) == LEGAL


def test_wrong_result_is_tried_again(store: Store) -> None:
    first = KernelRunner(t256=Failure("verify", "wrong"), t128=Failure("launch", "refused"))
    go(first, store)
    second = KernelRunner()
    record = go(second, store)
    assert {config.integer("THREADS") for config in second.measured} == {256}
    assert record.best.config.integer("THREADS") == 256


def test_crashed_configuration_is_not_tried_again(store: Store) -> None:
    go(KernelRunner(t256=Failure("crash", "illegal access")), store, trials=LEGAL)
    again = KernelRunner()
    go(again, store)
    assert 256 not in {config.integer("THREADS") for config in again.measured}


def test_configurations_with_local_memory_are_timed(store: Store) -> None:
    def spilled(template: Template, arch: str) -> Program:
        return program(template, arch, local=400, spills=100)

    assert go(KernelRunner(), store, compile=spilled).best.resources.local == 400


def test_too_many_registers_are_rejected_with_numbers(store: Store) -> None:
    def greedy(template: Template, arch: str) -> Program:
        return program(template, arch, registers=300)

    with pytest.raises(AutotuneError, match=r"no block fits an SM of NVIDIA H100.*300 registers"):
        go(KernelRunner(), store, compile=greedy)


def test_no_candidates_reports_reasons_with_an_example(store: Store) -> None:
    impossible = tunable(block=(64, 32), constraints={"big": lambda p: p["EACH"] > 1})
    with pytest.raises(AutotuneError) as raised:
        go(KernelRunner(), store, impossible)
    assert str(raised.value) == (
        f"no configuration of {impossible} can run on NVIDIA H100 80GB HBM3; rejected: big 5, such "
        "as saxpy:THREADS=32,EACH=1: a constraint is not fulfilled; threads 10, such as "
        "saxpy:THREADS=32,EACH=2: 64 x 32 x 1 are 2048 threads a block, NVIDIA H100 80GB HBM3 "
        "allows 1024"
    )


def test_store_keeps_problems_and_kernels_apart(store: Store) -> None:
    go(KernelRunner(), store)
    assert store.records(H100) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": lambda p: 2000 // p["THREADS"]},
        {"block": lambda p: (p["THREADS"], 1, 1 + p["EACH"] // 4)},
        {"shared": 16},
        {"name": "saxpy<THREADS>"},
        {"parameters": {"THREADS": (*THREADS, 512), "EACH": EACH}},
    ],
)
def test_digest_covers_what_times_depend_on(changes: dict[str, Any]) -> None:
    assert tunable(**changes).digest("a") != TUNABLE.digest("a")


def test_digest_covers_sources_call_and_geometry_only() -> None:
    assert tunable(grid=lambda p: -(-1000 // p["EACH"] // p["THREADS"])).digest("a") == (
        TUNABLE.digest("a")
    )
    without_arguments = KernelTunable(kernel(), KernelCall("saxpy", ()))
    assert len({TUNABLE.digest("a"), TUNABLE.digest("b"), without_arguments.digest("a")}) == 3


def test_geometry_is_not_evaluated_for_rejected_values() -> None:
    constrained = tunable(
        constraints={"more": lambda p: p["EACH"] > 1}, shared=lambda p: 8 // (p["EACH"] - 1)
    )
    assert len(constrained.kernel.geometries[0]) == 10


# The table


def test_table_has_a_row_for_each_combination() -> None:
    shown = occupancy_table(TUNABLE, H100, compiled)
    assert [row.config for row in shown.rows] == list(TUNABLE.kernel.combinations())
    reasons = [row.rejection.reason for row in shown.rows if row.rejection]
    assert reasons == ["enough threads", *["threads"] * 3]


def test_row_states_resources_and_limiter() -> None:
    row = occupancy_table(TUNABLE, H100, compiled).rows[6]
    assert str(row.config) == "saxpy:THREADS=128,EACH=1"
    assert row.resources == Resources(128, 32, 16, local=0, barriers=1)
    assert row.occupancy is not None
    assert (row.occupancy.blocks_per_sm, row.occupancy.limiter) == (16, "warps and registers")


def test_table_shows_compile_errors() -> None:
    def broken(template: Template, arch: str) -> CompileFailure:
        return CompileFailure(template, arch, "saxpy.cu(4): error: expected a ;", "")

    row = occupancy_table(TUNABLE, H100, broken).rows[0]
    assert str(row.rejection) == "compile: saxpy.cu(4): error: expected a ;"


def test_table_shows_what_fits_no_sm_with_numbers() -> None:
    def greedy(template: Template, arch: str) -> Program:
        return program(template, arch, registers=300)

    row = occupancy_table(TUNABLE, H100, greedy).rows[0]
    assert str(row.rejection) == (
        "registers: no block fits an SM: 300 registers a thread, 16 bytes of shared memory"
    )


def test_table_text_leaves_out_rejected_configurations() -> None:
    lines = str(occupancy_table(TUNABLE, H100, compiled)).splitlines()
    assert lines[0] == "NVIDIA H100 80GB HBM3; registers as compiled for sm_90"
    assert lines[1].split() == [
        *("THREADS", "EACH", "threads", "regs", "shared", "local", "blocks", "occupancy"),
        "limiter",
    ]
    assert lines[2] == "     32     1       32    32      16      0      32        50%  blocks"
    assert len(lines) == 2 + LEGAL + 2
    assert lines[-1] == (
        "rejected, threads: 3, such as saxpy:THREADS=2048,EACH=1: 2048 x 1 x 1 are 2048 threads a "
        "block, NVIDIA H100 80GB HBM3 allows 1024"
    )


def test_table_refuses_an_invalid_geometry() -> None:
    with pytest.raises(UsageError, match="block of"):
        occupancy_table(tunable(block=lambda _: "many"), H100, compiled)
