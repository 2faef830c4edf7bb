"""The general kernels: one launch for every shape, which their families plan alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sample_records import H100
from support.served_precisions import SERVED

from autotune import device
from autotune.candidates import space
from autotune.export.general import General, generals
from autotune.families import registry
from autotune.families.plan import Alignment, LaunchPlan, Template
from autotune.problem import LAYOUTS, Problem

A100, T4 = device.find("a100"), device.find("t4")
SIZES = st.integers(1, 5000)


def checked(plan: LaunchPlan) -> LaunchPlan:
    """The plan with the checks at the edges in, which families leave out for whole tiles."""
    (launch,) = plan.launches
    template = launch.template
    arguments = tuple((n, 1 if n == "CHECK" else value) for n, value in template.arguments)
    changed: Template = replace(template, arguments=arguments)
    return replace(plan, launches=(replace(launch, template=changed),))


def planned(general: General, problem: Problem) -> LaunchPlan:
    """What the family plans for the configuration, with no wider vectors than the kernel's."""
    return checked(registry.plan(general.config, problem, general.alignment))


@settings(max_examples=200, deadline=None)
@given(
    m=SIZES, n=SIZES, k=SIZES, batch=st.integers(1, 9), compute=st.sampled_from(SERVED),
    layout=st.sampled_from(LAYOUTS), epilogue=st.sampled_from(["none", "bias_gelu"]),
    output=st.sampled_from(["same", "f32"]),
)  # fmt: skip
def test_any_shape_has_the_plan_of_the_family(
    m: int, n: int, k: int, batch: int, compute: str, layout: str, epilogue: str, output: str
) -> None:
    problem = Problem(m, n, k, compute, layout, batch, epilogue, output)
    _, narrow = generals(problem, H100)
    assert narrow.serves(problem)
    assert narrow.plan(problem) == planned(narrow, problem)


@settings(max_examples=100, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES, compute=st.sampled_from(SERVED), layout=st.sampled_from(LAYOUTS))
def test_rows_of_whole_vectors_have_the_plan_of_the_family(
    m: int, n: int, k: int, compute: str, layout: str
) -> None:
    problem = Problem(8 * m, 8 * n, 8 * k, compute, layout)
    wide, _ = generals(problem, H100)
    assert wide.serves(problem)
    assert wide.plan(problem) == planned(wide, problem)


def test_partial_vectors_are_not_served_by_the_wide_kernel() -> None:
    wide, _ = generals(Problem(64, 64, 64, "bf16"), H100)
    served = [wide.serves(Problem(64, n, k, "bf16")) for n, k in [(64, 64), (64, 68), (68, 64)]]
    assert served == [True, False, False]


@pytest.mark.parametrize("other", [{"layout": "nt"}, {"epilogue": "relu"}, {"output": "f32"}])
def test_another_kind_is_not_served(other: dict[str, str]) -> None:
    _, narrow = generals(Problem(64, 64, 64, "bf16"), H100)
    assert not narrow.serves(Problem(64, 64, 64, "bf16", **other))  # type: ignore[arg-type]


def test_a_grid_bounds_what_is_served() -> None:
    _, narrow = generals(Problem(1, 1, 1), H100)
    sizes = [(2**31 - 1, 1), (2**31 - 1, 63 * 64), (2**31 - 1, 64 * 64)]
    assert [narrow.serves(Problem(m, n, 1)) for m, n in sizes] == [True, True, False]


@pytest.mark.parametrize("where", [H100, A100], ids=lambda one: one.name)
@pytest.mark.parametrize("compute", SERVED)
def test_the_configurations_are_legal(where: device.Device, compute: str) -> None:
    for problem in (Problem(1000, 1000, 1000, compute), Problem(1001, 1001, 1001, compute)):
        wide, narrow = generals(problem, where)
        fitting = wide if Alignment.dense(problem) == wide.alignment else narrow
        assert space.rejection(fitting.config, problem, where) is None


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3", "f16"])
def test_a_gpu_without_asynchronous_copies_is_served(compute: str) -> None:
    copies = [one.config.values["copy"] for one in generals(Problem(8, 8, 8, compute), T4)]
    assert copies == ["staged", "staged"]


def test_kinds_of_the_same_kernel_share_it() -> None:
    f32, tf32x3 = (generals(Problem(8, 8, 8, one), H100) for one in ("f32", "tf32x3"))
    pairs = product([one.launch.template for one in f32], [one.launch.template for one in tf32x3])
    assert [one == other for one, other in pairs] == [True, False, False, True]
