"""The families that a name selects."""

import pytest

from autotune.candidates.family_names import families_of
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.problem import Problem


def test_auto_selects_the_searched_families() -> None:
    assert families_of("auto", Problem(37, 53, 20)) == registry.tuned(Problem(37, 53, 20))


def test_family_name_selects_that_family() -> None:
    assert families_of("naive", Problem(37, 53, 20)) == ("naive",)


def test_family_without_the_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="simt does not compute bf16"):
        families_of("simt", Problem(37, 53, 20, "bf16"))
