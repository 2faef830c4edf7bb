"""Rejections and launches of the naive and the tiled family."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from autotune import device, settings
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import Family
from autotune.families.plan import Alignment, Launch, LaunchPlan
from autotune.families.registry import FAMILIES
from autotune.families.shared.arguments import each_type
from autotune.families.textbook import NAIVE, TILED, shared_bytes
from autotune.model import space
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SQUARE = Problem(4096, 4096, 4096)

H100 = device.find("h100")

SMALL = replace(H100, name="Small", threads_per_block=512, shared_per_block=1024)


def _plan(text: str, problem: Problem) -> LaunchPlan:
    config = Config.parse(text)
    return FAMILIES[config.family].plan(config, problem, Alignment.dense(problem))


def test_naive_has_two_mappings_and_three_block_sizes() -> None:
    assert len(space.feasible(SQUARE, H100, "naive").configs) == 6


def test_tiled_has_widths_4_to_32_compiled_in_or_not() -> None:
    assert len(space.feasible(SQUARE, H100, "tiled").configs) == 2 * 29


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "naive:mapping=coalesced,block=32",
            "threads: needs 1024 threads a block, Small allows 512",
        ),
        (
            "tiled:tile_width=32,specialized=1",
            "threads: needs 1024 threads a block, Small allows 512",
        ),
        (
            "tiled:tile_width=12,specialized=0",
            "shared memory: needs 1152 bytes a block, Small allows 1024",
        ),
    ],
)
def test_rejections_name_reason_and_numbers(text: str, reason: str) -> None:
    assert str(space.rejection(Config.parse(text), SQUARE, SMALL)) == reason


def test_grid_beyond_cudas_limit_is_rejected() -> None:
    problem = Problem(2**20, 2**20, 1)
    config = Config.parse("tiled:tile_width=4,specialized=1")
    rejection = space.rejection(config, problem, H100)
    assert str(rejection) == "grid: needs 68719476736 blocks, a grid allows 2147483647"


def test_two_fp32_tiles_take_8_bytes_an_element() -> None:
    assert [shared_bytes(width) for width in (16, 32)] == [2048, 8192]


@pytest.mark.parametrize("shape", [(100_000, 128, 128), (32, 32, 1_000_000), (1, 2**31 - 1, 1)])
@pytest.mark.parametrize(
    "text", ["naive:mapping=uncoalesced,block=8", "tiled:tile_width=5,specialized=1"]
)
def test_blocks_lie_along_x_of_the_grid(text: str, shape: tuple[int, int, int]) -> None:
    (launch,) = _plan(text, Problem(*shape)).launches
    side = launch.block[0]
    tiles = ceil_div(shape[0], side) * ceil_div(shape[1], side)
    assert launch.grid == (tiles, 1, 1)


def test_unspecialized_kernel_serves_every_width() -> None:
    plans = [_plan(f"tiled:tile_width={width},specialized=0", SQUARE) for width in range(4, 33)]
    assert len({plan.launches[0].template for plan in plans}) == 1


def test_specialized_kernel_is_compiled_for_its_width() -> None:
    (launch,) = _plan("tiled:tile_width=12,specialized=1", SQUARE).launches
    assert dict(launch.template.arguments)["TILE_WIDTH"] == 12


@pytest.mark.parametrize(
    ("layout", "transposed"), [("nn", (0, 0)), ("nt", (0, 1)), ("tn", (1, 0)), ("tt", (1, 1))]
)
def test_layout_is_a_template_argument(layout: str, transposed: tuple[int, int]) -> None:
    plan = _plan("naive:mapping=coalesced,block=16", replace(SQUARE, layout=layout))
    arguments = dict(plan.launches[0].template.arguments)
    assert (arguments["TRANS_A"], arguments["TRANS_B"]) == transposed


@pytest.mark.parametrize(
    ("epilogue", "compiled"),
    [("none", "Epilogue::NONE"), ("bias_relu", "Epilogue::BIAS_RELU"), ("gelu", "Epilogue::GELU")],
)
def test_epilogue_is_a_template_argument(epilogue: str, compiled: str) -> None:
    plan = _plan("tiled:tile_width=16,specialized=0", replace(SQUARE, epilogue=epilogue))
    assert plan.launches[0].template.values["EPILOGUE"] == compiled


@pytest.mark.parametrize(
    "text", ["naive:mapping=coalesced,block=16", "tiled:tile_width=16,specialized=1"]
)
def test_grid_has_a_layer_for_each_matrix(text: str) -> None:
    (launch,) = _plan(text, Problem(64, 32, 8, batch=5)).launches
    assert launch.grid == (8, 1, 5)


@pytest.mark.parametrize("family", [NAIVE, TILED], ids=lambda family: family.name)
def test_estimate_matches_the_launch(family: Family[Any]) -> None:
    for config in space.feasible(SQUARE, H100, family.name).configs:
        (launch,) = _plan(str(config), SQUARE).launches
        estimate = family.estimate(config, SQUARE)
        assert (estimate.threads, estimate.shared) == (launch.threads, launch.shared)


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3"])
@pytest.mark.parametrize("name", ["naive", "tiled", "simt", "gemv"])
def test_cuda_core_families_serve_fp32_operands(name: str, compute: str) -> None:
    problem = replace(SQUARE, compute=compute)
    assert registry.serving(name, problem) is FAMILIES[name]


@pytest.mark.parametrize("compute", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["naive", "tiled", "simt", "gemv"])
def test_enumeration_refuses_unserved_precisions(name: str, compute: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} does not compute {compute}"):
        space.feasible(replace(SQUARE, compute=compute), H100, name)


def test_plans_refuse_unserved_precisions() -> None:
    config, problem = Config.parse("naive:mapping=coalesced,block=8"), Problem(8, 8, 8, "f16")
    for use in (
        lambda: registry.plan(config, problem),
        lambda: space.rejection(config, problem, H100),
    ):
        with pytest.raises(ConfigError, match="naive does not compute f16; give one of"):
            use()


@pytest.mark.parametrize(
    ("compute", "last"), [("f32", ["simt", "gemv"]), ("tf32", ["simt", "gemv"]), ("bf16", [])]
)
def test_search_tries_tensor_cores_first(compute: str, last: list[str]) -> None:
    problem = replace(SQUARE, compute=compute)
    tuned = registry.tuned(problem)
    tensor_cores = [name for name in tuned if name not in ("simt", "gemv")]
    assert [*tensor_cores, *last] == list(tuned)
    assert all(compute in FAMILIES[name].precisions for name in tuned)
    assert compute != "f32" or not tensor_cores


@pytest.mark.parametrize(
    ("problem", "types"),
    [
        (Problem(1, 1, 1, "tf32"), ["F32", "F32", "F32"]),
        (Problem(1, 1, 1, "f16"), ["F16", "F16", "F16"]),
        (Problem(1, 1, 1, "bf16", output="f32"), ["BF16", "BF16", "F32"]),
        (Problem(1, 1, 1, "f8e5", e5m2="b"), ["E4M3", "E5M2", "BF16"]),
    ],
    ids=str,
)
def test_types_are_template_arguments(problem: Problem, types: list[str]) -> None:
    names, values = zip(*each_type(problem), strict=True)
    assert names == ("TYPE_A", "TYPE_B", "OUTPUT")
    assert [str(value) for value in values] == [f"ElementType::{name}" for name in types]


# With the first configuration of each tensor-core family, these launch every kernel.
LAUNCHED = (
    "naive:mapping=coalesced,block=16",
    "tiled:tile_width=16,specialized=1",
    "gemv:rows=8,columns=4,depth=8,across=32,ways=4,split_k=8,stages=3",
    "simt:bm=32,bn=64,wm=16,wn=32,tm=4,tn=4,slices=1,bk=8,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=2,reduction=separate,workers=0,chunks=1,pack=ab,group=1,fence=0,"
    "order=rows",
)

TENSOR_CORES = ("mma", "wgmma")


def _launches() -> list[Launch]:
    plans = [_plan(text, Problem(8, 512, 512)) for text in LAUNCHED]
    large = Problem(512, 512, 512, "bf16")
    for name in TENSOR_CORES:
        config = space.feasible(large, H100, name).configs[0]
        plans.append(registry.plan(config, large))
    return [launch for plan in plans for launch in plan.launches]


def test_every_template_argument_is_used() -> None:
    for launch in _launches():
        template = launch.template
        sources = settings.source_dir()
        folder = sources / "include" / {"wgmma": "hopper"}.get(template.kernel, template.kernel)
        text = "".join(
            path.read_text() for path in (sources / template.source, *folder.glob("*.cuh"))
        )
        used = {*re.findall(r"\b(?:Params|P|S)::(?:template )?(\w+)", text)}
        assert {name for name, _ in template.arguments} - used == set()


def test_every_template_argument_is_documented() -> None:
    for launch in _launches():
        template = launch.template
        text = (settings.source_dir() / template.source).read_text()
        head = text[: text.index("#include")].partition("// Params")[2].partition("Constraints")[0]
        words = {*re.findall(r"\w+", head)}
        names = {name.removesuffix("_A").removesuffix("_B") for name, _ in template.arguments}
        named = {name.removesuffix("_A").removesuffix("_B") for name in words}
        assert names - named == set(), template.kernel
