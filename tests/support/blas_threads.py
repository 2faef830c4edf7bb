"""A fixture for the tests of what multiplies many small matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np  # noqa: F401 - what is not loaded cannot be limited
import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in `tune`: on a busy machine the threads of a matrix library wait for each other."""
    with threadpool_limits(1, "blas"):
        yield
