"""Chains of dependent launches give the bits of the same chains without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from runtime_gpu import drawn

from autotune.families.config import Value
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver
from autotune.settings import Policy

pytestmark = pytest.mark.timing

PRODUCTS, REPETITIONS = 8, 200
TYPES = {"f32": "float32", "tf32x3": "float32", "bf16": "bfloat16"}

# Family, compute, rows, columns and the values of a configuration: every way to share K and to
# pack operands. N is K, so that each product is the A of the next.
CHAINS: dict[str, tuple[str, str, int, int, dict[str, Value]]] = {
    "naive": ("naive", "f32", 64, 128, {}),
    "tiled": ("tiled", "f32", 64, 128, {}),
    "simt": ("simt", "f32", 512, 512, {"reduction": "none"}),
    "simt, separate, packed": ("simt", "f32", 129, 1023, {"reduction": "separate", "pack": "a"}),
    "simt, fused": ("simt", "f32", 64, 512, {"reduction": "fused"}),
    "simt, stream": ("simt", "f32", 129, 1023, {"reduction": "stream"}),
    "gemv": ("gemv", "f32", 8, 512, {"split_k": 1, "stages": 3}),
    "gemv, shared K": ("gemv", "f32", 8, 512, {"split_k": 4, "stages": 1}),
    "mma": ("mma", "bf16", 256, 256, {"split_k": 1}),
    "mma, fused, packed": ("mma", "bf16", 133, 1025, {"split_k": 4, "pack": "a"}),
    "wgmma": ("wgmma", "bf16", 256, 256, {"reduction": "none", "cluster": "1x1"}),
    "wgmma, fused": ("wgmma", "bf16", 128, 2048, {"reduction": "fused", "cluster": "1x1"}),
    "wgmma, packed": ("wgmma", "bf16", 133, 2049, {"reduction": "fused"}),
    "wgmma, cluster along K": ("wgmma", "bf16", 128, 512, {"cluster": "1x1x2"}),
    "wgmma, cluster along N": ("wgmma", "bf16", 1024, 1024, {"cluster": "1x2"}),
    "wgmma, stream": ("wgmma", "bf16", 1024, 1536, {"reduction": "stream"}),
    "wgmma, pingpong": ("wgmma", "bf16", 2048, 1024, {"schedule": "pingpong"}),
    "wgmma, low pass": ("wgmma", "tf32x3", 1024, 1024, {"low": "pass"}),
}

Chain = Sequence[Callable[[], None]]


@pytest.fixture(scope="module")
def hopper(driver: Driver) -> Driver:
    device = driver.probe(0)
    if device.compute_capability < (9, 0):
        pytest.skip(f"{device.name} has no programmatic dependent launch")
    return driver


class Chained:
    """Eight products of a matrix by weights, bound as dependent launches and as plain ones.

    In the first chain each product reads what the one before wrote. In the second they alternate
    between two buffers and add to what is there: each also reads what the second one before wrote,
    and overwrites what the one before read.
    """

    def __init__(self, torch: Any, kernel: Kernel, alternate: bool) -> None:
        problem = kernel.problem
        self.torch = torch
        dtype = getattr(torch, TYPES[problem.compute])
        torch.manual_seed(0)
        scale = problem.k**-0.5
        weights = [
            torch.randn(problem.k, problem.n, device="cuda").mul(scale).to(dtype)
            for _ in range(PRODUCTS)
        ]
        self.start = torch.randn(problem.m, problem.k, device="cuda").to(dtype)
        count = 2 if alternate else PRODUCTS + 1
        self.buffers = [torch.zeros_like(self.start) for _ in range(count)]
        beta = 0.5 if alternate else 0.0
        self.plain, self.dependent = (
            [
                kernel.bind(
                    *(self.buffers[number % count], weight, self.buffers[(number + 1) % count]),
                    *(1.0, beta),
                    policy=Policy(dependent=dependent),
                )
                for number, weight in enumerate(weights)
            ]
            for dependent in (False, True)
        )
        self.result = self.buffers[PRODUCTS % count]

    def run(self, chain: Chain) -> None:
        for buffer in self.buffers[1:]:
            buffer.fill_(1.0)
        self.buffers[0].copy_(self.start)
        for product in chain:
            product()

    def captured(self) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            self.run(self.dependent)
        return graph


@pytest.mark.parametrize("alternate", [False, True], ids=["forward", "alternating"])
@pytest.mark.parametrize("name", CHAINS)
def test_dependent_chain_gives_the_same_bits(
    torch: Any, hopper: Driver, cache: Path, name: str, alternate: bool
) -> None:
    family, compute, rows, columns, values = CHAINS[name]
    kernel = loaded(hopper, cache, family, values, Problem(rows, columns, columns, compute))
    chained = Chained(torch, kernel, alternate)
    chained.run(chained.plain)
    expected = chained.result.clone()
    assert bool(expected.isfinite().all())
    graph = chained.captured()  # with the workspace's first use in the capture
    runs: Mapping[str, Callable[[], None]] = {
        "stream": lambda: chained.run(chained.dependent),
        "graph": graph.replay,
    }
    wrong = {run: torch.zeros((), dtype=torch.int64, device="cuda") for run in runs}
    for run, enqueue in runs.items():
        for _ in range(REPETITIONS):
            enqueue()
            wrong[run] += (chained.result != expected).any()
    assert {run: int(count) for run, count in wrong.items()} == {"stream": 0, "graph": 0}


def loaded(
    driver: Driver, cache: Path, family: str, values: Mapping[str, Value], problem: Problem
) -> Kernel:
    return Kernel(drawn(driver, cache, family, values), problem, 0)
