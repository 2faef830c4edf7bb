"""The CPU harness: each broken kernel fails, and its sound twin passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.host_cases import Case, HostFault, label, random_case
from support.host_cuda import HOST, Program, build, check, run

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import operands
from autotune.problem import Problem

OUTSIDE = "AddressSanitizer: use-after-poison"
WRONG = "error nan|error [0-9.e+]+, tolerance"
DIVERGENT = "divergent barrier"

TILED_DEFECTS = {
    "reads past A": (1, OUTSIDE),
    "writes past C": (2, OUTSIDE),
    "writes between the rows of C": (3, "wrote between the rows"),
    "reads C at beta = 0": (4, "error nan"),
    "overruns shared memory": (5, OUTSIDE),
    "reads before the barrier": (6, "error nan"),
    "writes before the barrier": (7, WRONG),
    "exits before the barrier": (8, DIVERGENT),
    "splits the barrier": (9, DIVERGENT),
}
COPY_DEFECTS = {
    "waits for nothing": (1, "error nan"),
    "waits without a barrier": (2, "error nan"),
    "copies past A": (3, OUTSIDE),
    "copies misaligned": (4, "misaligned asynchronous copy"),
}

FUSED_DEFECTS = {
    "leaves the counter": (1, "counter 0 is left at 3"),
    "adds up too early": (2, "counter 0 is left at 1"),
    "shuffles half a warp": (3, "a shuffle of the lanes 0xffff"),
    "shuffles on two paths": (4, "divergent warp: .* others at"),
    "shuffles without the exited": (5, "divergent warp"),
}


def _template(source: str, defect: int) -> Template:
    return Template(f"broken_{source}.cu", f"broken_{source}", (("DEFECT", defect),))


def _plan(
    template: Template, problem: Problem, grid: tuple[int, int], block: tuple[int, int], shared: int
) -> LaunchPlan:
    launch = Launch(template, (*grid, 1), (*block, 1), shared, operands(problem))
    return LaunchPlan(Config(template.kernel), (launch,))


def _case(
    problem: Problem,
    plan: LaunchPlan,
    leading_dimensions: tuple[int, int, int],
    alignment: Alignment | None = None,
) -> Case:
    return random_case(problem, plan, alignment or Alignment.dense(problem), leading_dimensions)


def _tiled(defect: int) -> Case:
    """13 x 11 x 19 in tiles of 8 x 8; C has a leading dimension of 16."""
    problem = Problem(13, 11, 19)
    plan = _plan(_template("tiled", defect), problem, (2, 2), (8, 8), shared=512)
    return _case(problem, plan, (19, 11, 16))


def _copy(defect: int) -> Case:
    problem = Problem(4, 4, 4)
    plan = _plan(_template("copy", defect), problem, (1, 1), (4, 4), shared=128)
    return _case(problem, plan, (4, 4, 4))


def _fused(defect: int) -> Case:
    """1 x 1 x 192 in three blocks."""
    problem = Problem(1, 1, 192)
    plan = _plan(_template("fused", defect), problem, (3, 1), (64, 1), shared=8)
    (launch,) = plan.launches
    split_k_arguments = Argument("pointer", "workspace"), Argument("pointer", "counters")
    launch = replace(launch, arguments=launch.arguments + split_k_arguments)
    plan = replace(plan, launches=(launch,), workspace=12, counters=1)
    return _case(problem, plan, (192, 1, 1))


def _vector(alignment: Alignment) -> Case:
    problem = Problem(4, 4, 4)
    plan = _plan(_template("vector", 0), problem, (1, 1), (4, 1), shared=0)
    return _case(problem, plan, (4, 4, 4), alignment)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    templates = [
        *(_template("tiled", defect) for defect in range(1 + len(TILED_DEFECTS))),
        *(_template("copy", defect) for defect in range(1 + len(COPY_DEFECTS))),
        *(_template("fused", defect) for defect in range(1 + len(FUSED_DEFECTS))),
        _template("vector", 0),
    ]
    return build(templates, host_objects, sources=HOST)


@pytest.mark.parametrize("sound", [_tiled(0), _copy(0), _fused(0)], ids=label)
def test_sound_kernel_passes(program: Program, sound: Case) -> None:
    check(program, [sound])


@pytest.mark.parametrize("defect", TILED_DEFECTS)
def test_broken_kernel_fails(program: Program, defect: str) -> None:
    number, report = TILED_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_tiled(number)])


@pytest.mark.parametrize("defect", COPY_DEFECTS)
def test_broken_asynchronous_copy_fails(program: Program, defect: str) -> None:
    number, report = COPY_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_copy(number)])


@pytest.mark.parametrize("defect", FUSED_DEFECTS)
def test_broken_fused_reduction_fails(program: Program, defect: str) -> None:
    number, report = FUSED_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_fused(number)])


def test_aligned_vector_passes(program: Program) -> None:
    case = _vector(Alignment(4, 4, 4))
    np.testing.assert_array_equal(run(program, [case])[0], case.a)


@pytest.mark.parametrize("alignment", [Alignment(2, 4, 4), Alignment(4, 4, 1)], ids=str)
def test_vector_wider_than_its_alignment_fails(program: Program, alignment: Alignment) -> None:
    with pytest.raises(HostFault, match="misaligned address"):
        run(program, [_vector(alignment)])


def test_argument_of_a_wrong_type_fails(program: Program) -> None:
    case = _vector(Alignment(4, 4, 4))
    (launch,) = case.plan.launches
    arguments = (launch.arguments[0], Argument("i32", 4), *launch.arguments[2:])
    plan = replace(case.plan, launches=(replace(launch, arguments=arguments),))
    with pytest.raises(HostFault, match="argument 1: the plan passes i, the kernel takes l"):
        run(program, [replace(case, plan=plan)])


def test_grid_beyond_cudas_limit_fails(program: Program) -> None:
    case = _vector(Alignment(4, 4, 4))
    launch = replace(case.plan.launches[0], grid=(1, 65536, 1))
    with pytest.raises(HostFault, match="impossible grid 1 65536 1"):
        run(program, [replace(case, plan=replace(case.plan, launches=(launch,)))])


def test_fault_names_its_case(program: Program) -> None:
    with pytest.raises(HostFault, match="broken_copy on 4x4x4"):
        check(program, [_tiled(0), _copy(3)])
