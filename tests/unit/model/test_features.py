"""Features of configurations that the search uses beside their parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.sample_records import H100, SQUARE

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.families.registry import find
from autotune.model import cost, space
from autotune.model.features import Description
from autotune.problem import Problem

# Columns of `Load.features`.
AREA, ASPECT, K_ITERATIONS, THREADS, SHARED, RESIDENT, BLOCKS, REGISTERS, FILLED = range(9)


def sample(problem: Problem, family: str, count: int = 50) -> list[Config]:
    return [*space.spread(space.feasible(problem, H100, family).configs, count)]


SIMT = sample(SQUARE, "simt")


def described(configs: list[Config], compiled: list[Resources | None] | None = None) -> Description:
    return cost.describe(configs, SQUARE, H100, compiled or ())


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
def test_every_family_has_finite_features(problem: Problem, families: list[str]) -> None:
    configs = [config for family in families for config in sample(problem, family)]
    description = cost.describe(configs, problem, H100)
    assert description.features.shape == (len(configs), 9)
    assert np.isfinite(description.features).all()
    assert description.predicted is not None
    assert (description.predicted > 0).all()


def test_tile_features_are_log_area_and_aspect() -> None:
    tiles = np.array([(config.integer("bm"), config.integer("bn")) for config in SIMT])
    columns = described(SIMT).features
    assert columns[:, AREA] == pytest.approx(np.log2(tiles.prod(1)))
    assert columns[:, ASPECT] == pytest.approx(np.log2(tiles[:, 0] / tiles[:, 1]))


def test_clusters_fill_the_sms_that_they_can_occupy() -> None:
    deep = Problem(256, 512, 16384, "bf16")
    configs = [
        config
        for config in space.feasible(deep, H100, "wgmma").configs
        if config.values["cluster"] == "1x1x8"
    ]
    crowded = replace(H100, clusters=(66, 32, 15))
    columns = cost.describe(configs, deep, crowded).features
    waves = 2 ** (columns[:, BLOCKS] - columns[:, RESIDENT]) / 120
    assert columns[:, FILLED] == pytest.approx(waves / np.ceil(waves))


def test_fill_of_waves_is_a_feature() -> None:
    columns = described(SIMT).features
    at_once = np.round(2 ** columns[:, RESIDENT]) * H100.sms
    waves = np.round(2 ** columns[:, BLOCKS]) / at_once
    assert columns[:, FILLED] == pytest.approx(waves / np.ceil(waves))


def test_compiled_resources_replace_the_estimate() -> None:
    config = SIMT[0]
    estimate = find("simt").estimate(config, SQUARE, H100)
    heavy = replace(estimate, registers=255)
    (before,), (after,) = described([config]).features, described([config], [heavy]).features
    assert (before[REGISTERS], after[REGISTERS]) == (estimate.registers, 255)
    assert 2 ** after[RESIDENT] == heavy.occupancy(H100).blocks_per_sm
    assert after[RESIDENT] < before[RESIDENT]


def test_description_ignores_other_configurations() -> None:
    assert np.array_equal(described(SIMT).features[7], described([SIMT[7]]).features[0])
