"""The space of legal configurations, samples of it, and why it is empty."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from math import prod

import pytest

from autotune.device import find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.families.registry import FAMILIES
from autotune.model import cost, space
from autotune.problem import Problem

H100 = find("h100")
SQUARE, UNEVEN = Problem(4096, 4096, 4096), Problem(37, 53, 20)
SHAPES = [Problem(64, 64, 64), Problem(1, 1, 1), Problem(37, 53, 71), Problem(64, 64, 65536)]


def legal(problem: Problem = SQUARE) -> Config:
    return space.feasible(problem, H100).configs[0]


def changed(config: Config, **values: int | str) -> Config:
    return Config.of(config.family, {**config.values, **values})


def test_h100_has_thousands_of_configurations_at_4096() -> None:
    assert len(space.feasible(SQUARE, H100).configs) >= 2000


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_legal_and_rejected_make_up_the_domain(family: str, problem: Problem) -> None:
    problem = replace(problem, compute=registry.find(family).precisions[0])
    found_space = space.feasible(problem, H100, family)
    everything = prod(map(len, registry.find(family).domain(problem, H100).values()))
    assert len(found_space.configs) + sum(found_space.rejected.values()) == everything


@pytest.mark.parametrize("family", FAMILIES)
def test_enumeration_agrees_with_single_checks(family: str) -> None:
    problem = Problem(37, 53, 71, registry.find(family).precisions[0])
    sample = space.feasible(problem, H100, family).configs[::97]
    assert [space.rejection(config, problem, H100) for config in sample] == [None] * len(sample)


@pytest.mark.parametrize("family", ["naive", "tiled", "simt"])
def test_every_reason_of_a_rejection_has_an_example(family: str) -> None:
    legal = space.feasible(Problem(4096, 4096, 4096), find("h100"), family)
    assert set(legal.examples) >= set(legal.rejected)
    for example in legal.examples.values():
        assert re.search(r"\w=|\d", example)


@pytest.mark.parametrize("device", ["t4", "a100", "rtx-4090", "h100"])
def test_every_device_since_turing_has_configurations(device: str) -> None:
    assert len(space.feasible(SQUARE, find(device)).configs) > 500


def test_devices_without_cp_async_stage_copies() -> None:
    configs = space.feasible(Problem(256, 256, 256), find("t4")).configs
    assert {config.values["copy"] for config in configs} == {"staged"}


def test_legal_blocks_fit_the_shared_memory() -> None:
    t4 = find("t4")
    problem = Problem(512, 512, 512)
    plans = (
        registry.find("simt").plan(config, problem, Alignment.dense(problem))
        for config in space.feasible(problem, t4).configs[::5]
    )
    shared = (launch.shared for plan in plans for launch in plan.launches)
    assert max(shared) <= t4.shared_per_block_optin


TILES = {"bm": 128, "bn": 256, "wm": 64, "wn": 64, "tm": 16, "tn": 8, "bk": 16}


def large_tiles() -> Config:
    """128 x 256 tiles in two stages, which take 50,176 bytes of shared memory."""
    first = {name: values[0] for name, values in registry.find("simt").domain(SQUARE, H100).items()}
    return Config.of("simt", {**first, **TILES, "copy": "async", "fragments": 2})


@pytest.mark.parametrize(
    ("values", "reason", "numbers"),
    [
        ({"copy": "staged", "stages": 3}, "stages", "stages=3 of bk=16 steps, staged"),
        ({"bm": 32, "wm": 64}, "divisibility", "wm=64 does not divide bm=32"),
        ({"split_k": 128}, "split-K", "512 tiles fill 132 SMs as well with less than 128 splits"),
        ({"tn": 4}, "thread tile", "16x4 loads 20 values for 64 products"),
        ({"bm": 96}, "value", "bm=96 is none of .*64, 128"),
    ],
)
def test_rejection_names_reason_and_numbers(
    values: dict[str, int | str], reason: str, numbers: str
) -> None:
    assert space.rejection(large_tiles(), SQUARE, H100) is None
    rejection = space.rejection(changed(large_tiles(), **values), SQUARE, H100)
    assert rejection is not None
    assert rejection.reason == reason
    assert re.search(numbers, rejection.detail)


def test_shared_memory_rejections_name_the_bytes() -> None:
    small = replace(H100, shared_per_block_optin=49152)
    rejection = space.rejection(large_tiles(), SQUARE, small)
    assert str(rejection).startswith("shared memory: needs 50176 bytes a block, ")
    assert str(rejection).endswith("allows 49152")


WGMMA = Config.parse(
    "wgmma:swap=0,bm=128,bn=128,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=1x2,split_k=1,reduction=none,workers=132,"
    "store=staged,stages=6,group=8"
)
HALVES = Problem(4096, 4096, 4096, "bf16", "nn")


@pytest.mark.parametrize(
    "values",
    [
        {"stages": 3},
        {"group": 2},
        {"store": "direct"},
        {"bn": 96},
        {"cluster": "2x4", "workers": 120},
    ],
    ids=str,
)
def test_measurement_overrules_rules_about_speed(values: dict[str, int | str]) -> None:
    listed = replace(H100, clusters=(66, 33, 15))
    recorded = changed(WGMMA, **values)
    assert space.rejection(WGMMA, HALVES, listed) is None
    assert space.rejection(recorded, HALVES, listed) is not None
    assert space.rejection(recorded, HALVES, listed, recorded=True) is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"stages": 7}, "stages: 7 buffers of 32768 bytes; 6 fit"),
        ({"bn": 100}, "tile: no kernel has tile_m=128 with tile_n=100; swap=0"),
        ({"bn": "wide"}, "value: bn=wide is none of 64, 128, 192, 256"),
        ({"workers": 131}, "workers: 131 workers; 132 blocks are resident"),
        ({"split_k": 2}, "reduction: split_k=2, cluster=1x2 with reduction=none"),
    ],
)
def test_no_measurement_overrules_what_a_kernel_lacks(
    values: dict[str, int | str], reason: str
) -> None:
    impossible = changed(WGMMA, **values)
    assert str(space.rejection(impossible, HALVES, H100, recorded=True)) == reason


def test_missing_parameter_is_named() -> None:
    config = Config("tiled", (("tile_width", 16),))
    assert "specialized" in str(space.rejection(config, SQUARE, H100))


def test_unknown_family_lists_the_families() -> None:
    with pytest.raises(ConfigError, match="naive, tiled, simt"):
        space.feasible(SQUARE, H100, "wmma")


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_read_existing_parameters(family: str) -> None:
    kind = registry.find(family)
    needed = {name for rule in kind.rules for name in rule.needs}
    assert needed <= set(kind.domain(SQUARE, H100))


def test_spread_keeps_all_of_few_configurations() -> None:
    configs = space.feasible(Problem(1, 1, 1), H100).configs
    assert space.spread(configs, len(configs)) == configs


def test_spread_passes_over_the_others() -> None:
    configs = space.feasible(Problem(64, 64, 64), H100).configs
    for most in (1, 7, 100, len(configs), len(configs) + 1):
        sample, left = space.spread(configs, most), space.skipped(configs, most)
        assert sorted([*sample, *left]) == sorted(configs)
        assert not {*sample} & {*left}


def test_spread_is_small_and_has_every_value() -> None:
    configs = space.feasible(Problem(1024, 1024, 1024), find("t4")).configs
    sample = space.spread(configs, 6000)
    assert len(sample) <= 6000
    for name, _ in configs[0].params:
        assert {config.values[name] for config in sample} == {
            config.values[name] for config in configs
        }, name


@cache
def ranked(*families: str) -> list[Config]:
    """All legal configurations of the families, the best predicted first."""
    legal = [config for name in families for config in space.feasible(UNEVEN, H100, name).configs]
    return [config for _, config in cost.rank(legal, UNEVEN, H100)]


def test_few_configurations_share_a_tile_and_iterations() -> None:
    chosen = space.diverse(ranked("simt"), UNEVEN, 10)
    works = [registry.find("simt").work(config, UNEVEN) for config in chosen]
    assert chosen[0] == ranked("simt")[0]
    assert max(Counter((work.tile, work.iterations) for work in works).values()) <= space.ALIKE


def test_best_are_chosen_if_all_tiles_are_equal() -> None:
    one_tile = [
        config
        for config in ranked("simt")
        if (config.integer("bm"), config.integer("bn")) == (64, 64)
    ]
    chosen = space.diverse(one_tile, UNEVEN, 8)
    assert len(chosen) == 8
    assert chosen[0] == one_tile[0]


@pytest.mark.parametrize(
    ("device", "compute", "text"),
    [
        ("t4", "bf16", "bf16 needs compute capability 8.0; Tesla T4 has 7.5; it runs f32,"),
        ("rtx 3090", "f8", "f8 needs compute capability 8.9; NVIDIA GeForce RTX 3090 has 8.6"),
        ("v100", "f16", "f16 needs compute capability 7.5; Tesla V100-SXM2-16GB has 7.0"),
    ],
)
def test_refused_architecture_is_named(device: str, compute: str, text: str) -> None:
    said = space.unserved(Problem(512, 512, 512, compute), find(device))
    assert text in said
    assert compute not in said.partition("it runs ")[2].split(", ")


def test_precisions_that_run_are_those_with_kernels() -> None:
    said = space.unserved(Problem(512, 512, 512, "bf16"), find("t4"))
    assert said.partition("it runs ")[2].split(", ") == ["f32", "tf32", "tf32x3", "f16"]


def test_rule_of_a_lone_family_has_an_example() -> None:
    said = space.unserved(Problem(512, 512, 512), find("t4"), "gemv")
    assert said.endswith("gemv: shape: 512x512 has no side of at most 16")
