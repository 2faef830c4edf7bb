"""Grids that follow from the size of a problem, and blocks from the names of parameters."""

from __future__ import annotations

from typing import Any

import pytest
from support.sample_user_kernels import kernel, tunable

from autotune.errors import UsageError
from autotune.families.config import Config

CONFIG = Config.of("saxpy", {"block_size_x": 32, "block_size_y": 4, "EACH": 2})
NAMES = {"block_size_x": (32,), "block_size_y": (4,), "EACH": (2,)}
NAMED: dict[str, Any] = {"parameters": NAMES, "block": None, "constraints": None, "grid": None}


@pytest.mark.parametrize(
    ("changes", "grid"),
    [
        ({"problem_size": 1000}, (32, 1, 1)),
        ({"problem_size": (1000, 10)}, (32, 3, 1)),
        ({"problem_size": lambda p: (1000, 10 * p["EACH"], 3)}, (32, 5, 3)),
        ({"problem_size": 1000, "grid_div": ["EACH"]}, (500, 1, 1)),
        ({"problem_size": (1000, 9), "grid_div": [("block_size_x", "EACH"), 4]}, (16, 3, 1)),
        ({"problem_size": (7, 9), "grid_div": [lambda p: p["EACH"] + 1]}, (3, 3, 1)),
        ({"problem_size": (7, 9), "grid_div": [None, "EACH"]}, (1, 5, 1)),
        ({"problem_size": (70, 9), "grid_div": []}, (3, 3, 1)),
        ({"problem_size": 7, "grid_div": [[]]}, (7, 1, 1)),
        ({"problem_size": 1000, "block": (100, 5)}, (10, 1, 1)),
    ],
)
def test_grid_covers_the_problem(changes: dict[str, Any], grid: tuple[int, int, int]) -> None:
    (launch,) = tunable(**NAMED | changes).plan(CONFIG).launches
    assert launch.grid == grid


def test_block_follows_from_the_names_of_parameters() -> None:
    (launch,) = tunable(**NAMED | {"grid": 1}).plan(CONFIG).launches
    assert launch.block == (32, 4, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "give grid, or problem_size"),
        ({"grid": 1, "problem_size": 7}, "and not both"),
        ({"grid": 1, "grid_div": ["EACH"]}, "grid_div divides problem_size"),
        (
            {"problem_size": 7, "grid_div": ["TILE"]},
            "grid_div names 'TILE', which is not a parameter",
        ),
        ({"problem_size": 7, "grid_div": "EACH"}, "grid_div is 'EACH'; give a list"),
        ({"problem_size": 7, "grid_div": [1.5]}, "grid_div has 1.5; give names"),
    ],
)
def test_contradicting_sizes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kernel(**NAMED | changes)


def test_divisor_of_zero_is_refused_with_the_configuration() -> None:
    zero = tunable(**NAMED | {"problem_size": 7, "grid_div": [0]})
    with pytest.raises(UsageError, match=r"grid fails for saxpy:block_size_x=32.*ZeroDivision"):
        _ = zero.kernel.geometries
