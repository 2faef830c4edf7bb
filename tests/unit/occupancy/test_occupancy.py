from __future__ import annotations

import ctypes
import os
import random
import subprocess
import time
import timeit
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.device import Device, catalogue, find
from autotune.errors import DeviceError, UsageError
from autotune.occupancy import ARCHITECTURES, Occupancy, occupancy

INT_MAX = 2**31 - 1
H100 = find("h100")
TEXTBOOK = find("textbook-d")
SHIPPED = {device.compute_capability: device for device in catalogue().values()}
ORIN = replace(SHIPPED[8, 0], compute_capability=(8, 7), threads_per_sm=1536, blocks_per_sm=16)
THOR = replace(SHIPPED[10, 0], compute_capability=(11, 0), threads_per_sm=1536, blocks_per_sm=24)
# A block of the Tegra X1 gets half of the SM's registers.
TEGRA = replace(SHIPPED[5, 2], compute_capability=(5, 0), registers_per_block=32768)
DEVICES = {
    **{capability: SHIPPED[capability] for capability in ARCHITECTURES if capability in SHIPPED},
    (5, 0): TEGRA,
    (8, 7): ORIN,
    (10, 3): replace(SHIPPED[10, 0], compute_capability=(10, 3)),
    (11, 0): THOR,
    (12, 1): replace(SHIPPED[12, 0], compute_capability=(12, 1)),
}
CASES_PER_DEVICE = 12_000  # 108,000 on the nine capabilities that have to agree

Kernel = tuple[int, int, int, int, int | None]
"""A kernel: threads, registers, shared bytes, barriers, carve-out."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """NVIDIA's cuda_occupancy.h as a shared library."""
    files = distribution("nvidia-cuda-runtime").files or []
    header = next(file for file in files if file.name == "cuda_occupancy.h").locate()
    source = Path(__file__).parent / "occupancy.cpp"
    library = tmp_path_factory.mktemp("oracle") / "occupancy.so"
    command = [os.environ.get("CXX", "c++"), "-O2", "-shared", "-fPIC", f"-I{Path(header).parent}"]
    subprocess.run([*command, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def nvidia(oracle: ctypes.CDLL, device: Device, kernels: list[Kernel]) -> NDArray[np.int32]:
    """NVIDIA's answers: resident blocks, then the limit by each resource; INT_MAX for no limit."""
    d = device
    limits = [d.threads_per_block, d.threads_per_sm, d.registers_per_block, d.registers_per_sm]
    limits += [d.warp_size, d.shared_per_block, d.shared_per_block_optin, d.shared_per_sm]
    head = [*d.compute_capability, *limits, d.reserved_shared_per_block]
    cases = np.array(
        [
            [*head, threads, registers, *static_dynamic(shared), barriers, -1 if c is None else c]
            for threads, registers, shared, barriers, c in kernels
        ],
        dtype=np.int32,
    )
    answers = np.empty((len(kernels), 6), dtype=np.int32)
    answered = oracle.occupancy(
        len(kernels),
        cases.ctypes.data_as(ctypes.c_void_p),
        answers.ctypes.data_as(ctypes.c_void_p),
    )
    assert answered == len(kernels), f"cuda_occupancy.h refuses {kernels[answered]} on {d.name}"
    return answers


def static_dynamic(shared: int) -> tuple[int, int]:
    static = min(shared // 3, 49152)
    return static, shared - static


def ours(device: Device, kernels: list[Kernel]) -> NDArray[np.int32]:
    return np.array([row(evaluate(device, kernel)) for kernel in kernels], dtype=np.int32)


def evaluate(device: Device, kernel: Kernel) -> Occupancy:
    threads, registers, shared, barriers, carve_out = kernel
    return occupancy(
        device,
        threads=threads,
        registers=registers,
        shared=shared,
        barriers=barriers,
        carve_out=carve_out,
    )


def row(o: Occupancy) -> list[int]:
    limits = (
        o.blocks_per_sm,
        o.by_warps,
        o.by_blocks,
        o.by_registers,
        o.by_shared,
        o.by_barriers,
    )
    return [INT_MAX if limit is None else limit for limit in limits]


def random_kernels(device: Device, count: int) -> Iterator[Kernel]:
    """Random kernels: half anywhere in and beyond the legal range, half at limits."""
    draw = random.Random(str(device.compute_capability))
    for _ in range(count):
        yield (
            draw.choice((draw.randint(1, 1100), draw.choice((32, 64, 96, 128, 256, 512, 1024)))),
            draw.choice((draw.randint(0, 260), draw.choice((0, 1, 8, 32, 64, 128, 168, 255, 256)))),
            draw.choice((draw.randint(0, 240_000), shared_edge(device, draw), 0)),
            draw.choice((0, 1, 1, 2, 3, 8, 16)),
            draw.choice((None, None, None, 0, 25, 50, 100, draw.randint(0, 100))),
        )


def shared_edge(device: Device, draw: random.Random) -> int:
    """Shared memory with which a number of blocks just fits, or 1 byte off."""
    carve_outs = [1024 * size for size in ARCHITECTURES[device.compute_capability].carve_outs]
    sizes = [*carve_outs, device.shared_per_sm, device.shared_per_block, 1024]
    exact = draw.choice(sizes) // draw.randint(1, 8) - device.reserved_shared_per_block
    return max(0, draw.choice((exact, device.shared_per_block_optin)) + draw.choice((-1, 0, 1)))


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=lambda pair: f"{pair[0]}.{pair[1]}")
def test_every_limit_equals_nvidias_calculator(
    oracle: ctypes.CDLL, capability: tuple[int, int]
) -> None:
    device = DEVICES[capability]
    kernels = list(random_kernels(device, CASES_PER_DEVICE))

    difference = np.nonzero((ours(device, kernels) != nvidia(oracle, device, kernels)).any(axis=1))

    assert [kernels[i] for i in difference[0][:5]] == []


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=lambda pair: f"{pair[0]}.{pair[1]}")
def test_every_block_size_equals_nvidias_calculator(
    oracle: ctypes.CDLL, capability: tuple[int, int]
) -> None:
    device = DEVICES[capability]
    kernels: list[Kernel] = [
        (threads, registers, 0, 1, None)
        for threads in (*range(1, 1026), 1536, 2048)
        for registers in (0, 1, 40, 255)
    ]

    assert (ours(device, kernels) == nvidia(oracle, device, kernels)).all()


@pytest.mark.parametrize("limit", ["warps", "blocks", "registers", "shared memory", "barriers"])
def test_random_cases_hit_every_limit_often(limit: str) -> None:
    kernels = list(random_kernels(H100, CASES_PER_DEVICE))

    assert sum(evaluate(H100, kernel).limiters == (limit,) for kernel in kernels) >= 50


def test_ten_thousand_evaluations_take_under_200_ms() -> None:
    kernels = list(random_kernels(H100, 10_000))

    seconds = min(
        timeit.repeat(
            lambda: [evaluate(H100, k) for k in kernels],
            number=1,
            repeat=5,
            timer=time.process_time,
        )
    )

    assert seconds < 0.2


def test_limiters_are_all_binding_limits() -> None:
    o = occupancy(H100, threads=256, registers=64, shared=57344)

    assert (
        o.blocks_per_sm,
        o.warps_per_sm,
        o.occupancy,
        o.limiters,
    ) == (
        4,
        32,
        0.5,
        ("registers", "shared memory"),
    )


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [
        (1025, 32, 0, "warps"),
        (1024, 65, 0, "registers"),
        (32, 257, 0, "registers"),
        (32, 32, 232449, "shared memory"),
    ],
)
def test_block_that_cannot_run_names_the_limit(
    threads: int, registers: int, shared: int, limiter: str
) -> None:
    resident = occupancy(H100, threads=threads, registers=registers, shared=shared)

    assert (resident.blocks_per_sm, resident.limiters) == (0, (limiter,))


