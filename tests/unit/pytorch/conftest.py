"""A fake runtime for CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.torch_runtime import StandIn


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The runtime that stands in for a GPU; the tests that take it have PyTorch."""
    from support.torch_runtime import standing_in

    with standing_in(monkeypatch) as stand_in:
        yield stand_in
