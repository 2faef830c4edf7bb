"""The pipeline: what is prepared ahead, in which order, and which device measures it."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

import pytest
from support.fake_runner import FakeRunner, by_width, compiled, program, tiled, uncompiled
from support.sample_records import H100, SQUARE
from support.waiting import HANG_S

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import MissingError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.runner import Candidate, Runner
from autotune.model import space
from autotune.problem import Problem
from autotune.tuning import pipeline
from autotune.tuning.pipeline import Compiler, DevicePool, Ready, ahead
from autotune.tuning.trials import Trial

ORDERED = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as ready"])


SLOW = tiled(4)


DEEP = Problem(64, 64, 65536)


SQUARE_PLAN, DEEP_PLAN = (partial(registry.plan, problem=problem) for problem in (SQUARE, DEEP))


SPLIT = next(
    config
    for config in space.feasible(DEEP, H100).configs
    if len(registry.plan(config, DEEP).launches) == 2
)


class Gate:
    """A compiler that holds `SLOW` back until opened, and lists what it compiled."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.built: list[str] = []

    def __call__(self, template: Template, arch: str) -> Program:
        self.built.append(template.label)
        if template.label.startswith("tiled<TILE_WIDTH=4,"):
            assert self.open.wait(HANG_S)
        return program(template, arch)


def test_ordered_candidates_wait_for_earlier_ones() -> None:
    gate = Gate()
    threading.Timer(0.05, gate.open.set).start()
    configs = [SLOW, *(tiled(width) for width in (5, 6, 7))]
    prepared = ahead(
        configs, Compiler(gate, SQUARE_PLAN, FakeRunner(), jobs=2), window=4, ordered=True
    )
    assert [config for config, _ in prepared] == configs


def test_slow_compilation_holds_up_no_ready_candidate() -> None:
    gate = Gate()
    quick = [tiled(width) for width in range(5, 20)]
    prepared = ahead(
        [SLOW, *quick], Compiler(gate, SQUARE_PLAN, FakeRunner(), jobs=2), window=4, ordered=False
    )
    with closing(prepared):
        arrived = [next(prepared)[0] for _ in quick]
        gate.open.set()
        assert [config for config, _ in prepared] == [SLOW]
    assert sorted(arrived) == quick


def test_first_taken_of_several_ready_comes_first() -> None:
    gate = Gate()
    gate.open.set()
    generic = [tiled(width, specialized=0) for width in range(5, 20)]
    # One program makes them all ready at once.
    prepared = ahead(generic, Compiler(gate, SQUARE_PLAN, FakeRunner()), window=8, ordered=False)
    assert [config for config, _ in prepared] == generic


@ORDERED
def test_no_more_are_taken_than_the_window_holds(ordered: bool) -> None:
    drawn: list[Config] = []

    def source() -> Iterator[Config]:
        for width in range(4, 33):
            drawn.append(tiled(width))
            yield drawn[-1]

    prepared = ahead(
        source(), Compiler(compiled, SQUARE_PLAN, FakeRunner()), window=3, ordered=ordered
    )
    with closing(prepared):
        seen = [len(drawn) for _ in zip(range(4), prepared, strict=False)]
    most = [3, 4, 5, 6]
    assert seen == most if ordered else all(map(operator.le, seen, most))


def test_window_is_filled_while_nothing_is_ready() -> None:
    full, drawn = threading.Event(), list[Config]()

    def build(template: Template, arch: str) -> Program:
        assert full.wait(HANG_S)
        return program(template, arch)

    def source() -> Iterator[Config]:
        for width in range(4, 12):
            drawn.append(tiled(width))
            if len(drawn) == 5:
                full.set()
            yield drawn[-1]

    with closing(
        ahead(source(), Compiler(build, SQUARE_PLAN, FakeRunner()), window=5, ordered=False)
    ) as prepared:
        next(prepared)
    assert len(drawn) == 5


