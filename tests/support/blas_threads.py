"""A fixture for tests that multiply many small matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np  # noqa: F401 - only a loaded library can be limited
import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Limits BLAS to one thread, as `tune` does: on a busy machine its threads block each other."""
    with threadpool_limits(1, "blas"):
        yield
