"""The wgmma kernel with 8-bit operands on the CPU, under AddressSanitizer and UBSan, against
float64 of the same operands and scales; int32 results are exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.host_cuda import Program, check, run
from support.wgmma_samples import SCALED, Keywords, Sample, Values, built

EIGHT: Values = {"bk": 128}
EXACT: Values = {"bk": 128, "promote": 1}
SMALL: Values = {"bm": 64, "bn": 32, "consumers": 1}
SWAPPED: Values = {"swap": 1, "bn": 128}
STREAM: Values = {"reduction": "stream", "workers": 3}
FUSED: Values = {"reduction": "fused", "split_k": 3}
ODD: Keywords = ({}, {"offsets": (1, 3, 1), "padding": (1, 2, 3)}, {"gaps": (8, 1, 3), "beta": 0.5})
FP8: Keywords = (
    {},
    {"scale_c": 4.0, "amax": 0.5},
    {"scale_c": 0.25, "amax": 1e5, "padding": (16, 32, 3)},
)
BETA: Keywords = ({}, {"alpha": 1.5, "beta": 0.5})

SAMPLES = (
    # Each pair of types, with sums promoted every 128 of K and without, in one or two lines of K.
    Sample("200x136x328:f8:nt", {**EXACT, "store": "staged", "bn": 128}, SCALED),
    Sample("200x136x328:f8:nt:fast", {**EIGHT, "store": "staged", "bn": 128}, SCALED),
    Sample("200x72x600:f8e5:nt:out=f16", {**EXACT, "bk": 256}, BETA),
    Sample("200x72x600:f8e5:nt:e5m2=b:fast:out=f32", {**EIGHT, "bk": 256}, BETA),
    Sample("72x200x328:f8e5:nt:e5m2=b", {**EXACT, **SWAPPED, "bm": 40}, BETA),
    Sample("200x72x328:f8e5:nt:e5m2=ab:bias_gelu", EXACT, SCALED),
    Sample("200x136x328:i8:nt:out=i32", EIGHT, ({}, {"padding": (16, 32, 3)})),
    Sample("200x137x328:i8:nt:out=i32", {**EIGHT, "bn": 144}),
    Sample("200x136x328:i8:nt", {**EIGHT, "store": "staged", "bn": 176}, SCALED),
    Sample("72x200x328:i8:nt:out=i32", {**EIGHT, **SWAPPED, "bm": 48}),
    Sample("72x200x328:i8:nt:out=f32:bias_relu", {**EIGHT, **SWAPPED, "bm": 24}, BETA),
    Sample("72x40x72:f8:nt:batch=3", {**EIGHT, "bn": 40}, ({"shared": "a"}, {"shared": "b"})),
    # Other layouts through transposed copies, rows and addresses that bulk copies cannot read.
    Sample("67x93x131:f8:nn:batch=2", {**EXACT, **SMALL}, ODD),
    Sample("67x93x131:f8e5:tt", {**EXACT, **SMALL, "swap": 1, "bm": 32, "bn": 64}, ODD[:2]),
    Sample("67x93x131:i8:tn:out=i32", {**EIGHT, **SMALL}, ({}, {"offsets": (1, 3, 1)})),
    Sample("67x93x131:i8:nt:bias", {**EIGHT, **SMALL, "pack": "lines"}, ODD[:2]),
    Sample("1x1x1:f8:nn:scale=row", {**EIGHT, **SMALL}),
    # Scales: of the operands, of rows and columns, of blocks whose last are shorter.
    Sample("200x136x328:f8:nt:scale=tensor", {**EXACT, "store": "staged", "bn": 128}, SCALED),
    Sample("72x200x328:i8:nt:scale=tensor", {**EIGHT, **SWAPPED, "bm": 24}, BETA),
    Sample("200x136x328:f8:nt:scale=row:batch=2", {**EXACT, "store": "staged", "bn": 176}, BETA),
    Sample("200x137x328:i8:nt:scale=row:bias_relu", {**EIGHT, "bm": 256}, BETA),
    Sample("67x93x131:f8:tn:scale=row:fast:bias", {**EIGHT, **SMALL}, ODD[:2]),
    Sample(
        "72x200x328:f8:nt:scale=row:batch=2",
        {**EXACT, **SWAPPED, "bm": 40, "bn": 256, "store": "staged"},
        BETA,
    ),
    Sample("200x264x328:f8:nt:scale=block:batch=2", {**EXACT, "bn": 128, "store": "staged"}, BETA),
    Sample("200x264x600:f8:nt:scale=block:out=f32", {**EXACT, "bn": 96, "bk": 256}, BETA),
    Sample("264x290x328:f8e5:nt:e5m2=b:scale=block:bias", {**EXACT, "bn": 192, "bm": 256}),
    Sample(
        "72x264x328:f8:nt:scale=block:batch=2",
        {**EXACT, **SWAPPED, "bm": 40, "bn": 256, "store": "staged"},
        BETA,
    ),
    Sample("67x293x131:f8:nn:scale=block:batch=2", {**EXACT, **SMALL}, ODD[:2]),
    Sample("67x93x100:f8:nt:scale=block", {**EXACT, **SMALL}),
    # SwiGLU, with scales and without.
    Sample("200x272x328:f8:nt:scale=row:swiglu", {**EXACT, "store": "staged", "bn": 128}),
    Sample("200x272x328:f8:nt:scale=block:swiglu:batch=2", {**EXACT, "bn": 96}),
    Sample("200x272x328:f8e5:nt:fast:swiglu:out=f32", {**EIGHT, "bn": 176}),
    Sample("200x144x328:i8:nt:swiglu:scale=tensor", {**EIGHT, "bn": 144, "store": "staged"}),
    Sample(
        "40x272x328:f8:nt:scale=block:swiglu",
        {**EXACT, **SWAPPED, "bm": 40, "bn": 256, "store": "staged"},
    ),
    Sample("40x272x328:i8:nt:scale=row:swiglu:out=f16", {**EIGHT, **SWAPPED, "bm": 24}),
    # A residual.
    Sample("200x136x328:f8:nt:scale=row:residual", {**EXACT, "store": "staged"}, SCALED),
    Sample("200x264x328:f8:nt:scale=block:bias_residual:batch=2", {**EXACT, "bn": 128}, BETA),
    Sample(
        "72x200x328:i8:nt:scale=row:residual",
        {**EIGHT, **SWAPPED, "bm": 80, "bn": 256, "store": "staged"},
        BETA,
    ),
    Sample(
        "72x40x1100:f8:nt:scale=row:residual",
        {**EXACT, **SMALL, "cluster": "1x1x2", "split_k": 2, "store": "staged"},
    ),
    # fp8 results, by bulk copies, through shared memory and from registers.
    Sample("200x272x328:f8:nt:out=e5m2:bias_gelu", {**EXACT, "bn": 176, "store": "staged"}, FP8),
    Sample("200x137x328:f8e5:nt:out=e4m3:bias:batch=2", {**EXACT, "store": "staged"}, FP8),
    Sample(
        "72x201x328:f8:nt:scale=row:out=e4m3:bias_relu",
        {**EXACT, **SWAPPED, "bm": 80, "bn": 256, "store": "staged"},
        FP8,
    ),
    Sample("200x272x600:f8:nt:swiglu:out=e4m3", {**EXACT, **STREAM, "bn": 176}, FP8),
    Sample(
        "40x272x328:f8:nt:scale=block:swiglu:out=e4m3",
        {**EXACT, **SWAPPED, "bm": 40, "bn": 256, "store": "staged"},
        FP8,
    ),
    # fp8 results of tiles, and of parts of tiles, that start between vectors of 16 columns.
    Sample("136x80x328:f8:nt:out=e4m3", {**EXACT, **SMALL, "bn": 40, "store": "staged"}, FP8),
    Sample("136x80x328:f8:nt:out=e5m2", {**EXACT, **SMALL, "bn": 40}, FP8),
    Sample("136x160x328:f8:nt:swiglu:out=e4m3", {**EXACT, **SMALL, "bn": 80, "store": "staged"}),
    Sample(
        "72x80x1100:f8:nt:scale=row:out=e4m3",
        {**EXACT, **SMALL, "cluster": "1x1x4", "split_k": 4, "store": "staged"},
        FP8,
    ),
    # Split-K and stream-K through the workspace, ping-pong, resident blocks.
    Sample("200x136x600:f8:nt:scale=row", {**EXACT, **FUSED, "workers": 4}, BETA),
    Sample("200x136x600:f8:nt:scale=block:batch=2", {**EXACT, **FUSED}),
    Sample("200x136x600:f8:nt:scale=block", {**EXACT, **STREAM, "group": 4}, BETA),
    Sample("200x136x600:i8:nt:out=i32", {**EIGHT, **FUSED}),
    Sample("200x136x600:i8:nt:scale=row", {**EIGHT, **STREAM}, BETA),
    Sample("72x264x600:i8:nt:out=i32", {**EIGHT, **SWAPPED, "bm": 48, **STREAM}),
    Sample(
        "264x136x600:f8:nt:scale=row",
        {**EXACT, "schedule": "pingpong", "workers": 2, "store": "staged", **FUSED},
    ),
    Sample(
        "264x136x600:f8:nt:scale=block",
        {**EXACT, "schedule": "pingpong", "workers": 2, "bm": 64, "store": "staged"},
    ),
    # Clusters: operands that blocks share, and splits of K that they add up.
    Sample("136x72x264:f8:nt:scale=row", {**EXACT, **SMALL, "cluster": "2x1"}, BETA),
    Sample("136x72x264:f8:nt:scale=block", {**EXACT, **SMALL, "cluster": "2x2", "workers": 4}),
    Sample(
        "72x40x1100:f8:nt:scale=row", {**EXACT, **SMALL, "cluster": "1x1x2", "split_k": 2}, BETA
    ),
    Sample("72x40x1100:f8:nt:scale=block", {**EXACT, **SMALL, "cluster": "1x1x4", "split_k": 4}),
    Sample("72x40x1100:i8:nt:out=i32", {**EIGHT, **SMALL, "cluster": "1x1x4", "split_k": 4}),
    Sample(
        "72x40x1100:i8:nt:scale=row",
        {**EIGHT, **SMALL, "cluster": "1x1x2", "split_k": 4, "reduction": "fused"},
    ),
    Sample(
        "40x264x1100:f8:nt:scale=block",
        {**EXACT, **SWAPPED, "bm": 32, "cluster": "1x1x2", "split_k": 2, "store": "staged"},
        BETA,
    ),
)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    return built(SAMPLES, host_objects)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_wgmma_of_8_bits_matches_float64(program: Program, sample: Sample) -> None:
    check(program, sample.cases)


@pytest.mark.parametrize("sample", [item for item in SAMPLES if item.without_product], ids=str)
def test_wgmma_of_8_bits_with_alpha_0_ignores_nan(program: Program, sample: Sample) -> None:
    (case,) = sample.without_product
    check(program, [case, replace(case, b_ready=True)])


@pytest.mark.parametrize("sample", [item for item in SAMPLES if "split_k" in item.config], ids=str)
def test_splits_of_8_bits_add_up_to_the_same_bits(program: Program, sample: Sample) -> None:
    first, *repeats = run(program, sample.cases[:1] * 3)
    assert [repeat.tobytes() for repeat in repeats] == [first.tobytes()] * 2


@pytest.mark.parametrize("sample", SAMPLES[::6], ids=str)
def test_b_that_is_loaded_ahead_gives_the_same_bits(program: Program, sample: Sample) -> None:
    case = sample.cases[0]
    waiting, ahead = run(program, (case, replace(case, b_ready=True)))
    assert waiting.tobytes() == ahead.tobytes()
