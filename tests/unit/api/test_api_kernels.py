"""The public functions for user kernels, on a fake GPU."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.logged import logs
from support.sample_records import H100
from support.sample_user_kernels import (
    EACH,
    LEGAL,
    SAXPY,
    THREADS,
    KernelRunner,
    N,
    arguments,
    reference,
)
from support.waiting import HANG_S

import autotune
from autotune.api.kernels import QUICK_TRIALS
from autotune.cuda import compiler, nvcc
from autotune.device import Device, find
from autotune.errors import (
    AutotuneError,
    BudgetError,
    DeviceError,
    MissingError,
    NotFoundError,
    UsageError,
)
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure import devices, gpu_runner
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate
from autotune.records import Store
from autotune.records.kernel_record import Geometry
from autotune.tuning import loop
from autotune.tuning.options import Search
from autotune.user_kernels import bench
from autotune.user_kernels.bench import open_kernel_runner
from autotune.user_kernels.results import Verification
from autotune.user_kernels.source import Compilation
from autotune.user_kernels.workload import Workload

DEFINITION: dict[str, Any] = {
    "source": SAXPY,
    "name": "saxpy",
    "parameters": {"THREADS": THREADS, "EACH": EACH},
    "constraints": {"enough threads": lambda p: p["THREADS"] >= 16 * p["EACH"]},
    "block": lambda p: p["THREADS"],
}


class OpenedRunner(KernelRunner):
    """A runner that records what it is opened with and given to do.

    Attributes:
        opened: the indices of the GPUs and the time limits.
        works: the calls with their arrays, with the time limit.
        closed: how often it was closed.
        tried: the configurations whose results were asked for.
        failing: how many of them fail.
    """

    driver = "13.0"

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[int, float]] = []
        self.works: list[tuple[Workload, float]] = []
        self.closed = 0
        self.tried: list[Config] = []
        self.failing = 0

    def open(
        self, work: Workload, index: int, *, time_limit: float, device: Device | None
    ) -> OpenedRunner:
        del device
        assert not work.buffers
        self.opened.append((index, time_limit))
        return self

    def switch_to(self, work: Workload, time_limit: float) -> None:
        self.works.append((work, time_limit))

    def results(self, candidate: Candidate) -> list[NDArray[Any]] | Failure:
        self.tried.append(candidate.config)
        if len(self.tried) <= self.failing:
            return Failure("crash", "gone")
        y, x = (buffer.before for buffer in self.works[-1][0].buffers)
        return [y + x, x]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedRunner]:
    """A machine with two GPUs; the second is asked for."""

    def probe(index: int = 0) -> Device:
        if index > 1:
            raise DeviceError(f"no GPU {index}")
        return (find("t4"), H100)[index]

    runner = OpenedRunner()
    monkeypatch.setattr(devices, "probe", probe)
    monkeypatch.setattr(bench, "open_kernel_runner", runner.open)
    yield runner
    assert runner.closed == len(runner.opened)


def tune(trials: int | None = None, **changes: Any) -> autotune.KernelRecord:
    if trials is not None:
        changes["search"] = Search(trials=trials)
    definition: dict[str, Any] = {
        **DEFINITION,
        **{"arguments": arguments(), "reference": reference, "device": "gpu:1"},
        "grid": lambda p: -(-N // (p["THREADS"] * p["EACH"])),
        **changes,
    }
    return autotune.tune_kernel(**definition)


def test_tune_kernel_finds_the_fastest_configuration(runner: OpenedRunner) -> None:
    record = tune()
    assert str(record.best.config) == "saxpy:THREADS=256,EACH=1"
    assert (record.best.resources.threads, record.best.occupancy) == (256, 1.0)
    assert (record.device, len(runner.measured)) == (H100, LEGAL)


def test_best_kernel_finds_the_record(runner: OpenedRunner) -> None:
    record = tune()
    assert autotune.best_kernel("saxpy<THREADS, EACH>", arguments(), device="gpu:1") == record
    with pytest.raises(NotFoundError, match=r"saxpy\(int32=1\) is not tuned on NVIDIA H100"):
        autotune.best_kernel("saxpy", [np.int32(1)], device="h100")
    assert runner.works


def test_record_keeps_what_launching_takes(runner: OpenedRunner) -> None:
    tune()
    best = autotune.best_kernel("saxpy", arguments(), device="gpu:1").best
    launch = best.launchable()
    assert (launch.source.text, launch.source.form) == (SAXPY, "saxpy<{THREADS}, {EACH}>")
    assert launch.geometries == (Geometry((4, 1, 1), (256, 1, 1), 0),)
    assert runner.works


def test_launch_bound_rejects_a_trial_unlaunched(runner: OpenedRunner) -> None:
    bounded = SAXPY.replace("__launch_bounds__(THREADS)", "__launch_bounds__(128)")
    assert tune(source=bounded).best.config.integer("THREADS") == 128
    assert {config.integer("THREADS") for config in runner.measured} == {32, 64, 128}


def test_refused_launches_are_told_with_numbers(runner: OpenedRunner) -> None:
    clustered = SAXPY.replace("__launch_bounds__(THREADS)", "__cluster_dims__(3, 1, 1)")
    with pytest.raises(AutotuneError, match=r"blocks, not a multiple of the cluster's 3 x 1 x 1"):
        tune(source=clustered, grid=4)
    assert runner.measured == []


def test_trial_counts_the_clusters_of_its_kernel(runner: OpenedRunner) -> None:
    clustered = SAXPY.replace("__launch_bounds__(THREADS)", "__cluster_dims__(8, 1, 1)")
    best = tune(source=clustered, grid=8).best
    assert best.limiter == "warps and clusters"
    assert runner.works


MACROS: dict[str, Any] = {
    "source": '#define EACH 1\nextern "C"' + SAXPY.replace("template <int THREADS, int EACH>", ""),
    "constraints": None,
    "compile": Compilation(defines=True),
}


def test_overridden_macro_is_refused_before_any_trial(runner: OpenedRunner) -> None:
    with pytest.raises(UsageError, match="saxpy: the source sets EACH to 1, which is given as 4"):
        tune(**MACROS)
    assert not runner.works


def test_occupancy_refuses_an_overridden_macro() -> None:
    with pytest.raises(UsageError, match="the source sets EACH to 1, which is given as "):
        autotune.kernel_occupancy(**DEFINITION | MACROS, device="h100")


CONSTANT: dict[str, Any] = {
    "source": "__constant__ float b;\n" + SAXPY.replace("a * x[at]", "(a + b) * x[at]")
}


@pytest.mark.parametrize("expected", [reference, None])
def test_constant_that_nobody_fills_is_refused(runner: OpenedRunner, expected: Any) -> None:
    with pytest.raises(UsageError, match="saxpy reads __constant__ b, which nothing fills"):
        tune(**CONSTANT, reference=expected)
    assert not runner.works


@pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")
def test_kernel_in_an_unnamed_namespace_reads_constants(runner: OpenedRunner) -> None:
    constant, kernel = CONSTANT["source"].split("\n", 1)
    source = f"{constant}\nnamespace {{\n{kernel}\n}}"
    with pytest.raises(UsageError, match="saxpy reads __constant__ b, which nothing fills"):
        tune(source=source, compile=Compilation(compiler="nvcc"))
    assert not runner.works


def test_constants_reach_the_runner_and_the_record(runner: OpenedRunner) -> None:
    content = np.ones((), np.float32)
    record = tune(**CONSTANT, constants={"b": content})
    assert record.call.constants == ("b:float32[]",)
    assert [work.constants for work, *_ in runner.works] == [{"b": content}]
    assert autotune.best_kernel("saxpy", arguments(), constants={"b": content}, device=1) == record
    with pytest.raises(NotFoundError):
        autotune.best_kernel("saxpy", arguments(), device=1)
    with pytest.raises(UsageError, match=r"has no __constant__ c; it has b"):
        tune(**CONSTANT, constants={"c": content})
    with pytest.raises(UsageError, match=r"constant b is an array of float64 \(8 bytes\)"):
        tune(**CONSTANT, constants={"b": np.float64(1)})


def test_occupancy_answers_for_unfilled_constants() -> None:
    table = autotune.kernel_occupancy(**DEFINITION | CONSTANT, device="h100")
    assert len([row for row in table.rows if row.rejection is None]) == LEGAL


def test_parameters_may_be_macros_of_any_kind(runner: OpenedRunner) -> None:
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void saxpy(TYPE* y, const TYPE* x, float a, int n) {
        const int at = (blockIdx.x * THREADS + threadIdx.x) * EACH;
        if (DOUBLED && at < n) y[at] += a * FACTOR * EXTRA * x[at] + __half2float(__half(0.0f));
    }
    """
    record = tune(
        source=source,
        parameters={
            **{"THREADS": (64, 256), "EACH": (1,), "TYPE": ("float",)},
            **{"FACTOR": (1, 0.5), "DOUBLED": (True, False)},
        },
        constraints=None,
        compile=Compilation(defines=True, options=["-DEXTRA=1", "--use_fast_math", "-O3"]),
    )
    assert len(runner.measured) == 8
    values = record.best.config.values
    assert (values["TYPE"], values["THREADS"]) == ("float", 256)
    assert {entry.config.values["FACTOR"] for entry in record.entries} == {1.0, 0.5}
    assert {entry.config.values["DOUBLED"] for entry in record.entries} == {0, 1}
    assert autotune.best_kernel("saxpy", arguments(), device="gpu:1") == record


