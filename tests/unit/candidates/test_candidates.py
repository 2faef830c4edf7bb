from collections import Counter
from collections.abc import Callable

import pytest
from support.fake_runner import FakeRunner

from autotune.candidates import cost
from autotune.device import find
from autotune.errors import AutotuneError, ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.runners.predicted import PredictedRunner
from autotune.tuning.candidates import A_TILE, ALIKE, candidates, diverse, families_of

H100 = find("h100")
PROBLEM = Problem(37, 53, 20)


def safe(_: Config) -> bool:
    return False


def there(
    survey: int | None = None,
    unsafe: Callable[[Config], bool] = safe,
    *,
    family: str = "simt",
) -> tuple[Config, ...]:
    runner = PredictedRunner(PROBLEM, H100)
    return candidates(PROBLEM, runner, family, unsafe, survey=survey).configs


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `auto` stand for two families."""
    monkeypatch.setattr(registry, "SEARCHED", ("simt", "tiled"))


def test_the_best_predicted_comes_first() -> None:
    configs = there()
    times = [cost.predict(config, PROBLEM, H100) for config in configs[:50]]
    assert times == sorted(times)


def test_a_survey_loses_no_configuration() -> None:
    assert sorted(there(survey=500)) == sorted(there())


def test_a_survey_puts_its_best_first() -> None:
    best = cost.predict(there()[0], PROBLEM, H100)
    assert cost.predict(there(survey=500)[0], PROBLEM, H100) == pytest.approx(best, rel=0.05)


def test_guesses_are_not_all_alike() -> None:
    guessed = diverse(there(), PROBLEM, 10)
    works = [registry.find("simt").work(one, PROBLEM) for one in guessed]
    assert guessed[0] == there()[0]
    assert max(Counter(work.tile for work in works).values()) <= A_TILE
    assert max(Counter((work.tile, work.turns, work.copies) for work in works).values()) <= ALIKE


@pytest.mark.usefixtures("two")
def test_auto_is_every_tuned_family() -> None:
    assert sorted(there(family="auto")) == sorted(there() + there(family="tiled"))


@pytest.mark.usefixtures("two")
def test_auto_is_ranked_over_all_families() -> None:
    times = [cost.predict(config, PROBLEM, H100) for config in there(family="auto")]
    assert times == sorted(times)


@pytest.mark.usefixtures("two")
def test_rejections_of_all_families_are_counted() -> None:
    runner = PredictedRunner(PROBLEM, H100)
    both = candidates(PROBLEM, runner, "auto", safe).rejected
    each = [candidates(PROBLEM, runner, name, safe).rejected for name in ("simt", "tiled")]
    assert sum(both.values()) == sum(sum(one.values()) for one in each)


@pytest.mark.usefixtures("two")
def test_a_family_that_the_model_puts_last_is_guessed_too() -> None:
    ranked = sorted(there(family="auto"), key=lambda config: config.family)
    assert [one.family for one in diverse(ranked, PROBLEM, 4)] == ["simt"] * 2 + ["tiled"] * 2


def test_a_family_with_one_configuration_leaves_its_place_to_others() -> None:
    ranked = [*there(), there(family="tiled")[0]]
    assert [one.family for one in diverse(ranked, PROBLEM, 4)] == ["simt"] * 3 + ["tiled"]


def test_where_all_are_alike_the_best_of_them_are_guessed() -> None:
    alike = [one for one in there() if (one.integer("bm"), one.integer("bn")) == (64, 64)]
    guessed = diverse(alike, PROBLEM, 8)
    assert len(guessed) == 8
    assert guessed[0] == alike[0]


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="magic"):
        there(family="magic")


def test_a_family_that_does_not_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="simt does not compute bf16"):
        families_of("simt", Problem(37, 53, 20, "bf16"))


def test_what_is_unsafe_is_not_offered() -> None:
    first = there()[0]
    assert first not in there(unsafe=lambda config: config == first)


def test_recorded_parameters_of_another_version_are_passed_over() -> None:
    todays = Config.parse("tiled:tile_width=16,specialized=1")
    older = [
        Config.parse("tiled:tile_width=16"),
        Config.parse("tiled:tile_width=16,specialized=1,unrolled=1"),
    ]
    runner = FakeRunner(known=[*older, todays])
    found = candidates(PROBLEM, runner, "tiled", safe)
    assert (found.configs, found.rejected) == ((todays,), {"parameters": 2})


def test_a_recording_of_other_parameters_alone_is_an_error_that_says_so() -> None:
    runner = FakeRunner(known=[Config.parse("simt:bm=64,bn=64")])
    with pytest.raises(AutotuneError, match="rejected: parameters 1"):
        candidates(PROBLEM, runner, "auto", safe)


def test_nothing_left_is_an_error_with_the_reasons() -> None:
    with pytest.raises(AutotuneError, match=r"quarantined [1-9]"):
        there(unsafe=lambda _: True)
