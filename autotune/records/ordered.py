"""Records of searches in one order of summation."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from autotune.files.decoding import Text
from autotune.records.record import FamilyRecord


@dataclass(frozen=True)
class OrderedRecord(FamilyRecord):
    """The record of a search in one order of summation (see `families.summation`).

    It serves the sizes of a batch-invariant range and nothing else.
    """

    order: Text

    FOLDER: ClassVar[str] = "ordered"

    @property
    def title(self) -> str:
        """The problem, and that it belongs to a batch-invariant range."""
        return f"{self.problem} --batch-invariant"

    @property
    def slug(self) -> str:
        """The problem's slug and a hash of the order."""
        return f"{self.problem.slug}-{order_slug(self.order)}"


def order_slug(order: str) -> str:
    """An order of summation as part of a file name."""
    return sha256(order.encode()).hexdigest()[:12]