def test_words_are_template_arguments(runner: OpenedRunner) -> None:
    source = SAXPY.replace("<int THREADS,", "<typename T, int THREADS,").replace("float*", "T*")
    record = tune(source=source, parameters={"T": ("float",), "THREADS": (64,), "EACH": (1,)})
    assert str(record.best.config) == "saxpy:T=float,THREADS=64,EACH=1"
    assert record.best.launchable().plan(record.best.config).main.template.expression == (
        "saxpy<float, 64, 1>"
    )
    assert runner.works


@pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")
def test_record_of_a_kernel_with_host_code_keeps_nvcc(runner: OpenedRunner) -> None:
    hosted = f"#include <cstdio>\n{SAXPY}\nint main() {{}}"
    with logs("saxpy is compiled by nvcc"):
        tune(source=hosted)
    record = tune(source=hosted)  # continues the first, and says it no more
    assert record.provenance.compiler == nvcc.version()
    assert record.best.launchable().source.compiler == "nvcc"
    assert record.best.launchable().plan(record.best.config).main.template.compiler == "nvcc"
    assert len(runner.measured) == LEGAL
    wrong = [arguments()[0].view(np.int32), *arguments()[1:]]
    with pytest.raises(UsageError, match="argument 0 is an array of int32"):
        tune(source=hosted, arguments=wrong, reference=None)


