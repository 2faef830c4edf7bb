from collections.abc import Callable

import pytest

from autotune import cost
from autotune.candidates import candidates, diverse
from autotune.config import Config
from autotune.device import find
from autotune.errors import AutotuneError
from autotune.predicted import PredictedRunner
from autotune.problem import Problem

H100 = find("h100")
PROBLEM = Problem(37, 53, 71)


def safe(_: Config) -> bool:
    return False


def there(survey: int | None = None, unsafe: Callable[[Config], bool] = safe) -> tuple[Config, ...]:
    runner = PredictedRunner(PROBLEM, H100)
    return candidates(PROBLEM, runner, "simt", unsafe, survey=survey).configs


def test_the_best_predicted_comes_first() -> None:
    configs = there()
    times = [cost.predict(config, PROBLEM, H100) for config in configs[:50]]
    assert times == sorted(times)


def test_a_survey_loses_no_configuration() -> None:
    assert sorted(there(survey=500)) == sorted(there())


def test_a_survey_puts_its_best_first() -> None:
    best = cost.predict(there()[0], PROBLEM, H100)
    assert cost.predict(there(survey=500)[0], PROBLEM, H100) == pytest.approx(best, rel=0.05)


def test_guesses_differ_in_their_block_tile() -> None:
    tiles = [(one.integer("bm"), one.integer("bn")) for one in diverse(there(), PROBLEM, 4)]
    assert len(set(tiles)) == 4


def test_what_is_unsafe_is_not_offered() -> None:
    first = there()[0]
    assert first not in there(unsafe=lambda config: config == first)


def test_nothing_left_is_an_error_with_the_reasons() -> None:
    with pytest.raises(AutotuneError, match=r"quarantined [1-9]"):
        there(unsafe=lambda _: True)