def test_few_are_taken_while_several_are_ready() -> None:
    drawn: list[Config] = []
    wave = threading.Event()

    def build(template: Template, arch: str) -> Program:
        assert wave.wait(HANG_S)
        return program(template, arch)

    def source() -> Iterator[Config]:
        for width in range(4, 33):
            drawn.append(tiled(width))
            if len(drawn) == 9:
                wave.set()
            yield drawn[-1]

    compiler = Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=12)
    with closing(compiler), closing(ahead(source(), compiler, ordered=False, first=9)) as prepared:
        next(prepared)
        for slot in [*compiler._programs.values()]:
            slot.result(HANG_S)
        taken = [len(drawn) for _ in zip(range(6), prepared, strict=False)]
    # Nine at first, and none more before at most four of them wait for the device.
    assert taken[:4] == [9, 9, 9, 9]
    assert taken[-1] <= 11


def test_window_grows_while_the_device_waits() -> None:
    drawn: list[Config] = []

    def source() -> Iterator[Config]:
        for width in range(4, 33):
            drawn.append(tiled(width))
            yield drawn[-1]

    def build(template: Template, arch: str) -> Program:
        time.sleep(0.02)
        return program(template, arch)

    compiler = Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=12)
    with closing(compiler), closing(ahead(source(), compiler, ordered=False, first=1)) as prepared:
        under_way = [len(drawn) - place for place, _ in enumerate(prepared)]
    assert under_way[0] == 1
    assert max(under_way) >= 5


def test_window_may_shrink_below_what_waits() -> None:
    wave, spare, widths = threading.Event(), [tiled(40)], range(4, 33)

    def build(template: Template, arch: str) -> Program:
        assert ("TILE_WIDTH", 40) in template.arguments or wave.wait(HANG_S)
        return program(template, arch)

    def all_compiled(configs: Sequence[Config]) -> None:
        deadline = time.monotonic() + HANG_S
        while not all(map(compiler.has_compiled, configs)):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    compiler = Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=12)
    compiler.begin(spare[0])
    all_compiled(spare)
    prepared = ahead(
        map(tiled, widths),
        compiler,
        ordered=False,
        spare=lambda _: spare.pop() if spare else None,
    )
    with closing(compiler), closing(prepared):
        assert next(prepared)[0] == tiled(40)  # the window stays full
        wave.set()
        all_compiled([*map(tiled, widths[:12])])
        assert len([*prepared]) == len(widths)


def test_idle_device_gets_a_spare_candidate() -> None:
    slow, spares = threading.Event(), [tiled(8, specialized=0), tiled(9, specialized=0)]

    def build(template: Template, arch: str) -> Program:
        if ("TILE_WIDTH", 16) in template.arguments:
            assert slow.wait(HANG_S)
        return program(template, arch)

    def spare(fits: Callable[[Config], bool]) -> Config | None:
        fitting = [config for config in spares if fits(config)]
        if not fitting:
            slow.set()
            return None
        spares.remove(fitting[0])
        return fitting[0]

    asked = [tiled(32, specialized=0), tiled(16)]
    with closing(
        ahead(
            asked, Compiler(build, SQUARE_PLAN, FakeRunner()), window=2, ordered=False, spare=spare
        )
    ) as prepared:
        order = [config for config, _ in prepared]
    # The spares share one program, which takes the width as an argument.
    assert order == [asked[0], tiled(8, specialized=0), tiled(9, specialized=0), asked[1]]


@ORDERED
def test_shared_template_is_compiled_once(ordered: bool) -> None:
    gate = Gate()
    generic = [tiled(width, specialized=0) for width in range(5, 33)]
    assert (
        len(
            list(
                ahead(generic, Compiler(gate, SQUARE_PLAN, FakeRunner()), window=4, ordered=ordered)
            )
        )
        == 28
    )
    assert len(gate.built) == 1


def test_templates_compile_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=HANG_S)

    def build(template: Template, arch: str) -> Program:
        both.wait()
        return program(template, arch)

    pair = [tiled(4), tiled(5)]
    prepared = list(
        ahead(pair, Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=2), window=2, ordered=True)
    )
    assert all(isinstance(candidate, Candidate) for _, candidate in prepared)


