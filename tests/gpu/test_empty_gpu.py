"""Empty operands and several batch axes on a real GPU, beside PyTorch's results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runtime_gpu import NAIVE, SIMT, SPLIT, runtime_of

from autotune.families.config import Config
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime

each_config = pytest.mark.parametrize("config", [NAIVE, SIMT, SPLIT], ids=str)


@pytest.fixture
def runs(driver: Driver, cache: Path) -> Callable[[Config], Runtime]:
    return partial(runtime_of, driver, cache)


@pytest.fixture(autouse=True)
def untuned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@each_config
@pytest.mark.parametrize(
    "shapes", [((0, 8), (8, 5)), ((3, 8), (8, 0)), ((2, 0, 8), (8, 5)), ((0, 3, 8), (0, 8, 5))]
)
def test_empty_results_have_the_shape_of_pytorch(
    torch: Any, runs: Callable[[Config], Runtime], config: Config, shapes: Any
) -> None:
    a, b = (torch.randn(*shape, device="cuda") for shape in shapes)
    assert Matmul(runs(config))(a, b).shape == torch.matmul(a, b).shape


@each_config
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 6, 33, 40), (2, 6, 40, 65)),
        ((2, 6, 33, 40), (6, 40, 65)),
        ((2, 1, 33, 40), (6, 40, 65)),
        ((3, 1, 2, 33, 40), (3, 4, 1, 40, 65)),
    ],
)
def test_batch_axes_match_pytorch(
    torch: Any, runs: Callable[[Config], Runtime], config: Config, shapes: Any
) -> None:
    a, b = (torch.randn(*shape, device="cuda") for shape in shapes)
    expected = torch.matmul(a.double(), b.double()).float()
    torch.testing.assert_close(Matmul(runs(config))(a, b), expected, rtol=1e-4, atol=1e-4)


def test_heads_of_attention_match_pytorch(torch: Any, runs: Callable[[Config], Runtime]) -> None:
    q, k = (torch.randn(2, 50, 4, 64, device="cuda").transpose(1, 2) for _ in range(2))
    expected = (q.double() @ k.double().mT).float()
    result: Any = Matmul(runs(SIMT))(q, k.mT)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
