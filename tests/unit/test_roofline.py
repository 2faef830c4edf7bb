from __future__ import annotations

import pytest

from autotune.device import find
from autotune.problem import Problem
from autotune.roofline import (
    attainable,
    bandwidth_bound,
    intensity,
    least_hot_seconds,
    least_seconds,
)

RTX_3090 = find("rtx 3090")
H100 = find("h100")


def test_text_naive_kernel_does_a_quarter_flop_per_byte() -> None:
    assert intensity() == 0.25


@pytest.mark.parametrize("width", [4, 8, 12, 16, 20, 24, 28, 32])
def test_text_square_tiles_do_width_over_four_flop_per_byte(width: int) -> None:
    assert intensity(width, width) == width / 4


def test_text_rtx_3090_naive_is_bound_at_234_gflops() -> None:
    assert bandwidth_bound(RTX_3090.memory_bandwidth, 0.25) == pytest.approx(234.05e9, rel=1e-12)


def test_text_rtx_3090_32x32_tiles_are_bound_at_7489_gflops() -> None:
    bound = bandwidth_bound(RTX_3090.memory_bandwidth, intensity(32, 32))

    assert bound == pytest.approx(7489.6e9, rel=1e-12)


def test_text_rtx_3090_32x32_tiles_reach_21_percent() -> None:
    share = attainable(RTX_3090, intensity(32, 32)) / RTX_3090.peak_fp32

    assert (round(share, 2), round(RTX_3090.peak_fp32 / 1e10)) == (0.21, 3558)


@pytest.mark.parametrize(("flop_per_byte", "gflops"), [(0.25, 750), (4, 12_000)])
def test_text_3_terabytes_a_second_feed(flop_per_byte: float, gflops: float) -> None:
    assert bandwidth_bound(3e12, flop_per_byte) == gflops * 1e9


def test_text_150_gb_per_second_feed_600_gflops() -> None:
    """The text counts one 4-byte access as one operation: 150 / 4 accesses, each used 16 times."""
    assert bandwidth_bound(150e9, intensity(16, 16)) == 150e9 / 4 * 16 == 600e9


def test_register_tiles_count_by_their_block() -> None:
    assert intensity(128, 64) == 2 * 128 * 64 / (4 * (128 + 64))


def test_half_the_element_bytes_double_the_intensity() -> None:
    assert intensity(128, 128, element_bytes=2) == 2 * intensity(128, 128)


def test_nothing_is_faster_than_the_peak() -> None:
    assert attainable(H100, 1e6) == H100.peak_fp32


def test_nothing_in_16_bits_beats_the_tensor_cores() -> None:
    assert attainable(H100, 1e6, "bf16") == H100.peak("bf16")


def test_large_square_gemm_in_tf32_is_compute_bound() -> None:
    assert least_seconds(Problem(8192, 8192, 8192, "tf32"), H100) == pytest.approx(
        2 * 8192**3 / H100.peak("tf32")
    )


def test_large_square_gemm_is_compute_bound() -> None:
    assert least_seconds(Problem(4096, 4096, 4096), H100) == 2 * 4096**3 / H100.peak_fp32


def test_gemm_with_one_row_is_bandwidth_bound() -> None:
    moved = 4 * (4096 + 4096 * 4096 + 4096)

    assert least_seconds(Problem(1, 4096, 4096), H100) == moved / H100.memory_bandwidth


def test_what_l2_holds_is_not_moved_again() -> None:
    small, wide = Problem(16, 4096, 4096, "bf16"), Problem(16, 28672, 8192, "bf16")
    assert least_hot_seconds(small, H100) == small.flops / H100.peak("bf16")
    kept = (wide.bytes - H100.l2_bytes) / H100.memory_bandwidth
    assert least_hot_seconds(wide, H100) == kept < least_seconds(wide, H100)
