"""The exported C library launches what the Python run time launches, argument for argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support import exported_library
from support.exported_library import SHARED, WORKSPACE, Built, Call, Outcome, counter_bytes
from support.launch_recorder import general_of, launched_by_python
from support.sample_records import H100

from autotune.device import Device, find
from autotune.export import ExportedLibrary, gather
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment, TensorMap
from autotune.lookup.answer import Answer
from autotune.problem import Problem

SMALL = Problem(64, 48, 40)


@pytest.fixture(scope="module")
def library() -> ExportedLibrary:
    return exported_library.library_of(exported_library.tuned())


@pytest.fixture(scope="module")
def built(library: ExportedLibrary, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return exported_library.built(
        tmp_path_factory.mktemp("export"), library, "-O1", "-fsanitize=address,undefined"
    )


def exact_calls() -> list[Call]:
    """One for each exported problem, without gaps or with rows that are vectors longer."""
    calls = []
    for number, problem in enumerate(exported_library.tuned()):
        call = Call(problem, stream=number, alpha=0.5, beta=float(number % 2))
        if number % 4 == 1:
            a, b, c = problem.leading_dimensions
            call = replace(call, leading=(a + 8 * (number % 3), b + 8, c + 16))
        if problem.batch > 1 and number % 2:
            call = replace(call, strides=(SHARED, 0, 0))
        calls.append(call)
    return calls


def other_calls() -> list[Call]:
    """Of the kinds that were exported, with other sizes or operands that allow fewer vectors."""
    kinds = {
        (one.compute, one.layout, one.epilogue, one.output): one
        for one in exported_library.tuned()
        if min(vars(Alignment.dense(one)).values()) >= 4
    }
    calls = []
    for number, kind in enumerate(kinds.values()):
        m, n, k = 8 * number + 8, 64 - number % 7, 8 * (number % 5) + 1
        calls.append(Call(replace(kind, m=m, n=n, k=k, batch=1 + number % 3), beta=1.5))
        calls.append(Call(replace(kind, m=128, n=256, k=64, batch=2)))
        dense = replace(kind, m=16, n=40, k=24, batch=2)
        a, b, c = dense.leading_dimensions
        calls.append(Call(dense, leading=(a + 1, b, c + 3), strides=(0, SHARED, 16 * (c + 3) + 1)))
        size = kind.element_bytes
        calls.append(Call(kind, a=exported_library.A + size, b=exported_library.B + 3 * size))
    return calls


def made(built: Built, calls: Sequence[Call]) -> list[Outcome]:
    status, outcomes = built.run([call.line() for call in calls])
    assert (status, len(outcomes)) == (0, len(calls))
    return outcomes


def test_exported_shapes_launch_what_python_launches(
    built: Built, library: ExportedLibrary
) -> None:
    plans = {one.problem: one.plan for one in library.products}
    calls = exact_calls()
    assert len(calls) > 150
    for call, outcome in zip(calls, made(built, calls), strict=True):
        plan = plans[call.problem]
        expected = launched_by_python(library, call, plan.config, plan)
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_other_shapes_launch_the_general_kernel_as_python_does(
    built: Built, library: ExportedLibrary
) -> None:
    calls = other_calls()
    assert len(calls) > 80
    for call, outcome in zip(calls, made(built, calls), strict=True):
        general = general_of(library, call)
        expected = launched_by_python(library, call, general.config, general.plan(call.problem))
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_the_tuned_plans_cover_copies_counters_batches_and_tensor_maps(
    library: ExportedLibrary,
) -> None:
    plans = [one.plan for one in library.products]
    maps = [
        argument
        for plan in plans
        for launch in plan.launches
        for argument in launch.arguments
        if isinstance(argument.value, TensorMap)
    ]
    assert len(maps) > 100
    assert sum(len(plan.launches) > 1 for plan in plans) > 20
    assert sum(plan.counters > 0 for plan in plans) > 20
    assert sum(one.problem.batch > 1 for one in library.products) > 20


def test_the_choice_names_the_configuration_and_the_workspace(
    built: Built, library: ExportedLibrary
) -> None:
    lines = [Call(one.problem, a=0, b=0, c=0).line("choose") for one in library.products]
    _, outcomes = built.run(lines)
    start = counter_bytes(library)
    expected = []
    for one in library.products:
        plan = one.plan
        needed = start + plan.workspace if plan.workspace or plan.counters else 0
        expected.append(f"choice 1 {needed} {len(plan.launches)} exact {plan.config};{H100.name}")
    assert [outcome.lines[-1] for outcome in outcomes] == expected


def test_an_unknown_shape_is_said_to_run_the_general_kernel(built: Built) -> None:
    outcome = built.call(Call(SMALL), "choose")
    assert outcome.lines[-1].startswith("choice 0 0 1 general simt:bm=64,")


@cache
def _counted() -> Problem:
    """A problem that needs a workspace with counters."""
    plans = ((one, registry.plan(config, one)) for one, config in exported_library.tuned().items())
    return next(one for one, plan in plans if plan.counters and plan.workspace)


def test_a_new_workspace_has_its_counters_zeroed(built: Built, library: ExportedLibrary) -> None:
    outcome = built.call(Call(_counted(), stream=9), "prepare")
    words = counter_bytes(library) // 4
    assert (outcome.status, outcome.lines) == (0, (f"memset {WORKSPACE} 0 {words} 0x9",))


def test_a_warm_library_loads_nothing_more(built: Built, library: ExportedLibrary) -> None:
    _, (warm, *others) = built.run([Call(SMALL).line("warm"), *(c.line() for c in exact_calls())])
    assert (warm.status, warm.count("load")) == (0, len(library.programs))
    assert [one.count("load") + one.count("shared") for one in others] == [0] * len(others)


def test_a_kernel_is_allowed_the_most_shared_memory_that_a_launch_asks_for(
    built: Built, library: ExportedLibrary
) -> None:
    most: dict[str, int] = {}
    for launch, program in library.launches:
        most[program.symbol] = max(most.get(program.symbol, 0), launch.shared)
    outcome = built.call(Call(SMALL), "warm")
    allowed = [line.split(" ") for line in outcome.lines if line.startswith("shared ")]
    assert {symbol: int(bytes_) for _, symbol, bytes_, _ in allowed} == most


def test_threads_that_start_together_load_a_kernel_once(tmp_path: Path) -> None:
    few = exported_library.library_of({SMALL: exported_library.tuned()[Problem(1024, 1024, 1024)]})
    race = exported_library.built(tmp_path, few, "-g", "-O1", "-fsanitize=thread")
    status, (outcome,) = race.run([Call(SMALL).line()], ["race"])
    if any("unexpected memory mapping" in line for line in outcome.lines):
        pytest.skip("the thread sanitizer does not run with this kernel's address layout")
    assert (status, outcome.count("load"), outcome.count("launch")) == (0, 1, 8 * 200)


def test_another_card_of_the_architecture_is_served(built: Built) -> None:
    problem = next(iter(exported_library.tuned()))
    other = built.call(Call(problem), "choose", FAKE_CUDA_DEVICE="NVIDIA H200;9;0;132")
    assert other.lines[-1].startswith("choice 1 ")


def test_the_device_of_that_name_comes_first(tmp_path: Path) -> None:
    naive, other = (
        Config.of("naive", {"mapping": mapping, "block": 16})
        for mapping in ("coalesced", "uncoalesced")
    )
    cards = [replace(H100, name="NVIDIA H100 PCIe", sms=114), H100, replace(H100, name="Z", sms=78)]

    def answer(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(problem, device, naive if device == H100 else other)

    library = gather("lib", [SMALL], cards, answer, exported_library.fake_build)
    case = exported_library.built(tmp_path, library)
    named = case.call(Call(SMALL), "choose")
    near = case.call(Call(SMALL), "choose", FAKE_CUDA_DEVICE="NVIDIA GH200;9;0;80")
    assert [one.lines[-1].rpartition(";")[2] for one in (named, near)] == [H100.name, "Z"]


def test_each_architecture_has_kernels_of_its_own(tmp_path: Path) -> None:
    config = Config.of("naive", {"mapping": "coalesced", "block": 16})
    library = exported_library.library_of({SMALL: config}, [H100, find("a100")])
    case = exported_library.built(tmp_path, library)
    cards = {"sm_90": "NVIDIA H100 PCIe;9;0;114", "sm_80": "NVIDIA A100-SXM4-40GB;8;0;108"}
    own = {
        one.device.arch: [program.symbol for program in one.programs] for one in library.products
    }
    launched = {
        arch: [one.symbol for one in case.call(Call(SMALL), FAKE_CUDA_DEVICE=card).launches]
        for arch, card in cards.items()
    }
    assert launched == own
    assert own["sm_90"] != own["sm_80"]


def test_a_product_needs_no_more_than_the_size_that_was_asked(built: Built) -> None:
    _, (size, enough, small) = built.run(
        [
            Call(_counted()).line("size"),
            *(
                Call(_counted(), bytes=bytes_).line()
                for bytes_ in (_needed(built), _needed(built) - 1)
            ),
        ]
    )
    assert size.lines == (f"bytes {_needed(built)}",)
    assert (enough.status, small.message) == (0, "the workspace is smaller than lib_workspace_size")


def _needed(built: Built) -> int:
    plan = registry.plan(exported_library.tuned()[_counted()], _counted())
    return counter_bytes(built.library) + plan.workspace
