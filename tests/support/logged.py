"""What the package logs within a block."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import BufferingHandler


@contextmanager
def warnings_logged() -> Iterator[list[str]]:
    """The warnings that the package logs within the block; they are complete when it ends."""
    handler, logger = BufferingHandler(sys.maxsize), logging.getLogger("autotune")
    handler.setLevel(logging.WARNING)
    texts = list[str]()
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        texts += [entry.getMessage() for entry in handler.buffer]


@contextmanager
def logs(match: str) -> Iterator[None]:
    """Fails unless a warning that matches the pattern is logged within the block."""
    with warnings_logged() as texts:
        yield
    assert [text for text in texts if re.search(match, text)], f"{match!r} is not in {texts}"