def test_slow_second_launch_is_awaited() -> None:
    reduced = threading.Event()
    product, second = (launch.template for launch in registry.plan(SPLIT, DEEP).launches)

    def build(template: Template, arch: str) -> Program:
        if template == second:
            assert reduced.wait(HANG_S)
        return program(template, arch)

    prepared = ahead(
        [SPLIT, tiled(16)],
        Compiler(build, DEEP_PLAN, FakeRunner(), jobs=3),
        window=2,
        ordered=False,
    )
    with closing(prepared):
        assert next(prepared)[0] == tiled(16)
        reduced.set()
        config, candidate = next(prepared)
    assert config == SPLIT
    assert isinstance(candidate, Candidate)
    assert [built.template for built in candidate.programs] == [product, second]


@ORDERED
def test_close_drops_queued_compilations(ordered: bool) -> None:
    built: list[str] = []
    queued, closed = threading.Event(), threading.Event()

    def build(template: Template, arch: str) -> Program:
        built.append(template.label)
        assert (closed if len(built) > 1 else queued).wait(HANG_S)
        return program(template, arch)

    def source() -> Iterator[Config]:
        yield from (tiled(width) for width in range(4, 32))
        queued.set()
        yield tiled(32)

    prepared = ahead(
        source(), Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=1), window=29, ordered=ordered
    )
    earlier = set(threading.enumerate())
    with closing(prepared):
        next(prepared)
        (compiler,) = set(threading.enumerate()) - earlier
    closed.set()
    compiler.join(HANG_S)
    assert not compiler.is_alive()
    assert len(built) <= 2


@ORDERED
def test_compile_error_comes_as_a_failure(ordered: bool) -> None:
    def broken(template: Template, arch: str) -> CompileFailure:
        return CompileFailure(template, arch, "error: expected a ;", "log")

    (ready,) = ahead(
        [tiled(4)], Compiler(broken, SQUARE_PLAN, FakeRunner()), window=2, ordered=ordered
    )
    assert ready == (tiled(4), Failure("compile", "error: expected a ;"))


@ORDERED
def test_missing_compiler_raises(ordered: bool) -> None:
    def missing(template: Template, arch: str) -> Program:
        raise MissingError(f"no NVRTC for {template.kernel} on {arch}")

    with pytest.raises(MissingError, match="no NVRTC"):
        list(
            ahead(
                [tiled(4)], Compiler(missing, SQUARE_PLAN, FakeRunner()), window=2, ordered=ordered
            )
        )


@ORDERED
def test_known_resources_are_not_compiled(ordered: bool) -> None:
    runner = FakeRunner(recorded=[tiled(16)])
    (ready,) = ahead(
        [tiled(16)], Compiler(uncompiled, SQUARE_PLAN, runner), window=1, ordered=ordered
    )
    assert isinstance(ready[1], Candidate)


def test_compiler_breakdown_fails_only_the_candidate() -> None:
    def frail(template: Template, arch: str) -> Program:
        if template.label.startswith("tiled<TILE_WIDTH=5,"):
            raise BrokenPipeError("the compiler died\nin many lines")
        return program(template, arch)

    configs = [tiled(width) for width in (4, 5, 6)]
    prepared = ahead(configs, Compiler(frail, SQUARE_PLAN, FakeRunner()), window=2, ordered=True)
    first, bad, last = (candidate for _, candidate in prepared)
    assert bad == Failure("compile", "the compiler broke down: BrokenPipeError: the compiler died")
    assert [type(candidate) for candidate in (first, last)] == [Candidate, Candidate]


def test_begun_programs_are_compiled_once() -> None:
    gate = Gate()
    gate.open.set()
    configs = [tiled(width) for width in (5, 6, 7)]
    with closing(Compiler(gate, SQUARE_PLAN, FakeRunner(), jobs=2)) as compiler:
        for config in configs:
            compiler.begin(config)
        prepared = [*ahead(configs, compiler, ordered=True)]
    assert all(isinstance(candidate, Candidate) for _, candidate in prepared)
    assert len(gate.built) == len(configs)


