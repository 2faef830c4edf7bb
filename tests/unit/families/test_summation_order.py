"""The order of summation of each family's configurations."""

from __future__ import annotations

import pytest

from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.model import space
from autotune.model.orders import order_of
from autotune.problem import Problem

H100 = find("h100")
WGMMA: dict[str, Value] = {
    **{"swap": 0, "bm": 128, "bn": 64, "consumers": 2, "schedule": "cooperative"},
    **{"min_blocks": 1, "source": "shared", "low": "none", "pack": "needed", "bk": 64},
    **{"promote": 0, "cluster": "1x1", "split_k": 1, "reduction": "none", "workers": 0},
    **{"store": "direct", "stages": 3, "group": 1},
}
MMA: dict[str, Value] = {
    **{"compute": "bf16", "swap": 0, "bm": 64, "bn": 64, "wm": 32, "wn": 32, "slices": 1},
    **{"bk": 64, "copy": "async", "pack": "none", "stages": 3, "split_k": 1, "promote": 0},
    **{"min_blocks": 1, "store": "direct", "group": 1},
}
SIMT: dict[str, Value] = {
    **{"bm": 64, "bn": 64, "wm": 32, "wn": 32, "tm": 8, "tn": 4, "slices": 1, "bk": 16},
    **{"copy": "async", "stages": 3, "fragments": 2, "min_blocks": 1, "split_k": 1},
    **{"reduction": "none", "workers": 0, "chunks": 1, "pack": "none", "group": 1, "fence": 0},
    **{"order": "rows"},
}
BASES = {"wgmma": WGMMA, "mma": MMA, "simt": SIMT}
BF16, F8, F32 = "8x64x1024:bf16", "8x64x1024:f8:nt:scale=row", "8x64x1024:f32"
TF32X3, I8 = "8x64x1024:tf32x3:nt", "8x64x1024:i8:nt:scale=row"


def order(family: str, problem: str, **changes: Value) -> str:
    config = Config.of(family, {**BASES[family], **changes})
    return str(order_of(config, Problem.parse(problem)))


@pytest.mark.parametrize(
    ("family", "problem", "changes", "expected"),
    [
        ("wgmma", BF16, {}, "wgmma bf16 swap=0 shared 1024"),
        ("wgmma", BF16, {"swap": 1, "bk": 128}, "wgmma bf16 swap=1 shared 1024"),
        ("wgmma", "8x64x1000:bf16", {"bk": 128}, "wgmma bf16 swap=0 shared 1024"),
        ("wgmma", "8x64x1088:bf16", {"split_k": 3, "reduction": "fused"}, "+(2*384,320)"),
        ("wgmma", BF16, {"split_k": 4, "cluster": "1x1x4"}, "+(4*256)"),
        ("wgmma", BF16, {"split_k": 4, "cluster": "1x1x2"}, "+(2*+(2*256))"),
        ("wgmma", F8, {"bk": 128, "promote": 2}, "+(8*128)"),
        (
            "wgmma",
            "8x64x1024:tf32x3:nt",
            {"bk": 32, "promote": 4, "source": "registers"},
            "+(8*128)",
        ),
        ("mma", BF16, {"slices": 2}, "mma bf16 swap=0 2/32(1024)"),
        ("mma", "8x64x1088:bf16", {"split_k": 3}, "+(2*384,320)"),
        ("mma", F8, {"bk": 128, "slices": 2, "promote": 2}, "2/64(+(4*256))"),
        ("simt", F32, {"chunks": 2, "slices": 2}, "ffma 2/8(512+512)"),
        ("simt", F32, {"split_k": 4, "reduction": "fused"}, "ffma +(4*256)"),
        ("simt", F32, {"split_k": 4, "reduction": "separate"}, "ffma 4/1(+(4*256))"),
        ("wgmma", I8, {"bk": 128, "split_k": 2, "reduction": "fused"}, "exact integers"),
        ("mma", I8, {"compute": "i8", "swap": 1}, "exact integers"),
    ],
)
def test_order_tells_how_sums_nest(
    family: str, problem: str, changes: dict[str, Value], expected: str
) -> None:
    assert order(family, problem, **changes).endswith(expected)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("wgmma", {"bm": 256, "bn": 128, "stages": 4, "cluster": "2x1", "store": "staged"}),
        ("wgmma", {"schedule": "pingpong", "workers": 132, "source": "streamed", "group": 8}),
        ("mma", {"bm": 128, "wm": 64, "stages": 4, "bk": 32, "min_blocks": 2, "store": "staged"}),
        ("simt", {"bm": 128, "tm": 16, "bk": 32, "fence": 1, "order": "snake", "pack": "ab"}),
    ],
)
def test_tile_stages_and_cluster_leave_the_order(family: str, changes: dict[str, Value]) -> None:
    problem = F32 if family == "simt" else BF16
    assert order(family, problem, **changes) == order(family, problem)


def test_promoted_run_is_a_split_of_its_length() -> None:
    """Both add the sums of the same runs to a zero in fp32, one after the other."""
    problem = "8x64x1024:tf32:nt"
    promoted = order("mma", problem, compute="tf32", bk=32, promote=8)
    assert promoted == order("mma", problem, compute="tf32", bk=32, split_k=4)


@pytest.mark.parametrize("family", ["wgmma", "simt"])
def test_stream_k_has_no_order(family: str) -> None:
    problem = F32 if family == "simt" else BF16
    assert order(family, problem, reduction="stream", workers=132) == "None"


@pytest.mark.parametrize("m", [1, 5, 300, 4096])
@pytest.mark.parametrize("problem", [BF16, F8, F32, "8x64x1024:tf32x3:nt"])
def test_order_does_not_depend_on_m(problem: str, m: int) -> None:
    few, many = Problem.parse(problem), Problem.parse(problem.replace("8x", f"{m}x", 1))
    configs = [
        config
        for family in registry.tuned(few)
        for config in space.spread(space.feasible(few, H100, family).configs, 40)
        if family != "gemv"
    ]
    orders = [order_of(config, few) for config in configs]
    assert orders == [order_of(config, many) for config in configs]
    assert len(set(orders)) > 3
