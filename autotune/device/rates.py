"""Fused multiply-adds that an SM starts per clock, by compute capability and precision."""

from __future__ import annotations

from autotune.problem.aliases import DtypeLike, precision_of

# Of the tensor cores of an SM: dense products of 16-bit values with fp32 sums. A compute capability
# that is not listed has the rate of the last one before it.
_TENSOR_RATES = {
    (7, 0): 512,  # V100 whitepaper: 125 TFLOP/s of 80 SMs at 1530 MHz
    (7, 5): 512,  # Turing whitepaper: Quadro RTX 6000 130.5 (T4 datasheet: 65)
    (8, 0): 1024,  # A100 whitepaper: 312 of 108 SMs at 1410 MHz
    (8, 6): 512,  # GA102 whitepaper: RTX A6000 154.8
    (8, 7): 1024,  # Jetson AGX Orin technical brief: 85 TOP/s of int8 of 16 SMs at 1300 MHz
    (8, 9): 512,  # L40S datasheet: 362 (L4: 121)
    (9, 0): 2048,  # H100 whitepaper: 989.4 of 132 SMs at 1830 MHz
    (10, 0): 4096,  # HGX B200 datasheet: 2250 of 148 SMs
    (12, 0): 512,  # RTX PRO 6000 Blackwell whitepaper: 503.8 of 188 SMs
}


def fp32_lanes(compute_capability: tuple[int, int]) -> int:
    """Fp32 units of an SM: each starts one fused multiply-add per clock.

    Source: CUDA C++ Programming Guide, throughput of native arithmetic instructions (5.0 on).
    """
    return 64 if compute_capability[0] == 7 or compute_capability in ((6, 0), (8, 0)) else 128


def tensor_rate(compute_capability: tuple[int, int], compute: DtypeLike) -> float | None:
    """Fused multiply-adds that the tensor cores of an SM start per clock, dense, with fp32 sums.

    This counts the instructions' own products: `tf32x3` has the rate of `tf32`, half of the 16-bit
    one, and 8-bit precisions have twice the 16-bit rate. None without tensor cores for the
    precision: before 7.0 and for `f32`, before 8.0 for `tf32`, `bf16` and `i8`, before 8.9 for `f8`
    and `f8e5`. Some cards of an architecture have half the rate: see `Device.tensor_rate`.

    Source: NVIDIA's architecture whitepapers and datasheets, as stated at each rate.
    """
    precision = precision_of(compute)
    if precision.tensor_rate is None or compute_capability < precision.compute_capability:
        return None
    latest = max(listed for listed in _TENSOR_RATES if listed <= compute_capability)
    return _TENSOR_RATES[latest] * precision.tensor_rate
