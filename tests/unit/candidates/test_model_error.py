"""What samples say of other configurations, problems and devices."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE

from autotune.candidates import cost, space
from autotune.candidates.model_error import SIGNAL, ModelError, Sample
from autotune.device import Device, find
from autotune.families.plan import Resources
from autotune.problem import Problem


def sample(width: int, error: float, problem: Problem = SQUARE, device: Device = H100) -> Sample:
    """A time that is so many times what the model predicts."""
    config, taken = tiled(width), Resources(width**2, 32, 8 * width**2)
    time_us = error * cost.predict(config, problem, device, taken)
    return Sample(config, taken, time_us, problem, device)


def error(experience: ModelError, width: int, problem: Problem = SQUARE) -> float:
    """How far the model is believed to be off."""
    taken = Resources(width**2, 32, 8 * width**2)
    (time_us,) = experience.predict([tiled(width)], problem, [taken]).times
    return float(time_us / cost.predict(tiled(width), problem, H100, taken))


def doubt(experience: ModelError, width: int, problem: Problem = SQUARE) -> float:
    return float(experience.predict([tiled(width)], problem).deviations[0])


def test_without_samples_the_model_stands() -> None:
    assert error(ModelError((), H100), 16) == pytest.approx(1.0)


def test_without_samples_the_doubt_is_that_of_the_model() -> None:
    assert doubt(ModelError((), H100), 16) == pytest.approx(math.sqrt(SIGNAL))


def test_a_sample_is_believed_but_for_the_noise_of_measuring() -> None:
    assert error(ModelError([sample(16, 1.5)], H100), 16) == pytest.approx(1.5, rel=0.06)


def test_what_is_alike_is_misjudged_alike() -> None:
    taught = ModelError([sample(16, 1.5)], H100)
    near, far = Problem(4096, 4096, 4160), Problem(64, 64, 64)
    assert error(taught, 16) > error(taught, 16, near) > error(taught, 16, far) > 1.0


def test_doubt_grows_with_the_distance() -> None:
    taught = ModelError([sample(16, 1.5)], H100)
    near, far = Problem(4096, 4096, 4160), Problem(64, 64, 64)
    assert doubt(taught, 16) < doubt(taught, 16, near) < doubt(taught, 16, far)


def test_a_sample_of_another_device_says_less() -> None:
    own, other = (ModelError([sample(16, 1.5, device=one)], H100) for one in (H100, find("h200")))
    assert error(own, 16) > error(other, 16) > 1.0


def test_a_sample_of_another_layout_says_less() -> None:
    nt = replace(SQUARE, layout="nt")
    own, other = (ModelError([sample(16, 1.5, one)], H100) for one in (SQUARE, nt))
    assert error(own, 16) > error(other, 16) > 1.0


def test_a_family_learns_nothing_from_another() -> None:
    taught = ModelError([sample(16, 1.5)], H100)
    naive = space.feasible(SQUARE, H100, "naive").configs[0]
    assert taught.predict([naive], SQUARE).deviations[0] == pytest.approx(math.sqrt(SIGNAL))


def test_the_order_of_the_configurations_is_kept() -> None:
    taught = ModelError([sample(16, 1.5)], H100)
    both = taught.predict([tiled(32), tiled(16)], SQUARE).times
    alone = [taught.predict([tiled(width)], SQUARE).times[0] for width in (32, 16)]
    assert both == pytest.approx(alone)


def test_caution_passes_over_what_is_little_known() -> None:
    belief = ModelError([sample(16, 1.0)], H100).predict([tiled(16), tiled(2)], SQUARE)
    gains = belief.cautious(1.0) / belief.times
    assert gains[1] > gains[0] > 1.0
