"""The contest with Kernel Tuner: the common space, the traces, the final round, the wiring."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_tuner_live as live
import pytest
from kernel_tuner_live import Contest, RestrictedGemm, Step, Trace
from support.fake_runner import ORIGIN, FakeRunner, compiled, crash
from support.sample_recording import FASTEST, PROBLEM, recorded
from support.sample_records import H100
from typer import BadParameter, Typer
from typer.testing import CliRunner

from autotune.cuda.program import CompileFailure, Program
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Launch, Template
from autotune.measure import targets
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.targets import Target
from autotune.model import space

KEPT = ("copy=async", "stages=3", "fragments=2", "bm=64,128", "order=columns", "tm=8", "tn=8")


@cache
def kept(*more: str) -> tuple[Config, ...]:
    return live.common(PROBLEM, H100, live.kept([*KEPT, *more]), 0)


def contest() -> Contest:
    return Contest(PROBLEM, kept(), "gpu", 60.0, "random_sample", "cupy", "random")


def time_of(config: Config) -> Measurement:
    """A time in microseconds, shortest at bk = 16 and wide tiles."""
    return Measurement(50.0 + abs(config.integer("bk") - 16) + 640 / config.integer("bn"), 0.01, 20)


def build(template: Template, arch: str, cache: Path | None) -> Program | CompileFailure:
    """A stand-in for `compiler.compile` that runs no compiler."""
    del cache
    return compiled(template, arch)


def test_contest_has_single_launches_only() -> None:
    plans = [registry.plan(config, PROBLEM) for config in kept()]
    assert {(len(plan.launches), plan.workspace, plan.counters) for plan in plans} == {(1, 0, 0)}


def test_values_of_a_parameter_can_be_restricted() -> None:
    assert {config.integer("bm") for config in kept("bm=64")} == {64}
    with pytest.raises(BadParameter, match="no configuration"):
        kept("bm=7")


def test_number_of_configurations_can_be_limited() -> None:
    drawn = live.common(PROBLEM, H100, live.kept(KEPT), 10)
    assert len({*drawn} & {*kept()}) == 10


def test_our_tuning_searches_the_contest() -> None:
    configs = kept()
    gemm = RestrictedGemm(PROBLEM, "simt", configs)
    candidates = gemm.candidates(FakeRunner(time_of), [configs[3]], ranked=5)
    assert len(candidates.ranked) <= 5
    assert {*candidates.configs} == {*configs} - {configs[3]}


def test_our_trace_has_each_best_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(time_of)
    monkeypatch.setattr(targets, "opened", lambda *_: nullcontext(Target(runner, ORIGIN)))
    monkeypatch.setattr(live, "compile", build)
    rules = contest()
    trace = live.run_autotune(rules, 0, tmp_path)
    times = [step.seen_us for step in trace.steps]
    best_us = min(time_of(config).time_us for config in rules.configs)
    assert times == sorted(times, reverse=True)
    assert (trace.evaluations, times[-1]) == (len(rules.configs), best_us)
    assert trace.chosen is not None
    assert time_of(trace.chosen).time_us == best_us


def test_kernel_tuner_times_are_milliseconds() -> None:
    results = [
        {"bm": 1, "time": 0.5, "timestamp": "1970-01-01 00:01:40.500000+00:00"},
        {"bm": 2, "__error__": "x", "timestamp": "1970-01-01 00:01:41+00:00"},
        {"bm": 3, "time": 0.6, "timestamp": "1970-01-01 00:01:42+00:00"},
        {"bm": 4, "time": 0.25, "timestamp": "1970-01-01 00:01:43+00:00"},
    ]
    steps = live.steps_of(results, lambda result: Config.of("simt", {"bm": result["bm"]}), 100.0)
    first, last = (Config.of("simt", {"bm": bm}) for bm in (1, 4))
    assert steps == [Step(0.5, 1, first, 500.0), Step(3.0, 4, last, 250.0)]


def config(number: int) -> Config:
    return Config.of("simt", {"bm": number})


def trace_of(*numbers: int) -> Trace:
    steps = tuple(
        Step(float(place), 10 * place, config(number), 100.0)
        for place, number in enumerate(numbers, 1)
    )
    return Trace("autotune", 0, 60.0, 99, 1, steps, steps[-1].config)


def test_final_times_decide_when_a_tuner_was_near() -> None:
    times = {config(1): 120.0, config(2): 104.0, config(3): 101.5, config(4): 100.0}
    row = live.row(trace_of(1, 2, 3), times)
    assert row["within"] == {
        "5%": {"seconds": 2.0, "evaluations": 20},
        "2%": {"seconds": 3.0, "evaluations": 30},
    }
    assert row["share"] == 100.0 / 101.5


def test_wrong_result_in_the_final_round_counts_zero() -> None:
    row = live.row(trace_of(1, 2), {config(1): 100.0})
    assert (row["within"]["2%"]["seconds"], row["share"]) == (1.0, 0.0)


def test_final_round_times_bests_and_recorded_fastest(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json.gz"
    recorded().save(path)
    rows = [row for row in Recording.load(path).rows if row.config.family == "simt"]
    failed = next(row.config for row in rows if isinstance(row.outcome, Failure))
    common = [row.config for row in rows if row.config != rows[3].config]
    bests = live.finalists([trace_of(1, 2, 1)], [path], common)
    assert bests[:2] == [config(1), config(2)]
    assert (bests[2], len(bests)) == (FASTEST, 2 + live.RECORDED)
    assert not {failed, rows[3].config} & {*bests}


def test_final_round_times_only_correct_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "compile", build)
    rules = contest()
    wrong, *correct = rules.configs
    runner = FakeRunner(lambda config: crash(config) if config == wrong else time_of(config))
    judged = live.judge(rules, runner, rules.configs, tmp_path)
    assert judged == {config: time_of(config).time_us for config in correct}


def test_results_have_provenance() -> None:
    rules, times = contest(), {config(1): 120.0, config(2): 100.0}
    target = Target(FakeRunner(time_of), ORIGIN)
    content = live.results(rules, target, [trace_of(1, 2)], times, "5eed")
    assert json.loads(json.dumps(content)) == content
    fields = ("device", "driver", "toolkit", "commit", "evidence", "problem")
    assert [content[name] for name in fields] == [
        *(H100.name, "13.0", "NVRTC 13.5", "5eed", "measured", str(PROBLEM))
    ]
    assert content["best"] == {"config": str(config(2)), "us": 100.0}
    assert live.table(content).row_count == 1


@pytest.mark.parametrize(
    "words", [("--sampler", "magic"), ("--strategy", "magic"), ("--backend", "magic")]
)
def test_unknown_tuner_is_a_usage_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    app = Typer()
    app.command()(live.main)
    result = CliRunner().invoke(app, [str(tmp_path), "8x8x8", "--device", "h100", *words])
    assert result.exit_code == 2


# The tests below need Kernel Tuner.


@pytest.fixture
def gpu() -> Any:
    pytest.importorskip("kernel_tuner")

    import kernel_tuner_strategies

    return kernel_tuner_strategies


def test_kernel_tuner_launches_the_same_grid(gpu: Any) -> None:
    configs = kept()
    kernel = gpu.Kernel(PROBLEM, configs)
    for config in configs[::17]:
        instance, launch = gpu.instance(kernel, config), registry.plan(config, PROBLEM).main
        assert (instance.grid, instance.threads, instance.shared) == (
            launch.grid,
            launch.block,
            launch.shared,
        )


def test_source_defines_the_template_arguments(gpu: Any) -> None:
    configs = kept()
    instance = gpu.instance(gpu.Kernel(PROBLEM, configs), configs[0])
    template = registry.plan(configs[0], PROBLEM).main.template
    assert instance.name == "simt<Params>"
    assert instance.source.endswith(template.declaration)


def test_kernel_tuner_sees_exactly_the_contest(gpu: Any) -> None:
    configs = kept()
    assert gpu.size_of(gpu.Kernel(PROBLEM, configs)) == len(configs)


def test_varying_arguments_follow_the_parameters(gpu: Any) -> None:
    configs = kept()
    kernel = gpu.Kernel(PROBLEM, configs)
    arguments = kernel.arguments({"a": "A", "b": "B", "c": "C"})
    for config in configs[::17]:
        params = dict(zip(kernel.grid.values, kernel.grid.points[config], strict=True))
        chosen = [argument(params) if callable(argument) else argument for argument in arguments]
        assert chosen[:3] == ["A", "B", "C"]
        launch = registry.plan(config, PROBLEM).main
        schedule = [name for name, _ in launch.struct("SimtSchedule").members]
        group = len(launch.struct("Call").members) + schedule.index("group")
        assert chosen[group] == config.integer("group")


def members(launch: Launch) -> dict[str, str]:
    """The members of `Params` of a launch, as they are declared."""
    return dict(re.findall(r"(\w+) = ([\w:]+);", launch.template.declaration))


class FakeCupy:
    """The part of CuPy that Kernel Tuner's backend uses; a launch takes `time_of` its config."""

    def __init__(self, fails: Callable[[Config], bool]) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self._fails = fails
        cupy = self

        class Function:
            num_regs = 64
            max_dynamic_shared_size_bytes = 49152

            def __init__(self, constants: dict[str, str]) -> None:
                self.constants = constants

            def __call__(
                self, grid: Any, threads: Any, arguments: Any, *, stream: Any, shared_mem: int
            ) -> None:
                del stream
                if shared_mem > self.max_dynamic_shared_size_bytes:
                    raise RuntimeError("CUDA_ERROR_INVALID_VALUE")
                if cupy._fails(cupy.config(self.constants)):
                    raise RuntimeError("too many resources requested for launch")
                cupy.launched.append((self.constants, grid, threads, arguments, shared_mem))

        class RawModule:
            def __init__(self, code: str, options: Any, name_expressions: list[str]) -> None:
                assert any("std=c++17" in option for option in options)
                assert name_expressions == ["simt<Params>"]
                declared = code.partition("struct Params {")[2]
                self._constants = dict(re.findall(r"(\w+) = ([\w:]+);", declared))

            def get_function(self, _name: str) -> Function:
                return Function(self._constants)

        event = SimpleNamespace(record=lambda stream: stream, done=True)
        device = SimpleNamespace(
            use=lambda: None,
            synchronize=lambda: None,
            attributes={"MaxThreadsPerBlock": 1024},
            compute_capability="90",
        )
        self.RawModule, self.array, self.ndarray = RawModule, list, list
        self.cuda = SimpleNamespace(
            Device=lambda _: device,
            Stream=lambda: None,
            Event=lambda: event,
            get_elapsed_time=lambda *_: self.last_ms(),
            runtime=SimpleNamespace(
                driverGetVersion=lambda: 13000, getDeviceProperties=lambda _: {"uuid": b"." * 16}
            ),
        )

    def config(self, constants: dict[str, str]) -> Config:
        return Config.of("simt", {"bk": int(constants["BK"]), "bn": int(constants["BN"])})

    def last_ms(self) -> float:
        return time_of(self.config(self.launched[-1][0])).time_us / 1e3