def test_kernel_with_a_name_of_300_letters_is_recorded(runner: OpenedRunner) -> None:
    name = "s" * 300
    record = tune(source=SAXPY.replace("saxpy", name), name=name)
    assert autotune.best_kernel(name, arguments(), device="gpu:1") == record
    tune(source=SAXPY.replace("saxpy", name), name=name)
    assert len(runner.measured) == LEGAL


def test_source_may_differ_between_configurations(runner: OpenedRunner) -> None:
    def source(p: Any, factor: str = "a") -> str:
        body = SAXPY.replace("EACH", f"{p['EACH']}")
        return re.sub(r", int \d+>", ">", body).replace("a *", f"{factor} *")

    kernel: dict[str, Any] = {"source": source, "name": "saxpy<THREADS>"}
    record = tune(**kernel)
    for entry in record.entries:
        assert entry.launchable().source.text == source(entry.config.values)
    assert autotune.best_kernel("saxpy", arguments(), device="gpu:1") == record
    tune(**kernel)
    assert len(runner.measured) == LEGAL
    tune(**{**kernel, "source": lambda p: source(p, "1 * a" if p["THREADS"] == 256 else "a")})
    assert len(runner.measured) == 2 * LEGAL  # the text of one configuration changed


def test_runner_is_opened_with_call_gpu_and_time_limit(runner: OpenedRunner) -> None:
    tune(trials=1, verify=Verification(time_limit=3.0))
    ((work, limit),) = runner.works
    assert (runner.opened, str(work)[:15]) == ([(1, 3.0)], "saxpy(float32[1")
    assert 3.0 < limit < 3.1


def test_reference_runs_while_the_gpu_starts_and_trials_compile(
    runner: OpenedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances, several, compile = set[str](), threading.Event(), compiler.compile

    def building(template: Template, arch: str, **places: Any) -> Any:
        instances.add(template.expression)
        if len(instances) > 1:  # the check compiles the first configuration
            several.set()
        return compile(template, arch, **places)

    def slow(*arrays: Any) -> Any:
        assert runner.opened
        assert several.wait(HANG_S)
        assert not runner.measured
        return reference(*arrays)

    monkeypatch.setattr(compiler, "compile", building)
    tune(reference=slow, device="gpu:0")  # its limits are known without its driver
    assert len(runner.measured) == LEGAL


def test_seconds_count_from_the_call(runner: OpenedRunner) -> None:
    def slow(*arrays: Any) -> Any:
        time.sleep(0.6)
        return reference(*arrays)

    with pytest.raises(BudgetError, match="the time was over before a configuration of saxpy"):
        tune(reference=slow, search=Search(seconds=0.5))
    assert not runner.measured


def test_device_may_be_the_name_of_the_gpu(runner: OpenedRunner) -> None:
    tune(trials=1, device="h100")
    assert runner.opened[0][0] == 1


def test_second_call_continues_the_first(runner: OpenedRunner) -> None:
    tune(trials=4)
    first = len(runner.measured)
    tune()
    assert (first, len(runner.measured), len(set(runner.measured))) == (4, LEGAL, LEGAL)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": SAXPY.replace("+=", "-=")},
        {"grid": lambda p: 2000 // p["THREADS"]},
        {"compile": Compilation(options=["-DUNUSED"])},
        {"arguments": [*arguments()[:3], np.int32(999)]},
    ],
    ids=["source", "grid", "options", "arguments"],
)
def test_changed_definition_starts_a_new_search(
    runner: OpenedRunner, changes: dict[str, Any]
) -> None:
    tune(trials=2)
    tune(trials=2, **changes)
    assert len(runner.measured) == 4


