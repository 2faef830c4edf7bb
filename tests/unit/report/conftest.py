"""The browser that the tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import chromium


@pytest.fixture(scope="package", autouse=True)
def _closed_browser() -> Iterator[None]:
    yield
    chromium.close()
