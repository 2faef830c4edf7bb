"""The limits and the rates of an SM by compute capability, which all its cards share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.errors import DeviceError
from autotune.problem.words import DtypeLike, precision_of

_KIB = 1024
_REGISTERS = 64 * _KIB
_ARCH = re.compile(r"(?:(?:sm|compute)_(\d{1,3})[af]?|(\d{1,2})\.(\d))", re.IGNORECASE)


@dataclass(frozen=True)
class Sm:
    """An SM of a compute capability, without a card around it; its fields are those of `Device`."""

    compute_capability: tuple[int, int]
    shared_per_sm: int
    shared_per_block_optin: int
    reserved_shared_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    warp_size: int = 32
    registers_per_block: int = _REGISTERS
    registers_per_sm: int = _REGISTERS
    shared_per_block: int = 48 * _KIB
    threads_per_block: int = 1024

    @property
    def name(self) -> str:
        """The compiler's name of the architecture, such as `sm_86`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def granularity(self) -> int | None:
        """None: the allocation units are those of the architecture."""
        return None


def _separate(major: int, minor: int, shared: int) -> Sm:
    """An SM before Volta: a block has 48 KiB of shared memory at most."""
    return Sm((major, minor), shared * _KIB, 48 * _KIB, 0, threads_per_sm=2048, blocks_per_sm=32)


def _unified(major: int, minor: int, shared: int, threads: int, blocks: int) -> Sm:
    """An SM from Volta on: a block may take all shared memory but what CUDA reserves."""
    reserved = _KIB if major >= 8 else 0
    return Sm((major, minor), shared * _KIB, shared * _KIB - reserved, reserved, threads, blocks)


SMS: Mapping[tuple[int, int], Sm] = {
    sm.compute_capability: sm
    for sm in (
        _separate(5, 0, 64),
        _separate(5, 2, 96),
        _separate(6, 0, 64),
        _separate(6, 1, 96),
        _unified(7, 0, 96, threads=2048, blocks=32),
        _unified(7, 5, 64, threads=1024, blocks=16),
        _unified(8, 0, 164, threads=2048, blocks=32),
        _unified(8, 6, 100, threads=1536, blocks=16),
        _unified(8, 7, 164, threads=1536, blocks=16),
        _unified(8, 9, 100, threads=1536, blocks=24),
        _unified(9, 0, 228, threads=2048, blocks=32),
        _unified(10, 0, 228, threads=2048, blocks=32),
        _unified(10, 3, 228, threads=2048, blocks=32),
        _unified(11, 0, 228, threads=1536, blocks=24),
        _unified(12, 0, 100, threads=1536, blocks=24),
        _unified(12, 1, 100, threads=1536, blocks=24),
    )
}
"""SMs by compute capability. Source: CUDA C++ Programming Guide, Technical Specifications per
Compute Capability; NVIDIA/cccl, `libcudacxx/include/cuda/__device/arch_traits.h`, which also has
the reserved shared memory."""


def sm_named(text: str) -> Sm | None:
    """The SM that a text such as `sm_86`, `sm_90a`, `compute_86` or `8.6` names; None if the text
    has another form.

    Raises:
        DeviceError: for a compute capability whose limits are unknown.
    """
    match = _ARCH.fullmatch(text.strip())
    if match is None:
        return None
    number = int(match[1] or match[2] + match[3])
    sm = SMS.get((number // 10, number % 10))
    if sm is None:
        supported = ", ".join(sm.name for sm in SMS.values())
        raise DeviceError(f"unknown compute capability {text!r}; give one of {supported}")
    return sm


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