def test_changed_header_starts_a_new_search(runner: OpenedRunner, tmp_path: Path) -> None:
    source, header = tmp_path / "mine.cu", tmp_path / "factor.cuh"
    source.write_text('#include "factor.cuh"\n' + SAXPY.replace("a *", "FACTOR * a *"))
    sources = set()
    for factor in (1, 2):
        header.write_text(f"#define FACTOR {factor}\n")
        sources.add(tune(source=source, trials=1).provenance.source)
    assert (len(sources), len(runner.measured)) == (2, 2)


def test_compile_error_is_reported(runner: OpenedRunner) -> None:
    broken = SAXPY.replace("n) y[at]", "m) y[at]")
    with pytest.raises(AutotuneError, match=r"has a time.*compile 11.*saxpy.cu.6.: error: .*\"m\""):
        tune(source=broken)
    assert not runner.measured


def test_arguments_that_do_not_fit_are_refused(runner: OpenedRunner) -> None:
    with pytest.raises(UsageError, match=r"argument 3 is int64 \(8 bytes\); saxpy takes a "):
        tune(arguments=[*arguments()[:3], np.int64(N)])
    assert not runner.works


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name is ''"),
        ({"arguments": [4096]}, "argument 0 is 4096; give a NumPy array"),
        ({"grid": None}, r"give grid, or problem_size \(with grid_div\), and not both"),
        ({"problem_size": N}, "give grid, or problem_size"),
        ({"grid_div": ["EACH"]}, "grid_div divides problem_size; give that instead of grid"),
        ({"block": None}, "block is missing; give the threads of a block, or call parameters"),
        ({"reference": lambda *_: [None] * 4}, "the reference expects every argument to stay"),
        ({"device": "replay:h100"}, r"replay:h100 holds times of GEMMs, none of saxpy\("),
        ({"device": "h1000"}, "unknown device 'h1000'"),
        ({"device": 3.5}, "device is 3.5; give its name"),
        ({"compile": Compilation(include="folder")}, r"'folder'; give a list: \['folder'\]"),
    ],
)
def test_invalid_input_is_refused(
    runner: OpenedRunner, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(**changes)
    assert not runner.works


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trials": 0}, "trials is 0; give at least 1"),
        ({"objective": "warm"}, "unknown objective 'warm'"),
        ({"objective": lambda result: result.time_us}, "a function; give it as score"),
        ({"objective": "cold", "score": abs}, "a score and the objective cold; leave either out"),
        ({"effort": "longer"}, "unknown effort 'longer'; give one of quick, default, long, exhaus"),
    ],
)
def test_invalid_searches_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Search(**fields)


def test_time_limit_is_above_zero() -> None:
    with pytest.raises(UsageError, match="time_limit is 0; give more than 0 seconds"):
        Verification(time_limit=0)


def test_quick_search_makes_few_trials(runner: OpenedRunner) -> None:
    own: list[Search] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "tune", lambda *run, **_: own.append(run[3]))
        tune(search=Search(effort="quick"))
        tune(search=Search(effort="quick", trials=3, seed=7))
    assert [(search.trials, search.seed, search.quick) for search in own] == [
        *((QUICK_TRIALS, 0, False), (3, 7, False))
    ]
    assert runner.opened


def test_storage_has_the_trials_too(runner: OpenedRunner, tmp_path: Path, cache: Path) -> None:
    search = Search(storage=f"sqlite:///{tmp_path}/trials.db", objective="cold", trials=3)
    tune(search=search)
    shutil.rmtree(cache / "studies")
    tune(search=search)
    assert len(runner.measured) == 3