def test_largest_opt_in_block_runs_once() -> None:
    assert occupancy(H100, threads=128, registers=32, shared=232448).blocks_per_sm == 1


def test_inapplicable_limits_are_left_out() -> None:
    resident = occupancy(find("v100"), threads=128, registers=0, shared=0)

    assert resident.limits == {"warps": 16, "blocks": 32}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "barriers"),
    [(0, 32, 0, 1), (-32, 32, 0, 1), (32, -1, 0, 1), (32, 32, -1, 1), (32, 32, 0, -1)],
)
def test_impossible_amounts_are_a_usage_error(
    threads: int, registers: int, shared: int, barriers: int
) -> None:
    with pytest.raises(UsageError, match=f"{threads} threads a block, {registers} registers"):
        evaluate(H100, (threads, registers, shared, barriers, None))


@pytest.mark.parametrize("carve_out", [-1, 101])
def test_impossible_carve_out_is_a_usage_error(carve_out: int) -> None:
    with pytest.raises(UsageError, match=f"the carve-out is {carve_out}; give 0 to 100"):
        evaluate(H100, (32, 32, 0, 1, carve_out))


def test_unknown_compute_capability_names_the_supported() -> None:
    future = replace(H100, compute_capability=(99, 0))

    with pytest.raises(DeviceError, match=r"compute capability 99\.0; take .* 9\.0"):
        occupancy(future, threads=32, registers=32, shared=0)


# What the source texts say (Kirk and Hwu, Programming Massively Parallel Processors).


def test_text_device_d_allows_ten_registers_a_thread() -> None:
    ten = occupancy(TEXTBOOK, threads=512, registers=10, shared=0)

    assert (ten.blocks_per_sm * 512, ten.occupancy) == (1536, 1.0)


def test_text_device_d_loses_a_block_at_eleven_registers() -> None:
    eleven = occupancy(TEXTBOOK, threads=512, registers=11, shared=0)

    assert (eleven.blocks_per_sm * 512, eleven.limiters) == (1024, ("registers",))


def test_text_device_d_tile_width_16_is_bound_by_threads() -> None:
    resident = occupancy(TEXTBOOK, threads=16 * 16, registers=8, shared=2 * 16 * 16 * 4)

    assert (resident.limiters, resident.by_warps, resident.by_shared) == (("warps",), 6, 8)


def test_text_h100_has_112_shared_bytes_a_thread() -> None:
    """With 512-thread blocks and each block's reserved 1024 bytes; a square tile needs 8."""
    full = [
        bytes_a_thread
        for bytes_a_thread in range(200)
        if occupancy(H100, threads=512, registers=32, shared=512 * bytes_a_thread).occupancy == 1
    ]
    needed = 2 * 16 * 16 * 4 // (16 * 16)

    assert (max(full), needed) == (112, 8)
