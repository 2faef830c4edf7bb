"""The cost model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from support import results

from autotune.device import Device, catalogue, find
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.model import cost, space
from autotune.model.cost import Load, Network
from autotune.model.space import sample
from autotune.problem import PRECISIONS, Problem
from autotune.roofline import least_seconds

H100 = replace(find("h100"), clusters=(66, 33, 16))
"""A card whose clusters leave few SMs idle."""
feasible = lru_cache(space.feasible)
BIG = Config.parse(
    "simt:bm=128,bn=256,wm=64,wn=64,tm=8,tn=16,slices=1,bk=8,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=8,fence=1,"
    "order=snake"
)
SQUARE = Problem(4096, 4096, 4096)


def changed(config: Config, **values: int | str) -> Config:
    return Config.of(config.family, config.values | values)


def predict(config: Config, problem: Problem = SQUARE, **coefficients: Any) -> float:
    fit = replace(cost.fitted(), **coefficients)
    return float(cost.times([config], problem, H100, coefficients=fit)[0])


@pytest.mark.parametrize("shape", ["4096x4096x4096", "64x4096x4096", "37x53x71"])
@pytest.mark.parametrize("family", ["naive", "tiled", "simt"])
@pytest.mark.parametrize("device", ["h100", "a100", "t4"])
def test_no_prediction_beats_the_roofline(shape: str, family: str, device: str) -> None:
    problem, gpu = Problem.parse(shape), find(device)
    configs = feasible(problem, gpu, family).configs[::53]
    assert cost.times(configs, problem, gpu).min() >= 1e6 * least_seconds(problem, gpu)


@pytest.mark.parametrize(
    "text", [*(f"4096x4096x4096:{it}" for it in PRECISIONS), "64x4096x4096", "64x4096x4096:bf16"]
)
def test_no_device_is_predicted_beyond_its_limits(text: str) -> None:
    problem = Problem.parse(text)
    spaces = [
        feasible(problem, find(name), family).configs
        for name in ("h100", "rtx-3090", "t4")
        for family in registry.tuned(problem)
    ]
    pool = [config for space in spaces for config in space[:: 1 + len(space) // 20]]
    shares = {
        name: 1e6 * least_seconds(problem, gpu) / cost.times(pool, problem, gpu).min()
        for name, gpu in catalogue().items()
    }
    assert {name: share for name, share in shares.items() if share > 1} == {}


def test_ranking_keeps_its_order_at_the_roofline() -> None:
    problem, gpu = Problem(4096, 4096, 4096, "tf32"), find("rtx-3090")
    configs = sample(problem, gpu)[::17]
    modelled = Load.of(configs, problem, gpu).terms(cost.fitted()).total
    ranked = cost.rank(configs, problem, gpu)
    assert sum(time_us == ranked[0][0] for time_us, _ in ranked) > 1
    assert [config for _, config in ranked] == [
        config for _, config in sorted(zip(modelled, configs, strict=True))
    ]


def test_plain_kernels_are_predicted_in_order() -> None:
    problem = Problem(4096, 4096, 4096)
    rungs = [
        "naive:mapping=uncoalesced,block=32",
        "naive:mapping=coalesced,block=32",
        "tiled:tile_width=16,specialized=1",
        str(BIG),
    ]
    times = [cost.predict(Config.parse(rung), problem, H100) for rung in rungs]
    assert times == sorted(times, reverse=True)


def test_long_k_and_a_small_c_prefer_split_k() -> None:
    problem = Problem(64, 64, 65536)
    _, best = cost.rank(sample(problem, H100), problem, H100)[0]
    assert best.integer("split_k") >= 16


def test_large_square_prefers_large_tiles() -> None:
    """By the arithmetic alone: tiles of 128 x 64 are 2 % slower there, and the correction knows."""
    configs = sample(SQUARE, H100)
    times = cost.times(configs, SQUARE, H100, coefficients=cost.fitted())
    best = configs[int(times.argmin())]
    assert best.integer("bm") * best.integer("bn") >= 128 * 128


def test_compiled_registers_override_the_estimate() -> None:
    problem = Problem(4096, 4096, 4096)
    compiled = Resources(threads=256, registers=255, shared=200_000)
    assert cost.predict(BIG, problem, H100, compiled) >= cost.predict(BIG, problem, H100)


def test_block_that_does_not_fit_takes_infinitely_long() -> None:
    compiled = Resources(threads=1024, registers=255, shared=0)
    assert math.isinf(cost.predict(BIG, Problem(64, 64, 64), H100, compiled))


def test_ranking_ignores_the_order_of_candidates() -> None:
    problem = Problem(37, 53, 71)
    configs = feasible(problem, H100).configs[:300]
    assert cost.rank(configs, problem, H100) == cost.rank(configs[::-1], problem, H100)


@pytest.mark.parametrize(
    "problem", ["1x1x1", "16x4096x4096:batch=3:bias_gelu", "1023x1025x1027:tt"]
)
@pytest.mark.parametrize("family", ["naive", "tiled", "simt", "gemv"])
def test_every_prediction_is_a_positive_time(problem: str, family: str) -> None:
    parsed = Problem.parse(problem)
    configs = feasible(parsed, H100, family).configs[::97]
    assert np.all(cost.times(configs, parsed, H100) > 0)


def test_prediction_is_the_same_alone_and_among_many() -> None:
    problem = Problem(200, 300, 5000)
    configs = feasible(problem, H100).configs[::997]
    alone = [cost.predict(config, problem, H100) for config in configs]
    assert cost.times(configs, problem, H100).tolist() == alone


def test_families_are_predicted_together_as_apart() -> None:
    problem = Problem(200, 300, 5000, "bf16")
    apart = [feasible(problem, H100, family).configs[::497] for family in ("mma", "wgmma")]
    mixed = [config for configs in apart for config in configs][::-1]
    times = [cost.times(configs, problem, H100) for configs in apart]
    together = cost.times(mixed, problem, H100)[::-1]
    assert together == pytest.approx(np.concatenate(times), rel=1e-12)


def test_no_configurations_have_no_times() -> None:
    assert cost.times([], SQUARE, H100).size == 0
    assert cost.rank([], SQUARE, H100) == []
    assert cost.describe([], SQUARE, H100).features.shape == (0, 9)


def test_wave_of_one_block_takes_as_long_as_a_full_one() -> None:
    full, begun, double = (
        predict(BIG, Problem(128 * blocks, 256, 4096)) for blocks in (132, 133, 264)
    )
    assert begun == pytest.approx(double, rel=0.01)
    assert begun > 1.8 * full


def test_too_few_warps_to_hide_latency_cost_time() -> None:
    # Two warps occupy two of the four schedulers, eight occupy all.
    tile, deep = Problem(64, 128, 8192), changed(BIG, bm=64, bn=128, bk=32, wn=64)
    assert predict(changed(deep, slices=4), tile) < 0.6 * predict(deep, tile)


def test_adding_up_splits_costs_a_launch_or_a_wait() -> None:
    deep = Problem(128, 256, 16384)
    split = changed(BIG, split_k=8)
    separate, fused = changed(split, reduction="separate"), changed(split, reduction="fused")
    assert predict(separate, deep, passes=9.0) - predict(separate, deep, passes=1.0) == 8.0
    assert predict(fused, deep, gather=9.0) - predict(fused, deep, gather=1.0) == 8.0


def test_packing_costs_time_for_its_bytes() -> None:
    packed, seconds = changed(BIG, pack="a"), 2 * 4 * 4096 * 4096 / H100.memory_bandwidth
    slow, fast = (predict(packed, moved=moved) for moved in (0.5, 1.0))
    assert slow - fast == pytest.approx(1e6 * seconds)


def test_data_in_l2_is_not_read_again() -> None:
    wide = Problem(64, 8192, 8192)
    assert predict(BIG, wide, cached=10.0, dram=0.01) < predict(BIG, wide, cached=0.1, dram=0.01)


def test_trait_scales_the_loops_that_have_it() -> None:
    without = changed(BIG, tm=16, tn=8)
    assert predict(BIG, traits={"8x16": 2.0}) > 1.5 * predict(BIG, traits={})
    assert predict(without, traits={"8x16": 2.0}) == predict(without, traits={})


def on_tensor_cores(fmas: float, compute: str, device: Device = H100, **coefficients: Any) -> float:
    """Microseconds of `BIG` with `fmas` tensor-core multiply-adds per block and k-iteration."""
    problem = replace(SQUARE, compute=compute)
    load = replace(Load.of([BIG], SQUARE, device), problem=problem)
    work = SimpleNamespace(**vars(load.work) | {"tensor": np.array([fmas])})
    fit = replace(cost.fitted(), **coefficients)
    return float(replace(load, work=work).terms(fit).total[0])


def test_tensor_cores_run_at_their_rate() -> None:
    fmas = 1e12  # per k-iteration, so that nothing else counts
    tiles, turns = 16 * 32, 4096 / 8
    seconds = np.ceil(tiles / 132) * turns * fmas / 2048 / H100.sm_clock
    assert on_tensor_cores(fmas, "bf16", traits={}, tensor=1.0) == pytest.approx(1e6 * seconds)
    assert on_tensor_cores(fmas, "bf16", traits={}, tensor=1.5) == pytest.approx(1.5e6 * seconds)


def test_tf32_takes_tensor_cores_twice_as_long_as_fp16() -> None:
    half, whole = (on_tensor_cores(1e12, compute) for compute in ("f16", "tf32x3"))
    assert whole == pytest.approx(2 * half)


def test_trait_scales_tensor_cores_too() -> None:
    slow, fast = (on_tensor_cores(1e12, "f16", traits={"8x16": factor}) for factor in (3.0, 1.0))
    assert slow == pytest.approx(3 * fast)


def arithmetic(config: Config, problem: Problem, device: Device) -> float:
    """Microseconds without the learnt correction."""
    return float(cost.times([config], problem, device, coefficients=cost.fitted())[0])


def with_cluster(cluster: str, problem: Problem, blocks: int) -> Config:
    """A legal `wgmma` configuration with that many blocks in such clusters."""
    work = registry.find("wgmma").work
    return next(
        config
        for config in feasible(problem, H100, "wgmma").configs
        if config.values["cluster"] == cluster and work(config, problem).blocks == blocks
    )


def test_waves_count_the_sms_that_clusters_occupy() -> None:
    deep = Problem(256, 512, 16384, "bf16")
    config = with_cluster("1x1x8", deep, 128)
    times = {
        clusters: arithmetic(config, deep, replace(H100, clusters=clusters))
        for clusters in [(66, 33, 16), (66, 32, 16), (66, 32, 15), (66, 32, 8), (66, 32, 7)]
    }
    one, also_one, two, also_two, three = times.values()
    assert one == also_one < two == also_two < three


def test_blocks_without_clusters_fill_all_sms() -> None:
    wide = Problem(4096, 4096, 4096, "bf16")
    alone = with_cluster("1x1", wide, 512)
    crowded = replace(H100, clusters=(40, 20, 10))
    assert cost.predict(alone, wide, crowded) == cost.predict(alone, wide, H100)


def test_device_without_clusters_cannot_run_them() -> None:
    deep = Problem(256, 512, 16384, "bf16")
    assert math.isinf(cost.predict(with_cluster("1x1x8", deep, 128), deep, find("a100")))


def test_without_tensor_cores_it_takes_infinitely_long() -> None:
    assert math.isinf(on_tensor_cores(1e6, "bf16", find("t4")))
    assert math.isfinite(on_tensor_cores(0, "bf16", find("t4")))


def test_tensor_core_kernels_do_not_wait_for_fp32_units() -> None:
    # With 16 fp32 units a scheduler, a multiply-add takes 2 cycles, any other instruction 1.
    a100, slots = find("a100"), {"slot": 0.01, "copy": 1e-9}
    assert on_tensor_cores(1.0, "f16", a100, **slots) < on_tensor_cores(0.0, "f16", a100, **slots)


def test_coefficients_have_their_provenance() -> None:
    data = json.loads(resources.files("autotune").joinpath("data/cost.json").read_text())
    assert data["provenance"].keys() >= {"date", "devices", "recordings", "summary"}
    assert data["provenance"]["recordings"]


def test_shipped_coefficients_are_positive_and_finite() -> None:
    values = asdict(cost.fitted())
    numbers = [*values.pop("traits").values(), *values.values()]
    assert all(0 < number < math.inf for number in numbers)


H200, A100 = find("h200"), find("a100")
PROBLEM = Problem(1000, 2000, 512, "bf16")
CONFIGS = sample(PROBLEM, H200)[::50]


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
    assert np.all(np.abs(np.log(made)) <= cost.LARGEST)


def test_other_architectures_are_not_corrected() -> None:
    configs = sample(PROBLEM, A100)[:20]
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
    capability, networks = cost.trained()
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
    """By networks that have seen them; `scripts/fit/correction.py` judges by others."""
    recording = results.recording("h200", shape)
    ran = [row for row in recording.rows if isinstance(row.outcome, Measurement)]
    configs = [row.config for row in ran]
    measured = [row.outcome.time_us for row in ran if isinstance(row.outcome, Measurement)]

    def correlation(coefficients: cost.Coefficients | None = None) -> float:
        posed, device = recording.problem, recording.device
        predicted = cost.times(configs, posed, device, coefficients=coefficients)
        return float(spearmanr(predicted, measured).statistic)

    assert correlation() > correlation(cost.fitted())