def test_results_of_the_first_that_runs_stand_in(runner: OpenedRunner) -> None:
    runner.failing = 2
    record = tune(reference=None)
    assert record.verified == "saxpy:THREADS=64,EACH=1"
    assert [work.verified for work, *_ in runner.works] == ["", record.verified]
    assert [tried.integer("THREADS") for tried in runner.tried] == [32, 32, 64]
    assert "verified   against saxpy:THREADS=64,EACH=1: no reference" in str(autotune.table(record))
    assert autotune.best_kernel("saxpy", arguments(), device="gpu:1") == record
    measured = len(runner.measured)
    tune()
    assert len(runner.measured) == 2 * measured == 2 * LEGAL


NAIVE = """
__global__ void naive(float* y, const float* x, float a, int n) {
    for (int at = 0; at < n; ++at) y[at] += a * x[at];
}
"""


def test_naive_kernel_runs_once_as_the_reference(runner: OpenedRunner) -> None:
    naive = autotune.Step("naive", grid=1, block=1)
    record = tune(source=SAXPY + NAIVE, reference=naive)
    assert (record.verified, [str(tried) for tried in runner.tried]) == ("naive", ["naive"])
    assert [work.verified for work, *_ in runner.works] == ["", "naive"]
    assert "verified   against naive" in str(autotune.table(record)).splitlines()
    measured = len(runner.measured)
    tune(source=SAXPY + NAIVE, reference=None)
    assert len(runner.measured) == 2 * measured


@pytest.mark.parametrize("name", ["saxpy", [autotune.Step("saxpy", cooperative=True)]])
def test_naive_kernel_that_fails_ends_the_run(runner: OpenedRunner, name: Any) -> None:
    runner.failing = 1
    with pytest.raises(AutotuneError, match=r"none can stand in for a reference: naive: crash"):
        tune(source=SAXPY + NAIVE, name=name, reference=autotune.Step("naive", grid=1, block=1))
    assert len(runner.tried) == 1


REDUCTION = """
template <int THREADS, int EACH>
__global__ void partial(float* y, const float* x, float* sums, int blocks) {
    sums[blockIdx.x] = y[blockIdx.x] + x[blockIdx.x] + blocks;
}
__global__ void total(const float* sums, float* y, int blocks) { y[0] = sums[blocks - 1]; }
"""


