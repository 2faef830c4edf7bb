"""Configurations made to fit another problem, and variants of which one parameter differs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from autotune.device import Device, find
from autotune.families.config import Config
from autotune.lookup.nearest import members_of
from autotune.model import cost, space
from autotune.model.space import Adaptation, variants
from autotune.problem import Problem

H200, L4 = find("h200"), find("l4")

ODD = Problem(300, 520, 1000, "bf16", "nt")

SQUARE = Problem(4096, 4096, 4096, "bf16", "nt")

WGMMA = Config.parse(
    "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,source=shared,low=none,"
    "pack=needed,bk=64,promote=0,cluster=2x1,split_k=1,reduction=none,workers=132,store=staged,"
    "stages=3,group=8"
)

UNLIKE = (
    *(Problem(1000, 600, 512, "bf16", "nt"), Problem(3, 5000, 777, "bf16", "nn")),
    *(Problem(300, 8192, 264, "tf32", "nn"), Problem(1111, 64, 9000, "f8", "nt", scale="row")),
)


def changed(config: Config, **values: int | str) -> Config:
    return Config.of(config.family, config.values | values)


def worth_trying(problem: Problem, device: Device) -> Callable[[Config], bool]:
    """Whether a configuration is legal and not too slow to try."""
    return lambda config: space.rejection(config, problem, device) is None


@pytest.mark.parametrize(("compute", "family"), [("f32", "simt"), ("bf16", "wgmma"), ("i8", "mma")])
def test_legal_configuration_stays(compute: str, family: str) -> None:
    problem = Problem(1000, 600, 512, compute, "nt")
    adapt, legal = Adaptation(problem, H200), space.feasible(problem, H200, family).configs
    assert all(adapt(config) == config for config in Random(1).sample(legal, 50))


@pytest.mark.parametrize("device", [H200, L4], ids=lambda device: device.slug)
@pytest.mark.parametrize("problem", UNLIKE, ids=str)
def test_only_numbers_change_and_the_result_is_legal(problem: Problem, device: Device) -> None:
    adapt, legal = Adaptation(problem, device), worth_trying(problem, device)
    fitting = [
        (config, adapted) for config in members_of(problem, H200) if (adapted := adapt(config))
    ]
    assert fitting
    for config, adapted in fitting:
        assert legal(adapted)
        for name, value in config.params:
            if isinstance(value, str) or value == 0:
                assert adapted.values[name] == value


def test_columns_that_are_not_tried_become_the_nearest() -> None:
    problem = Problem(4096, 1100, 4096, "bf16", "nt")
    legal = space.feasible(problem, H200, "wgmma").configs
    plain = (config for config in legal if not config.values["swap"])
    config = next(config for config in plain if config.values["bn"] == 224)
    assert Adaptation(problem, H200)(changed(config, bn=216)) == config


def test_stages_follow_the_tile() -> None:
    shallow = changed(WGMMA, bn=128, stages=3)
    assert not worth_trying(SQUARE, H200)(shallow)
    adapted = Adaptation(SQUARE, H200)(shallow)
    assert adapted is not None
    assert adapted.integer("stages") > 3
    assert changed(adapted, stages=3) == shallow


@pytest.mark.parametrize(
    ("problem", "device"),
    [(Problem(4096, 4096, 4096), H200), (SQUARE, L4)],
    ids=["precision", "device"],
)
def test_kernel_that_does_not_serve_is_left_out(problem: Problem, device: Device) -> None:
    assert Adaptation(problem, device)(WGMMA) is None


def test_parameters_of_another_version_do_not_fit() -> None:
    values = {name: value for name, value in WGMMA.values.items() if name != "low"}
    assert Adaptation(SQUARE, H200)(Config.of("wgmma", values)) is None


@pytest.mark.parametrize("device", [H200, L4], ids=lambda device: device.slug)
@pytest.mark.parametrize("problem", UNLIKE, ids=str)
def test_repaired_configurations_are_legal(problem: Problem, device: Device) -> None:
    adapt, legal = Adaptation(problem, device), worth_trying(problem, device)
    repaired = 0
    for config in members_of(problem, H200):
        adapted, mended = adapt(config), adapt.repaired(config)
        assert adapted in (None, mended)
        repaired += adapted != mended
        assert mended is None or (legal(mended) and mended.family == config.family)
    assert repaired


def test_repair_changes_few_parameters() -> None:
    problem = Problem(4, 928, 4446, "f32", "tn")
    config = Config.parse("gemv:rows=2,columns=4,depth=4,across=8,ways=16,split_k=64,stages=3")
    adapt = Adaptation(problem, H200)
    assert adapt(config) is None
    repaired = adapt.repaired(config)
    assert repaired is not None
    unlike = [name for name, value in config.params if repaired.values[name] != value]
    assert "rows" in unlike
    assert len({*unlike} - {"stages"}) <= 3


def test_shape_that_a_family_does_not_serve_is_not_repaired() -> None:
    config = Config.parse("gemv:rows=4,columns=4,depth=4,across=4,ways=16,split_k=24,stages=1")
    assert Adaptation(Problem(512, 512, 512, "f32"), H200).repaired(config) is None


def changes(before: Config, after: Config) -> set[str]:
    pairs = zip(before.params, after.params, strict=True)
    return {name for (name, value), (_, changed) in pairs if value != changed}


@pytest.fixture(scope="module", params=["mma", "wgmma"])
def best(request: pytest.FixtureRequest) -> Config:
    return cost.rank(space.sample(ODD, H200, request.param), ODD, H200)[0][1]


def test_variants_are_legal_and_differ_in_one_parameter(best: Config) -> None:
    legal = worth_trying(ODD, H200)
    found = variants([best], ODD, H200)
    assert len(found) == len({*found}) > 5
    for variant in found:
        assert legal(variant)
        assert len(changes(best, variant) - {"stages"}) <= 1


def test_stages_follow_a_larger_tile() -> None:
    found = [
        changes(config, variant)
        for config in space.sample(ODD, H200, "wgmma")[::200]
        for variant in variants([config], ODD, H200)
    ]
    assert {"bn", "stages"} in found
