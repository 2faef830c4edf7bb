"""Kernels that run in order as one, scratch memory, numbers of the configuration, naive kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.fake_runner import compiled
from support.sample_records import H100

from autotune import Scratch, Step
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.measure.measurement import Failure
from autotune.measure.without_gpu import PredictedRunner
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.tuning.pipeline import prepare
from autotune.user_kernels.arguments import call_of, launch_arguments
from autotune.user_kernels.definition import (
    UserKernel,
    checked_arguments,
    define_kernel,
    reference_kernel,
)
from autotune.user_kernels.results import Verification
from autotune.user_kernels.source import Compilation
from autotune.user_kernels.steps import in_configuration, varying
from autotune.user_kernels.table import occupancy_table
from autotune.user_kernels.tunable import KernelTunable
from autotune.user_kernels.workload import workload

N = 4096
BAD: Any = "01"
CONFIG, OTHER = (Config.of("partial", {"TILE": tile}) for tile in (128, 256))
STEPS = [Step("partial", takes=[0, 2, 3]), Step("total<>", grid=1, block=32, takes=[2, 1, 3])]
ARGUMENTS: list[Any] = [
    np.ones(N, np.float32),
    np.zeros(1, np.float32),
    Scratch(lambda p: N // p["TILE"], "float32"),
    lambda p: np.int32(N // p["TILE"]),
]


def kernel(name: Any = STEPS, **changes: Any) -> UserKernel:
    definition: dict[str, Any] = {
        **{"source": "source", "parameters": {"TILE": [128, 256]}, "constraints": None},
        **{"grid": lambda p: N // p["TILE"], "block": lambda p: p["TILE"], "shared": 64},
    }
    return define_kernel(**{**definition, **changes, "name": name})


def tunable(name: Any = STEPS, arguments: Sequence[Any] = ARGUMENTS, **changes: Any) -> Any:
    defined = kernel(name, **changes)
    typed = checked_arguments(defined, arguments)
    call = call_of(defined.name, typed)
    return KernelTunable(defined, call, launch_arguments(typed), varying=varying(typed))


def test_steps_are_launches_in_order_with_what_they_take() -> None:
    plan = tunable().plan(CONFIG)
    shapes = [
        (launch.template.expression, launch.grid, launch.block, launch.shared)
        for launch in plan.launches
    ]
    assert shapes == [
        ("partial<128>", (32, 1, 1), (128, 1, 1), 64),
        ("total", (1, 1, 1), (32, 1, 1), 64),
    ]
    taken = [[argument.value for argument in launch.arguments] for launch in plan.launches]
    assert taken == [["argument 0", "scratch 2", 32], ["scratch 2", "argument 1", 32]]
    assert not plan.dependent


def test_main_launch_has_the_most_threads() -> None:
    assert tunable().plan(CONFIG).product == 0
    steps = [Step("total<>", grid=1, block=32), Step("partial")]
    assert tunable(steps).plan(CONFIG).product == 1


def test_call_names_types_that_all_configurations_share() -> None:
    assert str(tunable().call) == (
        "partial(float32[4096], float32[1], float32[scratch], int32=...)"
    )


def test_scratch_has_the_size_of_its_configuration() -> None:
    def sizes(config: Config) -> list[tuple[str, int]]:
        return [(piece.word, piece.size) for piece in tunable().plan(config).pieces]

    assert (sizes(CONFIG), sizes(OTHER)) == ([("scratch 2", 128)], [("scratch 2", 64)])


def test_pieces_of_scratch_do_not_touch() -> None:
    arguments = [Scratch((3, 5), "float64"), Scratch(7, np.int8)]
    first, second = tunable("partial", arguments).plan(CONFIG).pieces
    assert (first.size, second.size) == (120, 7)
    assert second.offset >= first.offset + first.size + 4096
    assert second.offset % 256 == 0
    assert tunable("partial", arguments).plan(CONFIG).workspace >= second.offset + 7 + 4096


@pytest.mark.parametrize(
    "change",
    [
        {"name": [STEPS[0], replace(STEPS[1], cooperative=True)]},
        {"name": [STEPS[0], replace(STEPS[1], takes=[1, 2, 3])]},
        {"name": [STEPS[0], replace(STEPS[1], grid=2)]},
        {"name": STEPS[:1]},
        {"arguments": [*ARGUMENTS[:2], Scratch(N, "float32"), ARGUMENTS[3]]},
        {"arguments": [*ARGUMENTS[:3], lambda p: np.int32(p["TILE"])]},
    ],
)
def test_hash_changes_with_steps_and_what_they_get(change: dict[str, Any]) -> None:
    assert tunable(**change).digest("s") != tunable().digest("s")


def test_hash_of_one_plain_kernel_is_as_before() -> None:
    plain = tunable("partial", ARGUMENTS[:2])
    assert plain.digest("s") == tunable(Step("partial"), ARGUMENTS[:2]).digest("s")
    assert plain.digest("s")[:16] == "71449e2117d9fe82"  # of version 0.9, before there were steps
    stood_in = replace(plain, verified=str(CONFIG))
    assert stood_in.digest("s")[:16] == "fa2129e4dd915be5"


def test_record_of_steps_launches_what_was_tuned() -> None:
    tuned = tunable()
    launch = tuned._whole(CONFIG)
    plan: LaunchPlan = launch.plan(CONFIG)
    words = [[argument.value for argument in step.arguments] for step in plan.launches]
    assert words == [["argument 0", "scratch 2", 32], ["scratch 2", "argument 1", 32]]
    assert replace(plan, launches=()) == replace(tuned.plan(CONFIG), launches=())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ([], r"name is \[\]; give the name of the kernel, or a list of autotune.Step"),
        (["partial", 7], "name is .*autotune.Step"),
        (Step("partial", takes=BAD), "takes of partial is '01'; give a list of positions"),
        (Step("partial", takes=[-1]), r"takes of partial is \[-1\]; give a list of positions"),
        (["partial", "no kernel"], "name is 'no kernel'"),
        (["partial", "total<;>"], "'total<;>' is not an instance of a kernel"),
    ],
)
def test_steps_that_are_none_are_refused(name: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kernel(name)


def test_step_without_such_an_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="partial takes argument 3; there are 3, counted from 0"):
        checked_arguments(kernel(), ARGUMENTS[:3])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (lambda p: N // p["TILE"], "argument 0 is 32 for partial:TILE=128; return a number with"),
        (
            lambda p: (np.int32, np.int64)[p["TILE"] > 128](1),
            "return finite numbers of one type for all .* such as int32",
        ),
        (lambda _: np.float32(np.inf), "argument 0 is .*inf.* return finite numbers"),
        (lambda p: p["TIEL"], "argument 0 fails for partial:TILE=128: KeyError"),
        (Scratch(lambda p: p["TILE"] / 2, "int8"), "shape of Scratch is 64.0 .* give whole"),
        (Scratch(0, "int8"), "shape of Scratch is 0 .* above 0"),
    ],
)
def test_argument_that_is_no_number_or_memory_is_refused(argument: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tunable("partial", [argument]).plan(OTHER if "one type" in message else CONFIG)


def test_reference_gets_none_for_varying_arguments() -> None:
    seen: list[Any] = []

    def reference(*values: Any) -> list[Any]:
        seen.extend(values[2:])
        return [None, values[0].sum(keepdims=True), None, None]

    typed = checked_arguments(kernel(), ARGUMENTS)
    work = workload("partial", typed, reference, Verification())
    assert set(seen) == {None}
    assert [buffer.place for buffer in work.buffers] == [0, 1]


def test_signature_is_checked_with_the_values_of_a_configuration() -> None:
    own = in_configuration(checked_arguments(kernel(), ARGUMENTS), OTHER)
    assert (own[2].dtype, own[3]) == (np.float32, np.int32(N // 256))


# A kernel as the reference

NAIVE = Step("naive<float>", grid=8, block=(32, 4), takes=[0, 1])


def naive_kernel(step: Step = NAIVE, **changes: Any) -> UserKernel:
    defined = kernel(**changes)
    return reference_kernel(defined, step, checked_arguments(defined, ARGUMENTS))


def test_naive_kernel_has_one_configuration_and_its_geometry() -> None:
    naive = naive_kernel()
    (config,) = naive.combinations()
    (geometry,) = naive.geometry(config)
    assert (str(config), geometry.grid, geometry.block) == ("naive", (8, 1, 1), (32, 4, 1))
    assert naive.source.template(config).expression == "naive<float>"


def test_naive_kernel_has_the_first_value_of_each_macro() -> None:
    naive = naive_kernel(name="partial", compile=Compilation(defines=True))
    (config,) = naive.combinations()
    assert naive.source.template(config).macros == (("TILE", "128"),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "naive<TILE>"}, "takes a tuned parameter"),
        ({"grid": None}, "no grid and block of its own; give numbers"),
        ({"block": lambda p: p["TILE"]}, "no grid and block of its own; give numbers"),
        ({"takes": None}, "takes argument 2, which depends on it; give `takes`"),
    ],
)
def test_naive_kernel_that_depends_on_parameters_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=f"the reference naive.*{message}"):
        naive_kernel(replace(NAIVE, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"takes": [0, 4]}, "naive takes argument 4; there are 4, counted from 0"),
        ({"name": "naive<;>"}, "reference: 'naive<;>' is not an instance of a kernel 'naive'"),
    ],
)
def test_naive_kernel_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        naive_kernel(replace(NAIVE, **change))


def test_hash_knows_a_naive_kernel_from_the_first_configuration() -> None:
    first, naive = (
        replace(tunable(), verified=verified).digest("s") for verified in (str(CONFIG), "naive")
    )
    assert len({first, naive, tunable().digest("s")}) == 3


# Cooperative launches


def cooperative(blocks: int) -> Any:
    return tunable(Step("partial", cooperative=True, grid=blocks), ARGUMENTS[:2])


def test_cooperative_grid_beyond_the_device_is_not_launched() -> None:
    runner = PredictedRunner(Problem(1, 1, 1), H100)
    # 32 registers, and 128 threads of 2048: 16 blocks on each of 132 SMs.
    assert not isinstance(prepare(cooperative(2112).plan(CONFIG), runner, compiled), Failure)
    failure = prepare(cooperative(2113).plan(CONFIG), runner, compiled)
    assert isinstance(failure, Failure)
    assert failure.reason == (
        "partial: 2113 blocks of a cooperative launch, NVIDIA H100 80GB HBM3 holds 2112 at once "
        "(16 on each of 132 SMs)"
    )


def test_table_rejects_a_cooperative_grid_beyond_the_device() -> None:
    table = occupancy_table(cooperative(2000), H100, compiled)
    small, large = table.rows
    assert small.rejection is None
    assert large.rejection is not None
    assert large.rejection.detail.startswith("2000 blocks of a cooperative launch")
    unknown = occupancy_table(cooperative(2000), H100, compiled, any_grid=[0])
    assert [row.rejection for row in unknown.rows] == [None, None]


def test_table_has_a_row_for_each_step() -> None:
    table = occupancy_table(replace(tunable(), call=KernelCall("partial", ())), H100, compiled)
    assert [row.kernel for row in table.rows] == ["partial", "total"] * 2
    assert [line.split()[1] for line in str(table).splitlines()[1:]] == [
        *("kernel", "partial", "total", "partial", "total")
    ]
