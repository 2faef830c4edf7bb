"""Integer arithmetic for sizes and tiles."""


def ceil_div(dividend: int, divisor: int) -> int:
    """Divide and round up: how many blocks of `divisor` cover `dividend`."""
    return (dividend + divisor - 1) // divisor


def round_up(size: int, step: int) -> int:
    """The smallest multiple of `step` that is at least `size`."""
    return ceil_div(size, step) * step
