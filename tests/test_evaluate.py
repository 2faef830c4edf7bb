from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from time import sleep

import pytest
from fakes import FakeRunner, by_width, compiled, crash, program, tiled, uncompiled
from records import H100, SQUARE

from autotune.compiler import CompileFailure, Program
from autotune.config import Config
from autotune.evaluate import Trial, ahead, prepare
from autotune.plan import Template
from autotune.runner import Candidate, Failure, Measurement

SPLIT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=32,tm=4,tn=4,bk=8,split_k=2,group=1,copy=staged,stages=2,"
    "fragments=1,min_blocks=1,order=rows"
)


def candidate(config: Config) -> Candidate:
    prepared = prepare(config, SQUARE, FakeRunner(), compiled)
    assert isinstance(prepared, Candidate)
    return prepared


def test_resources_are_the_compilers_with_static_and_dynamic_shared_memory_together() -> None:
    taken = candidate(tiled(16)).resources
    assert (taken.threads, taken.registers, taken.shared) == (256, 32, 16 + 2 * 16 * 16 * 4)


def test_every_launch_gets_its_program() -> None:
    two = candidate(SPLIT)
    templates = [launch.template for launch in two.plan.launches]
    assert [one.template for one in two.programs] == templates
    assert len(templates) == 2


def test_known_resources_need_no_compiler() -> None:
    runner = FakeRunner(known=[tiled(16)])
    assert isinstance(prepare(tiled(16), SQUARE, runner, uncompiled), Candidate)


def test_a_compile_error_is_a_failure() -> None:
    def broken(template: Template, arch: str) -> CompileFailure:
        return CompileFailure(template, arch, "tiled.cu(7): error: expected a ;", "log")

    failure = prepare(tiled(16), SQUARE, FakeRunner(), broken)
    assert failure == Failure("compile", "tiled.cu(7): error: expected a ;")


@pytest.mark.parametrize("taken", [{"spills": 48}, {"local": 48}])
def test_spills_and_local_memory_reject_with_the_numbers(taken: dict[str, int]) -> None:
    failure = prepare(tiled(16), SQUARE, FakeRunner(), lambda t, a: program(t, a, **taken))
    assert isinstance(failure, Failure)
    assert failure.stage == "resources"
    assert "48 bytes" in failure.reason


def test_a_block_that_no_sm_holds_is_rejected_with_the_numbers() -> None:
    failure = prepare(tiled(32), SQUARE, FakeRunner(), lambda t, a: program(t, a, registers=80))
    assert isinstance(failure, Failure)
    assert "1024 threads of 80 registers" in failure.reason
    assert "limited by registers" in failure.reason


def trial(outcome: Measurement | Failure) -> Trial:
    taken = candidate(tiled(16))
    return Trial.of(taken.config, taken.resources, outcome, H100)


def test_the_trial_of_a_measurement_can_be_recorded() -> None:
    # 256 threads of 32 registers: 8 blocks of 8 warps fill the 64 warps of an SM.
    entry = trial(by_width(tiled(16))).entry
    assert entry is not None
    assert (entry.occupancy, entry.limiter) == (1.0, "warps and registers")


def test_the_trial_of_a_failure_cannot() -> None:
    assert trial(crash(tiled(16))).entry is None


def slow_first(template: Template, arch: str) -> Program:
    sleep(0.05 if "4" in template.expression else 0)
    return program(template, arch)


def test_candidates_come_in_order_however_long_they_compile() -> None:
    configs = [tiled(width) for width in (4, 5, 6, 7)]
    came = [config for config, _ in ahead(configs, SQUARE, FakeRunner(), slow_first, window=4)]
    assert came == configs


def test_no_more_are_taken_than_the_window_holds() -> None:
    taken: list[Config] = []

    def source() -> Iterator[Config]:
        for width in range(4, 33):
            taken.append(tiled(width))
            yield taken[-1]

    with closing(ahead(source(), SQUARE, FakeRunner(), compiled, window=3)) as prepared:
        seen = [len(taken) for _ in zip(range(4), prepared, strict=False)]
    assert seen == [3, 4, 5, 6]


def test_a_shared_template_is_compiled_once() -> None:
    built: list[str] = []

    def build(template: Template, arch: str) -> Program:
        built.append(template.expression)
        return program(template, arch)

    generic = [tiled(width, specialized=0) for width in range(4, 33)]
    assert len(list(ahead(generic, SQUARE, FakeRunner(), build, window=4))) == 29
    assert len(built) == 1


def test_templates_compile_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def build(template: Template, arch: str) -> Program:
        both.wait()
        return program(template, arch)

    pair = [tiled(4), tiled(5)]
    prepared = list(ahead(pair, SQUARE, FakeRunner(), build, window=2, jobs=2))
    assert all(isinstance(one, Candidate) for _, one in prepared)


def test_closing_drops_what_is_queued() -> None:
    built: list[str] = []

    def build(template: Template, arch: str) -> Program:
        sleep(0.02)
        built.append(template.expression)
        return program(template, arch)

    configs = [tiled(width) for width in range(4, 33)]
    with closing(ahead(configs, SQUARE, FakeRunner(), build, window=29, jobs=1)) as prepared:
        next(prepared)
    sleep(0.1)
    assert len(built) <= 2


def test_what_the_compiler_raises_reaches_the_caller() -> None:
    with pytest.raises(AssertionError, match="was compiled"):
        list(ahead([tiled(4)], SQUARE, FakeRunner(), uncompiled, window=2))


def test_a_failure_has_no_time() -> None:
    assert Trial(tiled(4), crash(tiled(4))).time_us > Measurement(1e30).time_us
