"""The rungs of the ladder on the CPU, with emulated bulk copies and tensor cores, under
AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.host_cases import case_of
from support.host_cuda import Program, build, check

from autotune.device import find
from autotune.families import registry
from autotune.families.ladder import LAYOUTS, RUNGS, Rung
from autotune.problem import Problem

DEVICE = replace(find("h100"), sms=2)
"""A device on which one cluster takes all tiles of a persistent grid."""
EDGES = ((1, 1, 1), (37, 53, 71), (3, 130, 2), (31, 33, 97))

each_rung = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)


def problem_of(rung: Rung, m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, rung.compute, LAYOUTS[rung.compute])


def whole(rung: Rung) -> Problem:
    """Two tiles along each side, and more steps of K than any ring has stages."""
    rows, columns, steps = rung.tile
    return problem_of(rung, 2 * rows, 2 * columns, 5 * steps)


def program_of(rung: Rung, folder: Path) -> Program:
    """A program of the rung alone: helpers of several rungs have the same names."""
    plan = registry.plan(rung.config(DEVICE), whole(rung))
    return build([plan.main.template], folder)


@each_rung
def test_rung_matches_float64(rung: Rung, host_objects: Path) -> None:
    config, problem = rung.config(DEVICE), whole(rung)
    short = replace(problem, k=rung.tile[2])
    cases = (
        case_of(config, problem),
        case_of(config, problem, padding=(16, 8, 24), alpha=1.5, beta=0.5),
        case_of(config, short, alpha=0.0, beta=-2.0),
        case_of(config, short),
    )
    check(program_of(rung, host_objects), cases)


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung.edges], ids=lambda rung: rung.name)
def test_rung_with_edges_handles_any_shape(rung: Rung, host_objects: Path) -> None:
    cases = [case_of(rung.config(DEVICE), problem_of(rung, *shape)) for shape in EDGES]
    check(program_of(rung, host_objects), cases)
