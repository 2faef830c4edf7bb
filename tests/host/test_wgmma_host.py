"""The wgmma kernel on the CPU, with emulated barriers, bulk copies and tensor cores, under
AddressSanitizer and UBSan, against numpy in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host_cuda import Program, check, run
from support.wgmma_samples import REGISTERS, SCALED, SPLIT, Keywords, Sample, Values, built

ODD: Keywords = ({}, {"offsets": (1, 3, 1), "padding": (1, 2, 3)}, {"gaps": (8, 1, 3), "beta": 0.5})
PLAIN_C: Keywords = ({}, {"padding": (8, 16, 24)})
ODD_C: Keywords = (*PLAIN_C, {"offsets": (1, 3, 1), "padding": (1, 2, 3)})
STREAM: Values = {"reduction": "stream", "workers": 3}
FUSED: Values = {"reduction": "fused", "split_k": 3}

SAMPLES = (
    # Every layout, whole tiles and rows that end within a tile, staged and direct stores.
    Sample("200x136x328:bf16:nn", {"store": "staged"}, SCALED),
    Sample("200x136x328:f16:nt", {"store": "staged", "bn": 128}, SCALED),
    Sample("136x200x328:bf16:tt", {"swap": 1, "bm": 64, "bn": 128, "store": "staged"}, SCALED),
    Sample("200x72x264:bf16:tn:out=f32:bias_gelu", {"bn": 96, "bk": 128}, ({"beta": 0.5},)),
    Sample("24x200x264:f16:tn:bias_relu", {"swap": 1, "bm": 24, "bn": 128}, SCALED),
    Sample("200x72x300:f16:nn", {"bk": 128, "bm": 192, "consumers": 3, "store": "staged"}),
    Sample("72x264x72:bf16:nn", {"bm": 64, "bn": 256, "consumers": 1, "min_blocks": 1}),
    Sample("264x48x72:f16:tt:out=f32", {"bm": 128, "bn": 40, "consumers": 1, "min_blocks": 3}),
    # Rows, addresses and matrices that bulk copies cannot read; C allows no vectors.
    Sample(
        "67x93x131:bf16:nn:batch=2", {"bm": 64, "bn": 72, "consumers": 1, "store": "staged"}, ODD
    ),
    Sample("67x93x131:f16:tt:bias", {"swap": 1, "bm": 72, "bn": 64, "consumers": 1}, ODD[:2]),
    Sample("67x93x131:tf32:nn", {"bk": 32}, ODD[:2]),
    Sample("1x1x1:bf16:nn", {"bm": 64, "bn": 8, "consumers": 1}),
    Sample(
        "72x40x72:bf16:nt:batch=3", {"bn": 40}, ({"shared": "a"}, {"shared": "b"}, {"alpha": 0.0})
    ),
    # Biases of staged tiles: several registers of them, of columns beyond the edge, of rows.
    Sample("200x136x328:f16:nt:bias_gelu", {"store": "staged", "bn": 176}, SCALED),
    Sample("67x93x131:bf16:nn:bias_gelu_tanh", {"bn": 72, "store": "staged"}, ODD[:2]),
    Sample(
        "136x200x328:bf16:tt:bias_silu",
        {"swap": 1, "bm": 64, "bn": 256, "store": "staged"},
        SCALED[:2],
    ),
    # A residual: stored in lines of C by bulk copies and by threads, of whole and odd rows, of rows
    # and columns of a transposed tile, straight from registers, by the last block of a tile.
    Sample("200x136x328:f16:nt:residual", {"store": "staged", "bn": 176}, SCALED),
    Sample("200x256x328:bf16:nt:bias_residual:batch=2", {"store": "staged", "bn": 128}, SCALED),
    Sample("67x93x131:bf16:nn:bias_residual", {"bn": 72, "store": "staged"}, ODD),
    Sample(
        "136x200x328:bf16:tt:bias_residual",
        {"swap": 1, "bm": 64, "bn": 256, "store": "staged"},
        SCALED,
    ),
    Sample("200x72x264:bf16:tn:out=f32:residual", {"bn": 96}, SCALED),
    Sample("24x200x264:f16:tn:residual", {"swap": 1, "bm": 24, "bn": 128}, SCALED),
    Sample("200x136x328:bf16:nn:batch=2:residual", {**FUSED, "workers": 4}, SCALED[:2]),
    Sample("200x136x328:bf16:nn:residual", {**STREAM, "store": "staged"}, SCALED[:2]),
    Sample(
        "264x136x328:bf16:nt:residual", {"schedule": "pingpong", "store": "staged", "workers": 2}
    ),
    # SwiGLU: stored in lines of C by bulk copies and by threads, of odd rows, of the rows of a
    # transposed tile, straight from registers, from one consumer and from several, by the last
    # block of a tile.
    Sample("200x256x328:bf16:nt:swiglu", {"store": "staged", "bn": 256}, PLAIN_C),
    Sample("200x336x328:f16:nn:swiglu:batch=2", {"store": "staged", "bn": 176}, PLAIN_C),
    Sample("67x80x131:bf16:nn:swiglu", {"bn": 80, "store": "staged"}, ODD_C),
    Sample("67x80x131:f16:tt:swiglu:out=f32", {"bn": 48}, ODD_C),
    Sample("40x272x328:bf16:nt:swiglu", {"swap": 1, "bm": 40, "bn": 256, "store": "staged"}, ODD_C),
    Sample(
        "136x272x328:f16:tt:swiglu",
        {"swap": 1, "bm": 64, "bn": 128, "store": "staged", "workers": 2},
        PLAIN_C,
    ),
    Sample("24x208x264:bf16:tn:swiglu:out=f32:batch=2", {"swap": 1, "bm": 24, "bn": 128}, ODD_C),
    Sample("200x144x328:bf16:nn:swiglu", {**STREAM, "store": "staged"}, PLAIN_C),
    Sample("40x144x328:bf16:nt:swiglu", {**FUSED, "swap": 1, "bm": 40, "bn": 64, "consumers": 1}),
    Sample(
        "264x272x328:bf16:nt:swiglu",
        {"schedule": "pingpong", "store": "staged", "workers": 2, "bn": 128},
    ),
    # Rows that bulk copies can read but that start within a 128-byte line.
    Sample("200x136x328:bf16:nn", {"pack": "lines", "store": "staged"}, SCALED),
    Sample("136x72x100:tf32:tn", {**REGISTERS, "pack": "lines"}, SCALED[:2]),
    # Split-K, stream-K and ping-pong.
    Sample("200x136x328:bf16:nn:batch=2", {**FUSED, "workers": 4}, SCALED[:2]),
    Sample("200x136x328:bf16:nn", {**STREAM, "group": 4}, SCALED[:2]),
    Sample("264x136x200:bf16:nn", {"schedule": "pingpong", "workers": 2, "bm": 64}),
    Sample(
        "264x136x328:bf16:nt", {"schedule": "pingpong", "workers": 2, "store": "staged", **FUSED}
    ),
    Sample(
        "264x136x328:bf16:nt", {"schedule": "pingpong", "store": "staged", **STREAM}, SCALED[:2]
    ),
    Sample("136x72x100:tf32x3:nt", {**SPLIT, "bm": 64, "schedule": "pingpong", "workers": 2}),
    Sample("72x72x420:tf32x3:nt", {**SPLIT, **FUSED, "split_k": 4, "min_blocks": 2}),
    # tf32 from shared memory and from registers, and tf32x3.
    Sample("136x72x100:tf32:nt", {"bk": 32}, SCALED),
    Sample("136x72x100:tf32:tn", {**REGISTERS, "bm": 256}, SCALED[:2]),
    Sample("72x136x100:tf32:nn", {**REGISTERS, "swap": 1, "bm": 72, "bn": 128}),
    Sample("136x72x132:tf32x3:nt:batch=2", SPLIT, ({}, {"shared": "b", "beta": 1.0})),
    Sample("136x72x132:tf32x3:tn", {**SPLIT, "low": "pass", "bm": 256, "promote": 4}),
    Sample("67x93x131:tf32x3:nn", {**SPLIT, "low": "pass", **STREAM}, ODD[:2]),
    Sample("72x136x132:tf32x3:nn", {**SPLIT, "swap": 1, "bm": 72, "bn": 64, "consumers": 1}),
)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    return built(SAMPLES, host_objects)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_wgmma_matches_float64(program: Program, sample: Sample) -> None:
    check(program, sample.cases)


@pytest.mark.parametrize("sample", [item for item in SAMPLES if item.without_product], ids=str)
def test_wgmma_with_alpha_0_ignores_nan(program: Program, sample: Sample) -> None:
    check(program, sample.without_product)


@pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if "reduction" in sample.config], ids=str
)
def test_splits_add_up_to_the_same_bits_in_any_order(program: Program, sample: Sample) -> None:
    first, *repeats = run(program, sample.cases[:1] * 4)
    assert [repeat.tobytes() for repeat in repeats] == [first.tobytes()] * 3