def test_dropped_programs_compile_when_they_are_asked_for_again() -> None:
    gate = Gate()
    configs = [SLOW, *(tiled(width) for width in (5, 6, 7))]
    with closing(Compiler(gate, SQUARE_PLAN, FakeRunner(), jobs=1)) as compiler:
        compiler.drop([compiler.begin(config) for config in configs])
        gate.open.set()
        (launch,) = SQUARE_PLAN(SLOW).launches
        prepared = [*ahead(configs, compiler, ordered=True)]
    assert all(isinstance(candidate, Candidate) for _, candidate in prepared)
    assert gate.built.count(launch.template.label) == 1


def test_close_ends_running_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    began, stopped = threading.Event(), threading.Event()

    def build(template: Template, arch: str) -> CompileFailure:
        began.set()
        assert stopped.wait(HANG_S)
        return CompileFailure(template, arch, "stopped", "")

    def stop(threads: Collection[int]) -> None:
        assert len(threads) == 1
        stopped.set()

    monkeypatch.setattr(pipeline, "stop_compiling", stop)
    compiler = Compiler(build, SQUARE_PLAN, FakeRunner(), jobs=1)
    slot = compiler.begin(SLOW)
    assert began.wait(HANG_S)
    compiler.close()
    (program,) = slot.programs.values()
    assert isinstance(program.result(HANG_S), CompileFailure)


WIDTHS = range(8, 20)


def ready(config: Config) -> Ready:
    resources = registry.find(config.family).estimate(config, SQUARE)
    return config, Candidate(config, registry.plan(config, SQUARE), (), resources)


CANDIDATES = [ready(tiled(width)) for width in WIDTHS]


FAILED: Ready = tiled(4), Failure("compile", "no")


def measure(runner: Runner, candidate: Candidate) -> Trial:
    return Trial(candidate.config, runner.measure(candidate, None))


def always() -> bool:
    return True


def run_pool(
    runners: Sequence[FakeRunner],
    prepared: Iterable[Ready] = CANDIDATES,
    time_left: Callable[[], bool] = always,
    *,
    ahead: bool = True,
) -> list[Trial]:
    with closing(DevicePool(runners, measure, ahead=ahead)) as pool:
        return [*pool.trials(prepared, time_left)]


