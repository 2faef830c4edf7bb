"""Sharing K among blocks (split-K, stream-K): how it fills waves, and what it costs."""

from __future__ import annotations

from autotune.problem.integers import ceil_div

LAST_BLOCK_BYTES = 2**19
"""The most bytes that the last block of a tile may read alone: one SM takes about 5 us for them."""


def fill(blocks: int, sms: int) -> float:
    """The share of the SMs' time that is used if each wave gives every SM one block."""
    return blocks / (ceil_div(blocks, sms) * sms)


def longest_split(iterations: int, splits: int) -> int:
    """The k-iterations of the longest of `splits` parts, or 0 if a part would have none."""
    longest = ceil_div(iterations, splits)
    return longest if ceil_div(iterations, longest) == splits else 0


def fuller(blocks: int, splits: int, sms: int, margin: float = 1.0) -> bool:
    """Whether `splits` parts of each block fill waves better than any smaller number."""
    reached = fill(blocks * splits, sms)
    return all(reached > margin * fill(blocks * less, sms) for less in range(1, splits))


def split_waves_fault(
    tiles: int, splits: int, sms: int, waves: int, margin: float = 1.0
) -> str | None:
    """Why splitting K does not fill waves better; None if it does.

    At most `waves` blocks an SM are worth it.
    """
    if tiles * splits <= waves * sms and fuller(tiles, splits, sms, margin):
        return None
    return f"{tiles} tiles fill {sms} SMs as well with less than {splits} splits"


def last_block_fault(read: int) -> str | None:
    """Why the last block of a tile cannot read `read` bytes of partial sums; None if it can."""
    if read <= LAST_BLOCK_BYTES:
        return None
    return f"the last block of a tile would read {read} bytes; {LAST_BLOCK_BYTES} at most"
