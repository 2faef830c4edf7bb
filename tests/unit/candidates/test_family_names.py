"""The families that a name stands for."""

import pytest

from autotune.candidates.family_names import families_of
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.problem import Problem


def test_auto_is_the_searched_families_that_serve() -> None:
    assert families_of("auto", Problem(37, 53, 20)) == registry.tuned(Problem(37, 53, 20))


def test_family_name_stands_for_itself() -> None:
    assert families_of("naive", Problem(37, 53, 20)) == ("naive",)


def test_family_that_does_not_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="simt does not compute bf16"):
        families_of("simt", Problem(37, 53, 20, "bf16"))