class VendorRunner(FakeRunner):
    """A runner whose baseline is ready after some trials and counts how often it is timed."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.timed = after, 0

    @property
    def baseline_ready(self) -> bool:
        return len(self.measured) >= self.after

    def baseline(self) -> Measurement | None:
        self.timed += 1
        return super().baseline()


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_each_candidate_is_measured_once(devices: int, ahead: bool) -> None:
    runners = [FakeRunner() for _ in range(devices)]
    trials = run_pool(runners, ahead=ahead)
    configs = [config for config, _ in CANDIDATES]
    assert sorted(config for runner in runners for config in runner.measured) == configs
    assert sorted(trial.config for trial in trials) == configs


def test_all_devices_are_busy_at_once() -> None:
    # Each waits for the other: a device alone would fail.
    meeting = threading.Barrier(2)

    def meet(config: Config) -> Measurement:
        meeting.wait(HANG_S)
        return by_width(config)

    runners = [FakeRunner(meet), FakeRunner(meet)]
    run_pool(runners)
    assert [len(runner.measured) for runner in runners] == [6, 6]


def test_slow_device_gets_fewer_candidates() -> None:
    done = threading.Event()

    def slow(config: Config) -> Measurement:
        assert done.wait(HANG_S)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield from CANDIDATES
        done.set()

    runners = [FakeRunner(slow), FakeRunner()]
    run_pool(runners, prepared())
    assert [len(runner.measured) for runner in runners] == [1, len(CANDIDATES) - 1]


def test_next_candidate_is_prepared_during_a_measurement() -> None:
    prepared_more = threading.Event()

    def waits(config: Config) -> Measurement:
        assert prepared_more.wait(HANG_S)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield CANDIDATES[0]
        prepared_more.set()
        yield CANDIDATES[1]

    assert len(run_pool([FakeRunner(waits)], prepared())) == 2


def test_without_ahead_next_proposal_waits_for_the_trial() -> None:
    finished: set[Config] = set()
    seen: list[int] = []

    def prepared() -> Iterator[Ready]:
        for candidate in CANDIDATES:
            seen.append(len(finished))
            yield candidate

    with closing(DevicePool([FakeRunner()], measure, ahead=False)) as pool:
        for trial in pool.trials(prepared(), always):
            finished.add(trial.config)
    assert seen == [*range(len(CANDIDATES))]


def test_failed_candidate_needs_no_device() -> None:
    release = threading.Event()

    def waits(config: Config) -> Measurement:
        assert release.wait(HANG_S)
        return by_width(config)

    with closing(DevicePool([FakeRunner(waits)], measure, ahead=True)) as pool:
        trials = pool.trials([CANDIDATES[0], FAILED, CANDIDATES[1]], always)
        first = next(trials)  # while the device is busy
        release.set()
        assert (first.config, first.outcome) == FAILED
        assert [trial.config for trial in trials] == [tiled(8), tiled(9)]


def test_pool_ends_without_dropping_running_trials() -> None:
    runner = FakeRunner()
    trials = run_pool([runner], time_left=lambda: len(runner.measured) < 3)
    assert [trial.config for trial in trials] == runner.measured
    assert len(trials) == 3


def test_every_failure_on_the_device_is_a_trial() -> None:
    trials = run_pool([FakeRunner(lambda _: Failure("launch", "no"))])
    assert len(trials) == len(CANDIDATES)


def test_broken_runner_ends_the_run() -> None:
    def breaks(config: Config) -> Measurement:
        raise RunnerError(f"lost at {config}")

    with pytest.raises(RunnerError, match="lost at tiled"):
        run_pool([FakeRunner(breaks)])


def test_close_waits_for_running_trials() -> None:
    ended: list[Config] = []

    def slow(config: Config) -> Measurement:
        time.sleep(0.05)
        ended.append(config)
        return by_width(config)

    with closing(DevicePool([FakeRunner(slow)], measure, ahead=True)) as pool:
        trials = pool.trials([CANDIDATES[0], FAILED, *CANDIDATES[1:]], always)
        with closing(trials):  # type: ignore[type-var]
            next(trials)
    assert ended == [tiled(8)]


def test_baseline_is_timed_once_it_is_ready() -> None:
    runner = VendorRunner(after=3)
    with closing(DevicePool([runner], measure, ahead=True)) as pool:
        timed = [pool.baseline is not None for _ in pool.trials(CANDIDATES, always)]
    assert timed.index(True) in (2, 3, 4)
    assert (runner.timed, pool.baseline) == (1, Measurement(90.0))


def test_only_the_first_device_times_the_baseline() -> None:
    runners = [VendorRunner(after=0), VendorRunner(after=0)]
    run_pool(runners)
    assert [runner.timed for runner in runners] == [1, 0]


def test_baseline_that_is_never_ready_is_not_awaited() -> None:
    with closing(DevicePool([VendorRunner(after=99)], measure, ahead=True)) as pool:
        assert len([*pool.trials(CANDIDATES, always)]) == len(CANDIDATES)
        assert pool.baseline is None


def test_busy_time_is_the_sum_of_all_devices() -> None:
    def slow(config: Config) -> Measurement:
        time.sleep(0.02)
        return by_width(config)

    runners = [FakeRunner(slow), FakeRunner(slow)]
    with closing(DevicePool(runners, measure, ahead=True)) as pool:
        began = time.monotonic()
        list(pool.trials(CANDIDATES, always))
        took = time.monotonic() - began
    assert 12 * 0.02 <= pool.busy_s <= 2 * took
