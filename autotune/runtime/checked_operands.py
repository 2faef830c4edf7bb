"""The operands of a call, checked: the problem they pose and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.runtime import arrays
from autotune.runtime.arrays import MatrixMemory

Addresses = tuple[int, int, int, int]
"""Addresses of A, B, C and the bias; 0 for no bias."""

OPERANDS = "A", "B", "out", "bias"


class CheckedOperands(NamedTuple):
    """The problem that operands of one signature pose, and how they lie.

    Attributes:
        problem: the problem.
        ordinal: the device that holds the operands.
        memory: where A, B, C and the bias lie, relative to their addresses.
        leading: leading dimensions of A, B and C.
        strides: distances from one A, B and C of a batch to the next.
        alignment: the vectors that the operands allow.
        config: the configuration that runs them.
        vendor: whether the vendor's library was measured to be faster.
    """

    problem: Problem
    ordinal: int
    memory: tuple[MatrixMemory, MatrixMemory, MatrixMemory, MatrixMemory]
    leading: tuple[int, int, int]
    strides: tuple[int, int, int]
    alignment: Alignment
    config: Config
    vendor: bool


def addresses_of(reads: Sequence[tuple[int, Any] | None]) -> Addresses:
    """The addresses of A, B, C and the bias, from what their frameworks read."""
    a, b, c, bias = (0 if read is None else read[0] for read in reads)
    return a, b, c, bias


def check_addresses(addresses: Addresses, memory: Sequence[MatrixMemory]) -> None:
    """Refuses operands that do not start at a multiple of their element size."""
    for name, address, operand in zip(OPERANDS, addresses, memory, strict=True):
        if address % operand.element_bytes:
            raise ArrayError(
                f"{name} is at {address:#x}, no multiple of its {operand.element_bytes}-byte "
                "elements: copy it"
            )


def refuse_overlap(checked: CheckedOperands, addresses: Addresses) -> None:
    """Refuses an output that shares elements with another operand."""
    out, memory = addresses[2], checked.memory[2]
    for name, address, operand in zip(OPERANDS, addresses, checked.memory, strict=True):
        if operand is memory or not operand.extent:
            continue
        if arrays.overlap(address, operand, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
