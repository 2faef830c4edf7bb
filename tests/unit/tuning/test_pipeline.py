"""The compile pipeline: what is prepared ahead, and in which order it comes out."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from functools import partial

import pytest
from support.fake_runner import FakeRunner, compiled, program, tiled, uncompiled
from support.sample_records import H100, SQUARE
from support.waiting import HANG_S

from autotune.candidates import space
from autotune.compiler import CompileFailure, Program
from autotune.errors import MissingError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure
from autotune.tuning import pipeline
from autotune.tuning.pipeline import Compiler, ahead

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
