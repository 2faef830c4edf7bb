"""Picks elements of sequences, as fast as Python allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")


def picker(places: Sequence[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """A function that picks the elements at these places as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda elements: tuple(elements[place] for place in places)
