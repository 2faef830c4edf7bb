"""The general kernels: one launch for any shape, equal to the plan of their family."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.general_kernels import plan_of, serves
from support.sample_records import H100
from support.served_precisions import SERVED

from autotune import device
from autotune.export.library import General, generals
from autotune.families import registry
from autotune.families.plan import Alignment, LaunchPlan, Template
from autotune.model import space
from autotune.problem import LAYOUTS, PRECISIONS, Problem

WIDE = [compute for compute in SERVED if not PRECISIONS[compute].eight_bit]

A100, T4 = device.find("a100"), device.find("t4")

SIZES = st.integers(1, 5000)


def checked(plan: LaunchPlan) -> LaunchPlan:
    """The plan with edge checks, which families leave out for whole tiles."""
    (launch,) = plan.launches
    template = launch.template
    arguments = tuple((n, 1 if n == "CHECK" else value) for n, value in template.arguments)
    changed: Template = replace(template, arguments=arguments)
    return replace(plan, launches=(replace(launch, template=changed),))


def planned(general: General, problem: Problem) -> LaunchPlan:
    """The family's plan of the configuration, with vectors no wider than the kernel's."""
    return checked(registry.plan(general.config, problem, general.alignment))


@settings(max_examples=200)
@given(
    m=SIZES, n=SIZES, k=SIZES, batch=st.integers(1, 9), compute=st.sampled_from(WIDE),
    layout=st.sampled_from(LAYOUTS), epilogue=st.sampled_from(["none", "bias_gelu"]),
    output=st.sampled_from(["same", "f32"]),
)  # fmt: skip
def test_general_plan_equals_the_plan_of_the_family(
    m: int, n: int, k: int, batch: int, compute: str, layout: str, epilogue: str, output: str
) -> None:
    problem = Problem(m, n, k, compute, layout, batch, epilogue, output)
    _, narrow = generals(problem, H100)
    assert serves(narrow, problem)
    assert plan_of(narrow, problem) == planned(narrow, problem)


@settings(max_examples=100)
@given(m=SIZES, n=SIZES, k=SIZES, compute=st.sampled_from(WIDE), layout=st.sampled_from(LAYOUTS))
def test_wide_plan_equals_the_plan_of_the_family(
    m: int, n: int, k: int, compute: str, layout: str
) -> None:
    problem = Problem(8 * m, 8 * n, 8 * k, compute, layout)
    wide, _ = generals(problem, H100)
    assert serves(wide, problem)
    assert plan_of(wide, problem) == planned(wide, problem)


def test_partial_vectors_are_not_served_by_the_wide_kernel() -> None:
    wide, _ = generals(Problem(64, 64, 64, "bf16"), H100)
    served = [serves(wide, Problem(64, n, k, "bf16")) for n, k in [(64, 64), (64, 68), (68, 64)]]
    assert served == [True, False, False]


@pytest.mark.parametrize("kind", [{"layout": "nt"}, {"epilogue": "relu"}, {"output": "f32"}])
def test_general_kernel_serves_one_kind_only(kind: dict[str, str]) -> None:
    _, narrow = generals(Problem(64, 64, 64, "bf16"), H100)
    assert not serves(narrow, Problem(64, 64, 64, "bf16", **kind))  # type: ignore[arg-type]


def test_largest_grid_limits_the_shapes() -> None:
    _, narrow = generals(Problem(1, 1, 1), H100)
    sizes = [(2**31 - 1, 1), (2**31 - 1, 63 * 64), (2**31 - 1, 64 * 64)]
    assert [serves(narrow, Problem(m, n, 1)) for m, n in sizes] == [True, True, False]


@pytest.mark.parametrize("gpu", [H100, A100], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("compute", WIDE)
def test_configurations_of_general_kernels_are_legal(gpu: device.Device, compute: str) -> None:
    for problem in (Problem(1000, 1000, 1000, compute), Problem(1001, 1001, 1001, compute)):
        wide, narrow = generals(problem, gpu)
        fitting = wide if Alignment.dense(problem) == wide.alignment else narrow
        assert space.rejection(fitting.config, problem, gpu) is None


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3", "f16"])
def test_gpu_without_cp_async_gets_staged_copies(compute: str) -> None:
    copies = [general.config.values["copy"] for general in generals(Problem(8, 8, 8, compute), T4)]
    assert copies == ["staged", "staged"]


def test_f32_and_tf32x3_share_their_kernels() -> None:
    f32, tf32x3 = (
        [general.launch.template for general in generals(Problem(8, 8, 8, compute), H100)]
        for compute in ("f32", "tf32x3")
    )
    pairs = product(f32, tf32x3)
    assert [first == second for first, second in pairs] == [True, False, False, True]


@pytest.mark.parametrize("compute", ["f8", "f8e5", "i8"])
def test_operands_of_8_bits_have_no_general_kernel(compute: str) -> None:
    assert generals(Problem(1000, 1000, 1000, compute, "nt"), H100) == ()
