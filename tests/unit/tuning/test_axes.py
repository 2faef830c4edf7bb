"""The points that a search sees its configurations as."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autotune.families.config import Config, Value
from autotune.tuning.search.axes import SINGLES, TWOS, SearchSpace, axes_of


def space(*columns: Sequence[Value]) -> SearchSpace:
    """Configurations of parameters `a`, `b`, ... with these values."""
    rows = zip(*columns, strict=True)
    configs = [Config("table", tuple(zip("abc", row, strict=False))) for row in rows]
    return SearchSpace(axes_of(configs), len(configs))


def test_powers_of_two_have_a_size_alone() -> None:
    assert space([1, 2, 4, 8], [0, 1, 0, 1]).oddities == []


def test_words_have_no_further_columns() -> None:
    assert space(["x", "y", "z"]).oddities == []


def test_divisibility_tells_96_from_its_neighbours() -> None:
    twos, singles = space([80, 96, 112, 88, 87, 256, 0]).oddities
    assert (twos.shape, singles.shape) == ((7, 1), (7, 7))
    assert twos[:, 0] == pytest.approx(TWOS * np.array([4, 5, 4, 3, 0, 5, 5]) / 5)


def test_any_two_single_values_are_equally_far_apart() -> None:
    _, singles = space([80, 96, 112]).oddities
    off = np.sqrt(np.square(singles[:, None] - singles[None]).sum(2))
    assert off[~np.eye(3, dtype=bool)] == pytest.approx([SINGLES] * 6)


def test_configuration_without_the_parameter_differs_from_all() -> None:
    configs = [Config("one", (("a", 3),)), Config("one", (("a", 6),)), Config("two", (("b", 1),))]
    twos, singles = SearchSpace(axes_of(configs), 3).oddities
    assert (twos.shape, singles.shape) == ((3, 1), (3, 3))
    assert len(np.unique(np.hstack([twos, singles]), axis=0)) == 3


def test_configuration_is_found_by_its_parameters() -> None:
    made = space([80, 96, 112], ["x", "y", "x"])
    assert [made.index(made.params(place)) for place in range(3)] == [0, 1, 2]
    assert space([80]).index({}) == 0