SUM: dict[str, Any] = {
    "source": REDUCTION,
    "name": [autotune.Step("partial"), autotune.Step("total<>", grid=1, block=1, takes=[2, 0, 3])],
    "arguments": [
        *arguments()[:2],
        autotune.Scratch(lambda p: N // p["THREADS"], np.float32),
        lambda p: np.int32(N // p["THREADS"]),
    ],
    "grid": lambda p: N // p["THREADS"],
    "reference": lambda y, x, sums, blocks: [y + x, None, sums, blocks],
    "constraints": {"some": lambda p: p["THREADS"] <= N},
}


def test_kernels_in_order_are_one_record(runner: OpenedRunner) -> None:
    record = tune(**SUM)
    assert str(record.call) == "partial(float32[1000], float32[1000], float32[scratch], int32=...)"
    launches = record.best.launchable().plan(record.best.config).launches
    assert [launch.template.kernel for launch in launches] == ["partial", "total"]
    assert [launch.grid for launch in launches] == [(3, 1, 1), (1, 1, 1)]
    text = str(autotune.table(record))
    assert "launch     partial: 3 x 1 x 1 blocks of 256 x 1 x 1 threads" in text
    call = [*SUM["arguments"][:3], np.int32]
    assert autotune.best_kernel("partial", call, device="gpu:1") == record
    assert runner.works


def test_occupancy_of_kernels_in_order_checks_the_grids_it_knows() -> None:
    total = autotune.Step("total<>", grid=10_000, block=64, takes=[2, 0, 3], cooperative=True)
    table = autotune.kernel_occupancy(
        REDUCTION,
        [autotune.Step("partial", cooperative=True), total],
        {"THREADS": [32], "EACH": [1]},
        block=32,
        device="h100",
    )
    assert [(row.kernel, row.rejection is None) for row in table.rows] == [
        *(("partial", True), ("total", False))
    ]
    assert "10000 blocks of a cooperative launch" in str(table)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["partial", autotune.Step("total<>", takes=[2, 0])], "total takes 3 arguments .* 2 are"),
        (["partial", autotune.Step("total<>", takes=[2, 0, 2])], "argument 2 is an array of float"),
        ([autotune.Step("partial", takes=[0, 1, 2, 4])], "partial takes argument 4; there are 4"),
    ],
)
def test_steps_are_checked_against_their_signatures(
    runner: OpenedRunner, steps: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(**SUM | {"name": steps})
    assert not runner.measured


def test_kernel_of_which_nothing_runs_has_no_stand_in(runner: OpenedRunner) -> None:
    runner.failing = 99
    with pytest.raises(AutotuneError, match=r"none can stand in .*THREADS=32,EACH=1: crash: gone"):
        tune(reference=None)
    assert not runner.measured


def test_grid_follows_from_the_size_of_the_problem(runner: OpenedRunner) -> None:
    record = tune(grid=None, problem_size=N, grid_div=[("THREADS", "EACH")])
    assert record.best.launchable().geometries[0].grid == (4, 1, 1)
    assert record.provenance.source == tune().provenance.source
    assert runner.works


def test_failing_search_closes_the_runner(runner: OpenedRunner) -> None:
    runner.broken = {f"t{threads}": Failure("launch", "refused") for threads in THREADS}
    with pytest.raises(AutotuneError, match="launch 11"):
        tune()
    assert runner.closed == 1


def test_wrong_or_crashing_configurations_fail_alone(
    runner: OpenedRunner, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def opened(
        work: Workload, index: int, *, time_limit: float, device: Device | None
    ) -> gpu_runner.GpuRunner:
        fake = "support.fake_kernel_session:opened_saxpy"
        return gpu_runner.GpuRunner(
            *(work, index), bench=fake, baseline_bench=None, time_limit=time_limit, device=device
        )

    monkeypatch.setattr(bench, "open_kernel_runner", opened)
    record = tune(search=Search(sampler="exhaustive"))
    assert {entry.config.integer("THREADS") for entry in record.entries} == {32, 256}
    assert (record.provenance.trials, record.best.measurement.time_us) == (LEGAL, 250.0)
    barred = Store(cache).quarantined(H100)
    assert {key.partition("@")[0] for key in barred} == {
        f"saxpy:THREADS=128,EACH={each}" for each in EACH
    }
    assert not runner.works


# Ways to verify


@pytest.fixture
def worker(runner: OpenedRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runners with worker processes of a fake GPU; 64 threads are wrong."""
    monkeypatch.setattr(bench, "open_kernel_runner", open_kernel_runner)
    monkeypatch.setattr(bench, "BENCH", "support.fake_kernel_session:opened_saxpy")
    yield
    assert not runner.works


def threads_of(record: autotune.KernelRecord) -> set[int]:
    return {entry.config.integer("THREADS") for entry in record.entries}


FEW: dict[str, Any] = {
    "parameters": {"THREADS": (32, 64, 256), "EACH": (1,)},
    "search": Search(sampler="exhaustive"),
}


@pytest.mark.usefixtures("worker")
def test_nothing_is_verified_on_request(cache: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    record = tune(**FEW, reference=never, verify=None)
    assert threads_of(record) == {32, 64, 256}
    assert (record.verified, record.best.measurement.error) == ("not verified", None)
    text = (cache / "kernels").rglob("*.json")
    assert any('"verified": "not verified"' in path.read_text() for path in text)
    assert str(record).endswith("3 recorded, not verified")
    table = str(autotune.table(record))
    assert "verified   not verified: the results were compared with nothing" in table
    verified = tune(**FEW)
    assert (threads_of(verified), verified.verified) == ({32, 256}, "")


@pytest.mark.usefixtures("worker")
def test_function_may_compare_the_results() -> None:
    seen: list[list[Any]] = []

    def check(expected: list[Any], actual: list[Any]) -> bool:
        seen.append([type(each) for each in (*expected, *actual)])
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
        return True

    record = tune(**FEW, verify=Verification(check=check))
    assert (threads_of(record), record.verified) == ({32, 256}, "")
    assert [kind is type(None) for kind in seen[0]] == [False, True, True, True] * 2


@pytest.mark.usefixtures("worker")
def test_function_compares_with_the_first_configuration() -> None:
    agree = Verification(check=lambda expected, actual: (expected[0] == actual[0]).all())
    record = tune(**FEW, reference=None, verify=agree)
    assert (threads_of(record), record.verified) == ({32, 256}, "saxpy:THREADS=32,EACH=1")


@pytest.mark.usefixtures("worker")
def test_reference_may_depend_on_the_configuration() -> None:
    called: list[int] = []

    def by_threads(p: Any, y: Any, x: Any, a: Any, n: Any) -> Any:
        called.append(p["THREADS"])
        return [y if p["THREADS"] == 64 else a * x + y, *reference(y, x, a, n)[1:]]

    verify = Verification(by_configuration=True)
    constraints = {"some": lambda p: p["THREADS"] > 32}
    record = tune(**FEW, constraints=constraints, reference=by_threads, verify=verify)
    assert threads_of(record) == {64, 256}
    assert (called[0], set(called)) == (64, {64, 256})


def test_reference_by_configuration_is_a_function() -> None:
    verify = Verification(by_configuration=True)
    with pytest.raises(UsageError, match="by_configuration needs a reference that is a function"):
        tune(reference=None, verify=verify)


# Without a GPU


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(index: int = 0) -> Device:
        raise MissingError(f"no GPU: nothing at {index}")

    monkeypatch.setattr(devices, "probe", probe)


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            "gpu",
            "no GPU: nothing at 0; without a GPU `autotune.kernel_occupancy` shows the occupancy",
        ),
        ("h100", "NVIDIA H100 80GB HBM3 is not in this machine, and the time of a user kernel"),
    ],
)
def test_tuning_without_a_gpu_is_refused(device: str, message: str) -> None:
    with pytest.raises(MissingError, match=message):
        tune(device=device)


@pytest.mark.usefixtures("without_gpu")
def test_occupancy_needs_no_gpu() -> None:
    table = autotune.kernel_occupancy(**DEFINITION, device="h100", jobs=2)
    assert len(table.rows) == len(THREADS) * len(EACH)
    resources = {
        (row.config.integer("THREADS"), row.resources.threads, row.resources.shared)
        for row in table.rows
        if row.resources
    }
    assert resources == {(threads, threads, 0) for threads in THREADS[:-1]}
    assert all(row.rejection or (row.occupancy and row.occupancy.limiter) for row in table.rows)


def test_occupancy_counts_static_and_dynamic_shared_memory() -> None:
    source = """
    template <int N> __global__ void k(float* x) {
        extern __shared__ float dynamic[];
        __shared__ float fixed[N];
        dynamic[threadIdx.x] = fixed[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = dynamic[0] + fixed[N - 1 - threadIdx.x];
    }
    """
    table = autotune.kernel_occupancy(
        source, "k", {"N": (64,)}, block=64, shared=lambda p: 1000 * p["N"], device="a100"
    )
    (row,) = table.rows
    assert row.resources is not None
    assert row.resources.shared == 64 * 4 + 64 * 1000


def blocks(attributes: str, **changes: Any) -> dict[int, tuple[int, str]]:
    """Resident blocks and the reason of a rejection, by the threads of a block."""
    source = f"__global__ void {attributes} k(float* x) {{ x[threadIdx.x] *= 2; }}"
    sizes = {"block_size_x": (64, 128, 256)}
    table = autotune.kernel_occupancy(source, "k<>", sizes, device="h100", **changes)
    return {
        row.config.integer("block_size_x"): (
            row.occupancy.blocks_per_sm,
            row.rejection.reason if row.rejection else "",
        )
        for row in table.rows
        if row.occupancy
    }


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("__launch_bounds__(128)", {64: (32, ""), 128: (16, ""), 256: (0, "launch bound")}),
        (
            "__block_size__((128, 1, 1))",
            {64: (0, "required block"), 128: (16, ""), 256: (0, "required block")},
        ),
        ("__cluster_dims__(16, 1, 1)", dict.fromkeys((64, 128, 256), (0, "cluster"))),
        ("__cluster_dims__(3, 1, 1)", {64: (32, ""), 128: (16, ""), 256: (8, "")}),
    ],
)
def test_occupancy_is_zero_for_a_refused_launch(
    attributes: str, expected: dict[int, tuple[int, str]]
) -> None:
    assert blocks(attributes) == expected


def test_table_names_clusters() -> None:
    source = "__global__ void __cluster_dims__(2, 1, 1) k(float* x) { x[threadIdx.x] *= 2; }"
    sizes = {"block_size_x": (64, 128)}
    table = autotune.kernel_occupancy(source, "k<>", sizes, device="h100")
    _, headers, *lines = str(table).splitlines()
    place = headers.split().index("cluster")
    assert [line.split()[place] for line in lines] == ["2", "2"]
    plain = autotune.kernel_occupancy(
        source.replace("__cluster_dims__(2, 1, 1)", ""), "k<>", sizes, device="h100"
    )
    assert "cluster" not in str(plain)


def test_occupancy_checks_a_grid_that_is_given() -> None:
    clusters = "__cluster_dims__(2, 1, 1)"
    assert blocks(clusters, grid=3)[64] == (0, "grid")
    assert blocks(clusters, grid=4)[64] == blocks(clusters)[64] == (32, "")


def test_occupancy_of_an_uncompilable_device_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"kernels are compiled for 7\.5 and newer"):
        autotune.kernel_occupancy(**DEFINITION, device="gtx 1080")


# Recordings


def test_recorded_search_is_replayed_without_a_gpu(
    runner: OpenedRunner, tmp_path: Path, cache: Path
) -> None:
    runner.broken = {"t64": Failure("launch", "refused")}
    path = tmp_path / "saxpy.json.gz"
    record = tune(search=Search(recording=path))
    opened = len(runner.works)
    replayed = tune(device=f"replay:{path}", search=Search(effort="exhaustive"))
    assert len(runner.works) == opened
    assert (replayed.evidence, replayed.best.config) == ("replayed", record.best.config)
    assert replayed.provenance.trials == LEGAL
    assert {entry.config.integer("THREADS") for entry in replayed.entries} == {32, 128, 256}
    assert replayed.device == H100
    assert autotune.best_kernel("saxpy", arguments(), device="gpu:1") == record
    few = tune(device=f"replay:{path}", trials=3, parameters={"THREADS": (32, 512), "EACH": (1,)})
    assert [str(entry.config) for entry in few.entries] == ["saxpy:THREADS=32,EACH=1"]
    assert cache.exists()


def test_recording_has_the_energies_of_the_leaders(runner: OpenedRunner, tmp_path: Path) -> None:
    path = tmp_path / "saxpy.json.gz"
    record = tune(search=Search(recording=path, objective="energy"))
    replayed = tune(device=f"replay:{path}", search=Search(effort="exhaustive", objective="energy"))
    assert record.best_energy is not None
    assert replayed.best_energy is not None
    assert replayed.best_energy.config == record.best_energy.config
    assert replayed.best_energy.measurement.energy == record.best_energy.measurement.energy
    assert runner.works


def test_score_may_be_a_function_of_energy(runner: OpenedRunner, tmp_path: Path) -> None:
    record = tune(search=Search(score=lambda r: r.joules * r.time_us, energy=True, trials=4))
    assert len({*runner.metered}) == 4
    assert record.best.score is not None
    path = tmp_path / "saxpy.json.gz"
    tune(search=Search(recording=path, trials=4))  # has trials of its own, without energies
    with pytest.raises(MissingError, match="the recording of 4 configurations has no energies"):
        tune(device=f"replay:{path}", search=Search(score=lambda r: r.joules, energy=True))


def test_recording_of_another_call_is_refused(runner: OpenedRunner, tmp_path: Path) -> None:
    path = tmp_path / "saxpy.json.gz"
    tune(search=Search(recording=path, trials=1))
    other = [*arguments()[:3], np.int32(7)]
    with pytest.raises(UsageError, match=r"is a recording of saxpy\(.*int32=1000\), not of saxpy"):
        tune(device=f"replay:{path}", arguments=other)
    with pytest.raises(NotFoundError, match="no such recording"):
        tune(device=f"replay:{tmp_path / 'none.json.gz'}")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(AutotuneError, match="not a recording of a user kernel"):
        tune(device=f"replay:{path}")
    assert runner.works


def kernel_tuner_cache(path: Path, *, best: int = 256, names: str = "EACH,THREADS") -> str:
    """Writes a cache of Kernel Tuner, fastest with `best` threads; returns its device."""
    keys = names.split(",")
    entries = {
        f"{each},{threads}": dict(zip(keys, (each, threads), strict=True))
        | {"time": each + abs(threads - best)}
        for threads in THREADS
        for each in EACH
    }
    header = {"device_name": "A6000", "kernel_name": "saxpy", "tune_params_keys": keys}
    path.write_text(json.dumps({**header, "cache": entries})[:-2])
    return f"replay:{path}"


def test_cache_of_kernel_tuner_fits_any_arguments(tmp_path: Path) -> None:
    device = kernel_tuner_cache(tmp_path / "cache.json")
    record = tune(device=device)
    assert (record.evidence, record.device) == ("replayed", find("a6000"))
    assert str(record.best.config) == "saxpy:THREADS=256,EACH=1"
    assert record.provenance.trials == LEGAL
    without = tune(device=device, arguments=(), reference=None, source="")
    assert without.best.config == record.best.config


def test_other_file_starts_a_new_search(tmp_path: Path) -> None:
    for best in (128, 32):
        device = kernel_tuner_cache(tmp_path / "cache.json", best=best)
        assert tune(device=device).best.config.integer("THREADS") == best


def test_other_parameters_of_a_cache_are_refused(tmp_path: Path) -> None:
    device = kernel_tuner_cache(tmp_path / "cache.json", names="EACH,block_size_x")
    message = "cache.json has the parameters EACH, block_size_x, saxpy has EACH, THREADS"
    with pytest.raises(UsageError, match=message):
        tune(device=device)
    device = kernel_tuner_cache(tmp_path / "cache.json")
    with pytest.raises(UsageError, match="a replay has no times to record; give a GPU"):
        tune(device=device, search=Search(recording=tmp_path / "mine.json.gz"))
