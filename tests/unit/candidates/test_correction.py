"""Tests of `candidates.correction`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from support import results

from autotune.candidates import correction, cost
from autotune.candidates.correction import Network
from autotune.candidates.cost import Load
from autotune.candidates.space import survey
from autotune.device import Device, find
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.problem import Problem

H200, A100 = find("h200"), find("a100")


PROBLEM = Problem(1000, 2000, 512, "bf16")


CONFIGS = survey(PROBLEM, H200)[::50]


def factors(
    problem: Problem, device: Device, configs: Sequence[Config] = CONFIGS
) -> NDArray[np.float64]:
    load = Load.of(configs, problem, device)
    return np.asarray(load.corrected() / load.terms(cost.fitted()).total)


def network(weight: float, scale: float = 1.0) -> Network:
    """One network of one column without parameters: `weight` times its positive part."""
    layers = tuple(np.array([[[value]]]) for value in (1.0, 1.0, weight))
    biases = tuple(np.zeros((1, 1)) for _ in layers)
    return Network((), (), np.zeros(1), np.array([scale]), layers, biases)


def test_networks_move_predictions_within_bounds() -> None:
    made = factors(PROBLEM, H200)
    assert len({*made.tolist()}) > len(CONFIGS) / 2
    assert np.all(np.abs(np.log(made)) <= correction.LARGEST)


def test_other_architectures_are_not_corrected() -> None:
    configs = survey(PROBLEM, A100)[:20]
    assert np.all(factors(PROBLEM, A100, configs) == 1)


def test_factor_does_not_depend_on_other_configurations() -> None:
    alone = [factors(PROBLEM, H200, [config])[0] for config in CONFIGS]
    assert factors(PROBLEM, H200).tolist() == alone


def test_what_cannot_run_stays_infinite() -> None:
    crowded = replace(H200, shared_per_sm=2048, shared_per_block_optin=2048)
    assert np.isinf(cost.times(CONFIGS, PROBLEM, crowded)).any()


def test_given_coefficients_are_not_corrected() -> None:
    load = Load.of(CONFIGS, PROBLEM, H200)
    alone = load.terms(cost.fitted()).total
    given = cost.times(CONFIGS, PROBLEM, H200, coefficients=cost.fitted())
    assert np.all(given >= alone)
    assert not np.allclose(cost.times(CONFIGS, PROBLEM, H200), given)


@pytest.mark.parametrize(
    ("column", "logs"), [(-3.0, 0.0), (2.0, 1.0), (1000.0, 2.0)], ids=["below", "within", "far"]
)
def test_layers_are_rectified_and_columns_cut_off(column: float, logs: float) -> None:
    assert network(0.5).logs(np.array([[column]])).tolist() == [logs]


def test_infinite_scale_leaves_a_column_out() -> None:
    assert network(0.5, scale=np.inf).logs(np.array([[1000.0]])).tolist() == [0.0]


def test_mean_of_the_networks_counts() -> None:
    first, second = network(1.0), network(3.0)
    layers = zip(first.weights, second.weights, strict=True)
    weights = tuple(np.concatenate(layer) for layer in layers)
    both = replace(first, weights=weights, biases=tuple(np.zeros((2, 1)) for _ in weights))
    assert both.logs(np.array([[1.0]])).tolist() == [2.0]


def test_columns_are_parameters_of_today() -> None:
    capability, networks = correction.trained()
    assert capability == (9, 0)
    for family, made in networks.items():
        names = {*registry.find(family).parameters}
        assert {*made.numbers} | {name for name, _ in made.words} <= names


def test_file_says_what_it_was_trained_on() -> None:
    path = resources.files("autotune") / "data" / "correction.npz"
    with path.open("rb") as file:
        about = json.loads(str(np.load(file)["about"]))
    assert about["recordings"] > 400
    assert "NVIDIA H200" in about["device"]


@pytest.mark.parametrize("shape", ["1024x1024x1024-bf16-nn", "256x256x8192-f8-nt"])
def test_recorded_times_are_ranked_better(shape: str) -> None:
    """By networks that have seen them; `scripts/fit_correction.py` judges by others."""
    recording = results.recording("h200", shape)
    ran = [row for row in recording.rows if isinstance(row.outcome, Measurement)]
    configs = [row.config for row in ran]
    measured = [row.outcome.time_us for row in ran if isinstance(row.outcome, Measurement)]

    def correlation(coefficients: cost.Coefficients | None = None) -> float:
        posed, device = recording.problem, recording.device
        predicted = cost.times(configs, posed, device, coefficients=coefficients)
        return float(spearmanr(predicted, measured).statistic)

    assert correlation() > correlation(cost.fitted())
