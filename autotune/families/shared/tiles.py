"""Tiles of C: how many cover it, and in which order blocks take them."""

from __future__ import annotations

from autotune.device import Device
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


def tile_count(problem: Problem, rows: int, columns: int) -> int:
    """How many tiles of rows x columns cover one C of the batch."""
    return ceil_div(problem.m, rows) * ceil_div(problem.n, columns)


def order_fault(rows: int, columns: int, group: int, few: int, device: Device) -> str | None:
    """Why `group` rows of tiles are not worth taking together; None if they are.

    Up to `few` tiles an SM, any order will do.
    """
    if group == 1:
        return None
    if rows * columns <= few * device.sms:
        return f"{rows * columns} tiles are few for {device.sms} SMs; their order is free"
    if columns == 1 or group > rows:
        return f"{rows}x{columns} tiles have no groups of {group} rows"
    return None
