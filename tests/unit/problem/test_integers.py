import pytest

from autotune.problem.integers import ceil_div, round_up


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (2**62 + 1, 2, 2**61 + 1)],
)
def test_ceil_div_rounds_up_exactly(dividend: int, divisor: int, quotient: int) -> None:
    assert ceil_div(dividend, divisor) == quotient


@pytest.mark.parametrize(("size", "step", "rounded"), [(0, 8, 0), (1, 8, 8), (8, 8, 8), (9, 8, 16)])
def test_round_up_reaches_the_next_multiple(size: int, step: int, rounded: int) -> None:
    assert round_up(size, step) == rounded