def test_kernel_tuner_searches_on_a_fake_gpu(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_tuner.backends import cupy as backend
    from kernel_tuner.observers import cupy as observer

    del gpu
    fake = FakeCupy(lambda config: config.integer("bk") == 8)
    runtime_info = "Device 0 Name : H100\nDevice 0 PCI Bus ID : 0\n"
    monkeypatch.setattr(backend, "cp", fake)
    monkeypatch.setattr(backend, "get_runtime_info", lambda: runtime_info, raising=False)
    monkeypatch.setattr(observer, "cp", fake)
    rules = replace(contest(), strategy="adaptive_tabu_greywolf", budget_s=2.0)
    trace = live.run_kernel_tuner(rules, 0, tmp_path)
    best_us = min(time_of(config).time_us for config in rules.configs)
    assert not trace.broken
    assert trace.steps[-1].seen_us == pytest.approx(best_us)
    assert trace.evaluations <= len(rules.configs)
    assert trace.failures > 0
    assert trace.chosen in rules.configs
    constants, grid, threads, arguments, shared = fake.launched[-1]
    launches = [registry.plan(config, PROBLEM).main for config in rules.configs]
    matching = [launch for launch in launches if members(launch) == constants]
    assert (grid, threads, shared) in {
        (launch.grid, launch.block, launch.shared) for launch in matching
    }
    assert len(arguments) == len(matching[0].cells)


def test_interrupted_contest_keeps_its_trace(gpu: Any, tmp_path: Path) -> None:
    del gpu
    trace = live.run_kernel_tuner(contest(), 0, tmp_path)  # without CuPy or without a GPU
    assert trace.broken
    assert (trace.evaluations, trace.chosen) == (0, None)


def test_rehearsal_needs_no_gpu(gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu.Instance, "compile", lambda *_: b"code")
    monkeypatch.setattr(live, "compile", build)
    legal = space.Space(kept())
    monkeypatch.setattr(space, "feasible", lambda *_: legal)
    app = Typer()
    app.command()(live.main)
    words = [str(tmp_path), PROBLEM.shape, "--device", "h100", "--dry-run"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"sees {len(legal.configs)} configurations" in " ".join(result.output.split())
