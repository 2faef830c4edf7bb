"""Predicted relative errors against those of verified kernels, and the rule that follows."""

from __future__ import annotations

import re

import pytest
from support import results

from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.summation import (
    ErrorLimit,
    measured_limit,
    possible_limit,
    promised_limit,
    vendor_errors,
)
from autotune.measure.measurement import Failure
from autotune.measure.recording import SweepRow
from autotune.model import space
from autotune.model.legality import order_of
from autotune.model.space import AccuracyFilter
from autotune.problem import Problem
from autotune.problem.problem import COMPARABLE, relative_bound

H100 = find("h100")

RECORDED = [name for name in results.names("h100") if name.endswith(("-f32-nn", "-tf32x3-nn"))]

DRAWN = [name for name in results.names("h200", "drawn") if name.split("-")[1] in ("f32", "tf32x3")]

SHORT = 64
"""K from which the errors of single roundings do not matter."""

MATTERS = 1.02
"""Times up to this multiple of the fastest matter."""


def error_of(row: SweepRow) -> float | None:
    """The measured relative error of a recorded kernel; None if it has not run."""
    if not isinstance(row.outcome, Failure):
        return row.outcome.relative_error
    match = re.match(r"relative error (\S+) is", row.outcome.reason)
    return float(match[1]) if row.outcome.stage == "accuracy" and match else None


@pytest.mark.parametrize("name", RECORDED)
def test_prediction_agrees_with_each_recorded_verdict(name: str) -> None:
    recording = results.recording("h100", name)
    assert recording.baseline is not None
    assert recording.baseline.relative_error is not None
    problem, vendor = recording.problem, recording.baseline.relative_error
    errors = {row.config: error for row in recording.rows if (error := error_of(row)) is not None}
    bound = relative_bound(problem, vendor)
    failing = {config for config, error in errors.items() if error > bound}
    times = {
        row.config: row.outcome.time_us
        for row in recording.rows
        if row.config in errors.keys() - failing and not isinstance(row.outcome, Failure)
    }
    best = [config for config, time in times.items() if time <= MATTERS * min(times.values())]

    def passing(limit: ErrorLimit) -> set[Config]:
        return set(AccuracyFilter(problem, limit).passing(errors))

    assert not failing & passing(measured_limit(problem, vendor))
    assert not failing & passing(promised_limit(problem, H100))
    assert passing(measured_limit(problem, vendor)).issuperset(best)
    assert passing(possible_limit(problem, H100)).issuperset(times)
    bounds = vendor_errors(problem, H100)
    assert bounds.least <= vendor <= 1.03 * bounds.most


def test_recorded_errors_of_the_vendor_are_within_the_bounds() -> None:
    beyond: dict[str, float] = {}
    assert len(DRAWN) > 100
    for name in DRAWN:
        recording = results.recording("h200", name, "drawn")
        problem, baseline = recording.problem, recording.baseline
        compared = problem.m * problem.n >= COMPARABLE and problem.k >= SHORT
        if compared and baseline is not None and baseline.relative_error is not None:
            bounds, error = vendor_errors(problem, recording.device), baseline.relative_error
            if not bounds.least <= error <= 1.03 * bounds.most:
                beyond[str(problem)] = error
    assert beyond == {}


def test_vendor_may_split_three_full_waves_into_three() -> None:
    bounds = vendor_errors(Problem.parse("2000x3000x1500:f32"), find("h200"))
    assert bounds.least <= 4.05e-7 <= bounds.most  # 4.0e-7 was measured


def test_long_runs_in_tensor_cores_break_the_rule() -> None:
    problem = Problem.parse("512x512x512:tf32x3")
    parts = "workers=0,store=direct,stages=9,group=1"
    config = Config.parse(
        "wgmma:swap=1,bm=64,bn=64,consumers=1,schedule=cooperative,min_blocks=1,source=registers,"
        f"low=kernel,pack=needed,bk=32,promote=4,cluster=1x1,split_k=1,reduction=none,{parts}"
    )
    rejected = space.rejection(config, problem, H100)
    assert rejected is not None
    assert str(rejected) == (
        "accuracy: relative error of about 9.1e-07; 8.5e-07 at most, for 2 times the vendor "
        "library's, whose own is 4.1e-07 at most"
    )


@pytest.mark.parametrize("text", ["64x64x4096:f8:nt", "64x64x65536:f8:nt:fast"])
@pytest.mark.parametrize("family", ["wgmma", "mma"])
def test_legal_sums_of_fp8_keep_the_promised_bound(text: str, family: str) -> None:
    problem = Problem.parse(text)
    legal = space.spread(space.feasible(problem, H100, family).configs, 200)
    assert AccuracyFilter(problem, promised_limit(problem, H100)).passing(legal) == [*legal]


def test_unpromoted_sums_of_fp8_break_the_promised_bound() -> None:
    exact = Problem.parse("256x256x4096:f8:nt:out=f32")
    fast = Problem.parse("256x256x4096:f8:nt:out=f32:fast")
    config = space.feasible(fast, H100, "mma").configs[0]
    assert config.values["promote"] == 0
    assert AccuracyFilter(fast, promised_limit(fast, H100)).fault(config) is None
    assert AccuracyFilter(exact, promised_limit(exact, H100)).fault(config) is not None


def test_most_accurate_remain_where_none_passes() -> None:
    problem = Problem(4096, 4096, 4096)
    chunked, whole = (
        Config.parse(
            "simt:bm=128,bn=256,wm=64,wn=64,tm=16,tn=8,slices=1,bk=8,copy=async,stages=4,"
            "fragments=2,min_blocks=1,split_k=1,reduction=none,workers=0,"
            f"chunks={chunks},pack=none,group=1,fence=0,order=snake"
        )
        for chunks in (2, 1)
    )
    strict = AccuracyFilter(problem, ErrorLimit(1e-9, "at all"))
    assert strict.passing([whole, chunked]) == []
    assert strict.accurate([whole, chunked]) == [chunked]


@pytest.mark.parametrize("compute", ["tf32", "bf16", "f16", "i8"])
def test_error_of_other_precisions_is_not_limited(compute: str) -> None:
    problem = Problem(512, 512, 65536, compute)
    legal = space.spread(space.feasible(problem, H100, "mma").configs, 20)
    assert AccuracyFilter(problem, ErrorLimit(0.0, "at all")).passing(legal) == [*legal]


@pytest.mark.parametrize("text", ["1856x10560x384", "5824x3477x380:f32:nt"])
def test_short_sums_of_many_tiles_keep_the_promised_bound(text: str) -> None:
    problem, card = Problem.parse(text), find("h200")
    legal = space.spread(space.feasible(problem, card, "simt").configs, 200)
    assert AccuracyFilter(problem, promised_limit(problem, card)).passing(legal) == [*legal]


# The order of summation of each family's configurations


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
