"""What a search is told of configurations besides their parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.sample_records import H100, SQUARE

from autotune.candidates import features, space
from autotune.candidates.features import Description
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.families.registry import find, plan
from autotune.problem import Problem

# Columns of `of_products`.
AREA, ASPECT, TURNS, THREADS, SHARED, RESIDENT, BLOCKS, REGISTERS, FILLED = range(9)


def some(problem: Problem, family: str, count: int = 50) -> list[Config]:
    return [*space.spread(space.feasible(problem, H100, family).configs, count)]


SIMT = some(SQUARE, "simt")


def described(configs: list[Config], known: list[Resources | None] | None = None) -> Description:
    return features.of_products(configs, SQUARE, H100, known or [None] * len(configs))


@pytest.mark.parametrize(
    ("problem", "families"),
    [
        (SQUARE, ["simt"]),
        (Problem(1, 4096, 4096), ["simt", "gemv"]),
        (Problem(128, 128, 9999, "bf16"), ["mma", "wgmma"]),
        (Problem(64, 64, 64), ["naive", "tiled"]),
    ],
    ids=str,
)
def test_every_configuration_of_every_family_is_described(
    problem: Problem, families: list[str]
) -> None:
    configs = [config for family in families for config in some(problem, family)]
    given = features.of_products(configs, problem, H100, [None] * len(configs))
    assert given.features.shape == (len(configs), 9)
    assert np.isfinite(given.features).all()
    assert given.predicted is not None
    assert (given.predicted > 0).all()


def test_tiles_have_the_logarithms_of_their_area_and_aspect() -> None:
    tiles = np.array([(config.integer("bm"), config.integer("bn")) for config in SIMT])
    found = described(SIMT).features
    assert found[:, AREA] == pytest.approx(np.log2(tiles.prod(1)))
    assert found[:, ASPECT] == pytest.approx(np.log2(tiles[:, 0] / tiles[:, 1]))


def test_the_last_wave_is_filled_by_a_share() -> None:
    found = described(SIMT).features
    at_once = np.round(2 ** found[:, RESIDENT]) * H100.sms
    waves = np.round(2 ** found[:, BLOCKS]) / at_once
    assert found[:, FILLED] == pytest.approx(waves / np.ceil(waves))


def test_what_was_compiled_tells_its_registers_and_occupancy() -> None:
    config = SIMT[0]
    estimate = find("simt").estimate(config)
    heavy = replace(estimate, registers=255)
    (before,), (after,) = described([config]).features, described([config], [heavy]).features
    assert (before[REGISTERS], after[REGISTERS]) == (estimate.registers, 255)
    assert 2 ** after[RESIDENT] == heavy.occupancy(H100).blocks_per_sm
    assert after[RESIDENT] < before[RESIDENT]


def test_what_one_is_told_of_does_not_depend_on_the_others() -> None:
    assert np.array_equal(described(SIMT).features[7], described([SIMT[7]]).features[0])


def test_a_kernel_of_the_users_is_described_without_a_model() -> None:
    plans = [plan(config, SQUARE) for config in SIMT]
    taken = [find("simt").estimate(config) for config in SIMT]
    given = features.of_plans(plans, H100, taken)
    ours = described(SIMT).features
    assert given.predicted is None
    assert given.features[:, : RESIDENT - THREADS] == pytest.approx(ours[:, THREADS:RESIDENT])
