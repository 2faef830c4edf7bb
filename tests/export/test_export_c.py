"""The exported C library launches what the Python runtime launches, argument for argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support import exported_library
from support.exported_library import SHARED, WORKSPACE, Built, Call, Outcome, counter_bytes
from support.general_kernels import plan_of
from support.launch_recorder import general_of, launched_by_python
from support.sample_records import H100

from autotune.device import Device, find
from autotune.export import ExportedLibrary, gather
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment, TensorMap
from autotune.lookup.answer import Answer
from autotune.model.space import feasible
from autotune.problem import Problem

SMALL = Problem(64, 48, 40)


@pytest.fixture(scope="module")
def library() -> ExportedLibrary:
    return exported_library.with_scaled(exported_library.library_of(exported_library.tuned()))


@pytest.fixture(scope="module")
def built(library: ExportedLibrary, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return exported_library.built(
        tmp_path_factory.mktemp("export"), library, "-O1", "-fsanitize=address,undefined"
    )


def exact_calls() -> list[Call]:
    """A call for each exported problem, without gaps or with rows padded by whole vectors."""
    calls = []
    for number, problem in enumerate(exported_library.tuned()):
        dependent = number % 3 == 0
        call = Call(problem, stream=number, dependent=dependent, alpha=0.5, beta=float(number % 2))
        if number % 4 == 1:
            a, b, c = problem.leading_dimensions
            call = replace(call, leading=(a + 8 * (number % 3), b + 8, c + 16))
        if problem.batch > 1 and number % 2:
            call = replace(call, strides=(SHARED, 0, 0))
        calls.append(call)
    return calls


def other_calls() -> list[Call]:
    """Calls of the exported kinds with other sizes, or with operands of less alignment."""
    kinds = {
        (problem.compute, problem.layout, problem.epilogue, problem.output): problem
        for problem in exported_library.tuned()
        if min(vars(Alignment.dense(problem)).values()) >= 4
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


def matmul_outcomes(built: Built, calls: Sequence[Call]) -> list[Outcome]:
    status, outcomes = built.run([call.line() for call in calls])
    assert (status, len(outcomes)) == (0, len(calls))
    return outcomes


def test_exported_shapes_launch_what_python_launches(
    built: Built, library: ExportedLibrary
) -> None:
    plans = {gemm.problem: gemm.plan for gemm in library.gemms}
    calls = exact_calls()
    assert len(calls) > 150
    for call, outcome in zip(calls, matmul_outcomes(built, calls), strict=True):
        plan = plans[call.problem]
        expected = launched_by_python(library, call, plan.config, plan)
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_other_shapes_launch_the_general_kernel_like_python(
    built: Built, library: ExportedLibrary
) -> None:
    calls = other_calls()
    assert len(calls) > 80
    for call, outcome in zip(calls, matmul_outcomes(built, calls), strict=True):
        general = general_of(library, call)
        expected = launched_by_python(library, call, general.config, plan_of(general, call.problem))
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_operands_of_8_bits_launch_what_python_launches(
    built: Built, library: ExportedLibrary
) -> None:
    plans = {gemm.problem: gemm.plan for gemm in library.gemms}
    calls = []
    for problem in exported_library.SCALED:
        factors = (0.5, 2.0) if problem.has_factors else (1.0, 0.0)
        calls.append(Call(problem, alpha=factors[0], beta=factors[1]))
    calls += [
        Call(ADDED, residual_steps=steps, leading=(0, 0, 56)) for steps in ((64, 0), (0, SHARED))
    ]
    calls.append(Call(GATED, leading=(0, 0, 24)))
    for call, outcome in zip(calls, matmul_outcomes(built, calls), strict=True):
        plan = plans[call.problem]
        expected = launched_by_python(library, call, plan.config, plan)
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_wgmma_kernels_of_8_bits_launch_what_python_launches(tmp_path: Path) -> None:
    problems = (
        Problem(4096, 4096, 4096, "f8", "nt", scale="row"),
        Problem(16, 4096, 4096, "f8", "nt", scale="block"),
        Problem(64, 512, 1024, "f8e5", "nn", e5m2="b", scale="tensor"),
        Problem(64, 512, 1024, "i8", "nt", output="i32"),
        Problem(64, 512, 1024, "f8", "nt", epilogue="bias_silu", output="e4m3"),
        Problem(64, 512, 1024, "f8e5", "nt", epilogue="swiglu", output="e5m2"),
        Problem(64, 512, 1024, "bf16", "nt", epilogue="residual"),
        Problem(64, 512, 1024, "bf16", "nt", epilogue="swiglu"),
    )
    configs = {problem: feasible(problem, H100, "wgmma").configs[0] for problem in problems}
    library = exported_library.library_of(configs)
    program = exported_library.built(tmp_path, library)
    for gemm in library.gemms:
        of_result = (1 << 51, (1 << 51) + 4) if gemm.problem.has_fp8_output else (0, 0)
        call = Call(gemm.problem, of_result=of_result)
        expected = launched_by_python(library, call, gemm.plan.config, gemm.plan)
        outcome = program.call(call)
        assert (outcome.status, outcome.launches) == (0, expected), call


def test_default_output_of_8_bits_has_two_names(built: Built) -> None:
    problem = Problem(64, 48, 256, "f8", "nt")
    same, named = (built.call(Call(problem, changed={"output": code})) for code in (0, 3))
    assert (named.status, named.launches) == (0, same.launches)


ROW = Problem(64, 48, 256, "i8", "nt", scale="row")
SUMS = Problem(64, 48, 256, "i8", "nt", output="i32")
PLAIN = Problem(64, 48, 256, "f8", "nt")
ADDED = Problem(64, 48, 256, "f8", "nt", 2, "bias_residual")
GATED = Problem(64, 48, 256, "f8", "nt", 2, "swiglu")


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        (Call(ROW, scales=(0, 1 << 52)), 24, "the product has scales, and scale_a or scale_b is"),
        (Call(ROW, scales=(1 << 52, 0)), 24, "the product has scales, and scale_a or scale_b is"),
        (Call(PLAIN, scales=(1 << 52, 0)), 25, "a scale was given, and the product has none"),
        (Call(PLAIN, of_result=(1 << 52, 0)), 25, "a scale was given, and the product has none"),
        (Call(PLAIN, of_result=(0, 1 << 52)), 25, "a scale was given, and the product has none"),
        (Call(ADDED, changed={"output": 5}), 2, "no such compute, layout, epilogue, output"),
        (Call(ROW, changed={"output": 6}), 2, "no such compute, layout, epilogue, output"),
        (Call(ADDED, residual=0), 27, "the epilogue has a residual, and none was given"),
        (Call(ROW, residual=1 << 52), 28, "a residual was given, and the epilogue has none"),
        (Call(ADDED, residual=(1 << 52) + 1), 4, "A, B, C, the bias, a scale or the residual"),
        (Call(ADDED, residual=exported_library.C + 2), 9, "C shares elements with A, B,"),
        (Call(ADDED, residual_steps=(47, 0)), 5, "a leading dimension is shorter than a row"),
        (Call(ADDED, residual_steps=(0, -2)), 6, "a stride is negative"),
        *((Call(SMALL, changed={"epilogue": code}), 2, "no such compute") for code in (10, 12)),
        (Call(GATED, leading=(0, 0, 23)), 5, "a leading dimension is shorter than a row"),
        (Call(GATED, changed={"n": 40}), 29, "n is not a multiple of 16"),
        (Call(GATED, residual=1 << 52), 28, "a residual was given, and the epilogue has none"),
        (Call(GATED, alpha=2.0), 26, "a product in int32 or of gates takes an alpha of 1"),
        (Call(GATED, beta=1.0), 26, "a product in int32 or of gates takes an alpha of 1"),
        (
            Call(SUMS, alpha=2.0),
            26,
            "a product in int32 or of gates takes an alpha of 1 and a beta",
        ),
        (Call(SUMS, beta=1.0), 26, "a product in int32 or of gates takes an alpha of 1 and a beta"),
        (
            Call(ROW, scales=((1 << 52) + 2, 1 << 52)),
            4,
            "A, B, C, the bias, a scale or the residual",
        ),
        (Call(ROW, scales=(exported_library.C - 4, 1 << 52)), 9, "C shares elements with A, B,"),
        (Call(ROW, changed={"scale": 3}), 2, "no such compute, layout, epilogue, output, scale"),
        (Call(ROW, changed={"scale": 4}), 2, "no such compute, layout"),
        (Call(ROW, changed={"accumulate": 1}), 2, "no such compute, layout"),
        (Call(PLAIN, changed={"e5m2": 1}), 2, "no such compute, layout"),
        (Call(PLAIN, changed={"output": 4}), 2, "no such compute, layout"),
        (Call(SMALL, changed={"scale": 1}), 2, "no such compute, layout"),
        (Call(PLAIN, changed={"m": 63}), 17, "nothing was exported for products of this kind"),
    ],
)
def test_wrong_scales_and_words_are_refused(
    built: Built, call: Call, status: int, message: str
) -> None:
    outcome = built.call(call)
    assert (outcome.status, outcome.launches) == (status, [])
    assert outcome.message.startswith(message)


@pytest.mark.parametrize(("version", "dependent"), [("12020", False), ("12030", True)])
def test_followers_are_dependent_since_graphs_capture_that(
    built: Built, library: ExportedLibrary, version: str, dependent: bool
) -> None:
    gemm = next(gemm for gemm in library.gemms if len(gemm.plan.launches) == 2)
    outcome = built.call(Call(gemm.problem), FAKE_CUDA_VERSION=version)
    assert [launch.dependent for launch in outcome.launches] == [False, dependent]


def test_tuned_plans_cover_every_kind_of_launch(
    library: ExportedLibrary,
) -> None:
    plans = [gemm.plan for gemm in library.gemms]
    maps = [
        argument
        for plan in plans
        for launch in plan.launches
        for argument in launch.arguments
        if isinstance(argument.value, TensorMap)
    ]
    assert len(maps) > 100
    assert sum(len(plan.launches) > 1 for plan in plans) > 10
    assert sum(plan.counters > 0 for plan in plans) > 10
    assert sum(gemm.problem.batch > 1 for gemm in library.gemms) > 10


def test_choose_names_the_configuration_and_workspace(
    built: Built, library: ExportedLibrary
) -> None:
    lines = [Call(gemm.problem, a=0, b=0, c=0).line("choose") for gemm in library.gemms]
    _, outcomes = built.run(lines)
    start = counter_bytes(library)
    expected = []
    for gemm in library.gemms:
        plan = gemm.plan
        needed = start + plan.workspace if plan.workspace or plan.counters else 0
        expected.append(f"choice 1 {needed} {len(plan.launches)} exact {plan.config};{H100.name}")
    assert [outcome.lines[-1] for outcome in outcomes] == expected


def test_choose_names_the_general_kernel_for_other_shapes(built: Built) -> None:
    outcome = built.call(Call(SMALL), "choose")
    assert outcome.lines[-1].startswith("choice 0 0 1 general simt:bm=64,")


@cache
def _counted() -> Problem:
    """A problem that needs a workspace with counters."""
    plans = (
        (problem, registry.plan(config, problem))
        for problem, config in exported_library.tuned().items()
    )
    return next(problem for problem, plan in plans if plan.counters and plan.workspace)


def test_prepare_workspace_zeroes_the_counters(built: Built, library: ExportedLibrary) -> None:
    outcome = built.call(Call(_counted(), stream=9), "prepare")
    words = counter_bytes(library) // 4
    assert (outcome.status, outcome.lines) == (0, (f"memset {WORKSPACE} 0 {words} 0x9",))


def test_warm_library_loads_nothing_more(built: Built, library: ExportedLibrary) -> None:
    _, (warm, *outcomes) = built.run([Call(SMALL).line("warm"), *(c.line() for c in exact_calls())])
    assert (warm.status, warm.count("load")) == (0, len(library.programs))
    assert [outcome.count("load") + outcome.count("shared") for outcome in outcomes] == [0] * len(
        outcomes
    )


def test_kernel_is_allowed_the_shared_memory_of_every_launch(
    built: Built, library: ExportedLibrary
) -> None:
    most: dict[str, int] = {}
    for launch, program in library.launches:
        most[program.symbol] = max(most.get(program.symbol, 0), launch.shared)
    outcome = built.call(Call(SMALL), "warm")
    allowed = [line.split(" ") for line in outcome.lines if line.startswith("shared ")]
    assert {symbol: int(bytes_) for _, symbol, bytes_, _ in allowed} == most


def test_concurrent_threads_load_a_kernel_once(tmp_path: Path) -> None:
    few = exported_library.library_of({SMALL: exported_library.tuned()[Problem(1024, 1024, 1024)]})
    race = exported_library.built(tmp_path, few, "-g", "-O1", "-fsanitize=thread")
    status, (outcome,) = race.run([Call(SMALL).line()], ["race"])
    if any("unexpected memory mapping" in line for line in outcome.lines):
        pytest.skip("the thread sanitizer does not run with this kernel's address layout")
    assert (status, outcome.count("load"), outcome.count("launch")) == (0, 1, 8 * 200)


def test_gpu_of_equal_compute_capability_runs_the_kernels(built: Built) -> None:
    problem = next(iter(exported_library.tuned()))
    h200 = built.call(Call(problem), "choose", FAKE_CUDA_DEVICE="NVIDIA H200;9;0;132")
    assert h200.lines[-1].startswith("choice 1 ")


def test_device_of_the_same_name_is_preferred(tmp_path: Path) -> None:
    coalesced, uncoalesced = (
        Config.of("naive", {"mapping": mapping, "block": 16})
        for mapping in ("coalesced", "uncoalesced")
    )
    cards = [replace(H100, name="NVIDIA H100 PCIe", sms=114), H100, replace(H100, name="Z", sms=78)]

    def answer(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(
            problem, device, coalesced if device == H100 else uncoalesced
        )

    library = gather("lib", [SMALL], cards, answer, exported_library.fake_build)
    case = exported_library.built(tmp_path, library)
    named = case.call(Call(SMALL), "choose")
    near = case.call(Call(SMALL), "choose", FAKE_CUDA_DEVICE="NVIDIA GH200;9;0;80")
    assert [outcome.lines[-1].rpartition(";")[2] for outcome in (named, near)] == [H100.name, "Z"]


def test_each_architecture_runs_its_own_kernels(tmp_path: Path) -> None:
    config = Config.of("naive", {"mapping": "coalesced", "block": 16})
    library = exported_library.library_of({SMALL: config}, [H100, find("a100")])
    case = exported_library.built(tmp_path, library)
    cards = {"sm_90": "NVIDIA H100 PCIe;9;0;114", "sm_80": "NVIDIA A100-SXM4-40GB;8;0;108"}
    own = {
        gemm.device.arch: [program.symbol for program in gemm.programs] for gemm in library.gemms
    }
    launched = {
        arch: [launch.symbol for launch in case.call(Call(SMALL), FAKE_CUDA_DEVICE=card).launches]
        for arch, card in cards.items()
    }
    assert launched == own
    assert own["sm_90"] != own["sm_80"]


def test_matmul_needs_no_more_than_the_reported_workspace(built: Built) -> None:
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
