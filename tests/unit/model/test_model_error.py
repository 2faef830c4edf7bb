"""The model error, learnt from samples of other problems."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE

from autotune.device import Device, find
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.model import cost, space
from autotune.model.model_error import (
    ARITHMETIC,
    CORRECTED,
    ModelError,
    Sample,
    SampleGroup,
    groups_of,
)
from autotune.problem import Problem


def samples(
    width: int, error: float, problem: Problem = SQUARE, device: Device = H100
) -> list[SampleGroup]:
    """A sample, with a time `error` times as long as the cost model predicts."""
    config, resources = tiled(width), Resources(width**2, 32, 8 * width**2)
    time_us = error * cost.predict(config, problem, device, resources)
    return groups_of([Sample(config, resources, time_us)], problem, device)


def wgmma(problem: Problem) -> Config:
    return space.feasible(problem, H100, "wgmma").configs[0]


def error(model: ModelError, width: int, problem: Problem = SQUARE) -> float:
    """The predicted error of the cost model, as a factor."""
    resources = Resources(width**2, 32, 8 * width**2)
    (time_us,) = model.predict([tiled(width)], problem, [resources]).times
    return float(time_us / cost.predict(tiled(width), problem, H100, resources))


def deviation(model: ModelError, width: int, problem: Problem = SQUARE) -> float:
    return float(model.predict([tiled(width)], problem).deviations[0])


def test_without_samples_the_cost_model_is_kept() -> None:
    assert error(ModelError(H100), 16) == pytest.approx(1.0)


def test_without_samples_the_deviation_is_the_prior() -> None:
    assert deviation(ModelError(H100), 16) == pytest.approx(math.sqrt(ARITHMETIC.signal))


def test_sample_is_reproduced_within_its_noise() -> None:
    alike = samples(16, 1.5) * 4
    assert error(ModelError(H100, alike), 16) == pytest.approx(1.5, rel=0.06)


def test_similar_problems_share_the_error() -> None:
    model = ModelError(H100, samples(16, 1.5))
    near, far = Problem(4096, 4096, 4160), Problem(64, 64, 64)
    assert error(model, 16) > error(model, 16, near) > error(model, 16, far) > 1.0


def test_deviation_grows_with_distance() -> None:
    model = ModelError(H100, samples(16, 1.5))
    near, far = Problem(4096, 4096, 4160), Problem(64, 64, 64)
    assert deviation(model, 16) < deviation(model, 16, near) < deviation(model, 16, far)


def test_sample_of_another_device_counts_less() -> None:
    own, foreign = (
        ModelError(H100, samples(16, 1.5, device=device)) for device in (H100, find("h200"))
    )
    assert error(own, 16) > error(foreign, 16) > 1.0


def test_sample_of_another_layout_counts_less() -> None:
    nt = replace(SQUARE, layout="nt")
    own, foreign = (ModelError(H100, samples(16, 1.5, problem)) for problem in (SQUARE, nt))
    assert error(own, 16) > error(foreign, 16) > 1.0


def test_families_do_not_share_errors() -> None:
    model = ModelError(H100, samples(16, 1.5))
    naive = space.feasible(SQUARE, H100, "naive").configs[0]
    assert model.predict([naive], SQUARE).deviations[0] == pytest.approx(
        math.sqrt(ARITHMETIC.signal)
    )


def test_order_of_configurations_is_kept() -> None:
    model = ModelError(H100, samples(16, 1.5))
    both = model.predict([tiled(32), tiled(16)], SQUARE).times
    alone = [model.predict([tiled(width)], SQUARE).times[0] for width in (32, 16)]
    assert both == pytest.approx(alone)


def test_caution_avoids_uncertain_configurations() -> None:
    predicted = ModelError(H100, samples(16, 1.0)).predict([tiled(16), tiled(2)], SQUARE)
    gains = predicted.cautious(1.0) / predicted.times
    assert gains[1] > gains[0] > 1.0


@pytest.mark.parametrize(("size", "least", "most"), [(4096, 1.25, 1.5), (128, 0.98, 1.02)])
def test_corrected_errors_are_local(size: int, least: float, most: float) -> None:
    recorded = Problem(4096, 4096, 4096, "bf16")
    config, asked = wgmma(recorded), Problem(size, size, size, "bf16")
    resources = registry.find("wgmma").estimate(config, recorded)
    time_us = 1.5 * cost.predict(config, recorded, H100)
    learnt = groups_of([Sample(config, resources, time_us)] * 20, recorded, H100)
    model = ModelError(H100, learnt)
    (predicted,) = model.predict([config], asked).times
    assert least < predicted / cost.predict(config, asked, H100) < most


def test_corrected_times_are_less_uncertain() -> None:
    problem = Problem(4096, 4096, 4096, "bf16")
    (deviation,) = ModelError(H100).predict([wgmma(problem)], problem).deviations
    assert deviation == pytest.approx(math.sqrt(CORRECTED.signal))
