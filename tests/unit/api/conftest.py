"""A runtime on the fake GPU, with fake frameworks beside it."""

from support.runtime_fixtures import case, cupy, torch

__all__ = ["case", "cupy", "torch"]
