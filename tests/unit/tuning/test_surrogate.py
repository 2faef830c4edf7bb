"""The default search: how it uses results, features and predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.sample_search import (
    RESOURCES,
    hint,
    proposed,
    result,
    searched,
    space,
    time_us,
)

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import COLD
from autotune.model.features import Describe, Description
from autotune.tuning.proposals import ENOUGH, EVERY, LOOKS, Patience
from autotune.tuning.search import surrogate
from autotune.tuning.search.axes import LEAST
from autotune.tuning.search.proposer import GAIN_AFTER, SURE, Proposer
from autotune.tuning.search.surrogate import (
    CALM,
    GAIN,
    LIKELY_FAILURE,
    NEAR,
    SHARE,
    WEIGHT,
    Surrogate,
    expected_improvement,
    margin,
)
from autotune.tuning.trials import Trial


def until(limit_us: float, seed: int, describe: Describe | None) -> int:
    """The number of trials until one takes at most that long."""
    asked = proposed(Proposer(space(), seed=seed, describe=describe), 200)
    return next(
        (count for count, config in enumerate(asked, 1) if time_us(config) <= limit_us), 200
    )


def test_time_model_shortens_the_search() -> None:
    hinted, blind = (
        sum(until(105.0, seed, describe) for seed in range(3)) for describe in (hint, None)
    )
    assert hinted < 0.9 * blind


def test_wrong_model_is_overcome() -> None:
    def misled(configs: Sequence[Config], resources: Sequence[Resources | None]) -> Description:
        del resources
        return Description(np.empty((len(configs), 0)), 1e4 / np.array([*map(time_us, configs)]))

    assert until(100.0, 0, misled) < 150


def test_unrunnable_predictions_are_not_preferred() -> None:
    def half(configs: Sequence[Config], resources: Sequence[Resources | None]) -> Description:
        described = hint(configs, resources)
        assert described.predicted is not None
        runs = np.array([config.integer("a") < 4 for config in configs])
        return replace(described, predicted=np.where(runs, described.predicted, np.inf))

    configs = space()
    told = map(result, configs[: len(configs) // 2 : 99])
    first = Proposer(configs, describe=half, told=told).ask()
    assert first is not None
    assert first.integer("a") < 4


def test_features_are_scaled_by_the_space_not_by_the_trials() -> None:
    configs = sorted(space(), key=time_us)
    search = Proposer(configs, told=map(result, configs[:8]), describe=hint)
    assert search.ask() is not None
    assert search._surrogate is not None
    points = search._surrogate._space.points
    assert points[:, -3:].std(0) == pytest.approx(np.full(3, WEIGHT), rel=0.01)


@pytest.mark.parametrize(("describe", "more"), [(None, True), (hint, False)])
def test_single_values_are_inputs_only_without_features(
    describe: Describe | None, more: bool
) -> None:
    search = Proposer(space(), told=[result(space()[0])], describe=describe)
    assert search.ask() is not None
    assert search._surrogate is not None
    described = search._surrogate._space
    features = 0 if describe is None else 3
    assert (described.points.shape[1] > described.matrix.shape[1] + features) == more


def test_compiled_configs_are_described_by_resources() -> None:
    seen: dict[Config, Resources | None] = {}

    def noted(configs: Sequence[Config], resources: Sequence[Resources | None]) -> Description:
        seen.update(zip(configs, resources, strict=True))
        return hint(configs, resources)

    configs = space()
    search = Proposer(configs, describe=noted)
    tried = [*proposed(search, 12)]
    search.ask()
    assert {config for config, resources in seen.items() if resources == RESOURCES} == {*tried}


def test_tail_of_guesses_ends_with_the_first_result() -> None:
    configs = space()
    guesses = configs[100 : 100 + 2 * SURE]
    asked = [*proposed(Proposer(configs, guesses=guesses), 2 * SURE)]
    assert asked[:SURE] == guesses[:SURE]
    assert not {*asked[SURE:]} >= {*guesses[SURE:]}


def test_all_guesses_precede_the_first_result() -> None:
    configs = space()
    guesses = configs[100 : 100 + 2 * SURE]
    search = Proposer(configs, guesses=guesses)
    assert [search.ask() for _ in guesses] == guesses


def test_slow_family_gets_no_more_trials() -> None:
    configs = [*space(), *space("two")]  # three times slower
    asked = [*proposed(Proposer(configs, seed=1), 80)]
    late = [config.family for config in asked].count("two")
    assert 0 < late <= LEAST + 2


def test_failing_region_is_avoided() -> None:
    configs = space()
    search = Proposer(configs, seed=2)
    asked: list[Config] = []
    for _ in range(60):
        config = search.ask()
        assert config is not None
        asked.append(config)
        fails = config.integer("b") in (1, 2)  # with the best
        search.tell(Trial(config, Failure("launch", "no")) if fails else result(config))
    assert sum(config.integer("b") in (1, 2) for config in asked[30:]) < 30 / 4


def half_failed(count: int) -> Proposer:
    """A search of which each configuration with `a` over 4 has failed."""
    search = Proposer(space(), seed=3)
    for config in space()[:: len(space()) // count]:
        fails = config.integer("a") > 4
        search.learn(Trial(config, Failure("launch", "no")) if fails else result(config))
    return search


def ranked(search: Proposer) -> tuple[Surrogate, surrogate.Ranking]:
    engine = search._surrogate
    assert engine is not None
    return engine, engine._ranked(search._history.left)


def test_neighbourhood_of_failures_has_little_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = space()
    monkeypatch.setattr(surrogate, "LEAST_KEPT", len(configs))
    engine, ranking = ranked(half_failed(80))
    assert ranking.chances is not None
    a = np.array([configs[index].integer("a") for index in engine._pool])
    assert ranking.chances[a > 5].max() < 0.2
    assert ranking.chances[a < 4].min() > 0.8
    assert (ranking.chances.min() >= 0) & (ranking.chances.max() <= 1)


def test_unlikely_candidates_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "LEAST_KEPT", len(space()))
    engine, ranking = ranked(half_failed(80))
    assert ranking.chances is not None
    unlikely = ranking.chances < LIKELY_FAILURE
    left = ranking.gains > -np.inf
    assert 0 < unlikely.sum() < len(engine._pool)
    assert ranking.gains[unlikely & left].max() < ranking.gains[~unlikely & left].min()


def test_failure_lowers_the_chances_around_it_at_once() -> None:
    search = half_failed(80)
    engine, before = ranked(search)
    assert before.chances is not None
    pool = engine._pool.copy()
    place = int(np.flatnonzero(before.chances > 0.9)[0])
    search.learn(Trial(space()[pool[place]], Failure("launch", "no")))
    engine, after = ranked(search)
    assert after.chances is not None
    assert engine._pool.tolist() == pool.tolist()
    assert after.chances[place] < 0.5
    off = np.abs(engine._space.points[pool] - engine._space.points[pool[place]]).sum(1)
    nearest, fall = np.argsort(off), before.chances - after.chances
    assert fall[nearest[:10]].mean() > fall[nearest[-10:]].mean()


def test_improvement_is_the_mean_of_the_positive_part() -> None:
    drawn = np.random.default_rng(1).normal(-0.3, 0.5, 2_000_000)
    exact = np.maximum(drawn, 0).mean()
    improvement = expected_improvement(np.array([-0.3]), np.array([0.5]))
    assert improvement == pytest.approx([exact], rel=0.01)


def test_improvement_grows_with_the_gain_and_the_deviation() -> None:
    gains = expected_improvement(np.linspace(-2, 2, 50), np.full(50, 0.1))
    deviations = expected_improvement(np.full(50, -0.2), np.linspace(0.02, 2, 50))
    assert np.all(np.diff(gains) > 0)
    assert np.all(np.diff(deviations) > 0)


@pytest.mark.parametrize("fits", [0, 1])
def test_spare_configuration_fits(fits: int) -> None:
    search = Proposer(space(), told=map(result, space()[::70]))
    spare = search.spare(lambda config: config.integer("d") % 2 == fits)
    assert spare is not None
    assert spare.integer("d") % 2 == fits


def test_spare_configuration_is_proposed_once() -> None:
    search = searched(space(), 60)
    asked = [search.spare(lambda _: True) for _ in range(10)]
    assert len({*asked, *(search.ask() for _ in range(10))}) == 20


def test_spare_configuration_is_told_as_usual() -> None:
    search = searched(space(), 60)
    spare = search.spare(lambda _: True)
    assert spare is not None
    search.tell(result(spare))
    assert spare not in [*proposed(search, 20)]


def test_no_spare_if_nothing_fits() -> None:
    assert searched(space(), 60).spare(lambda _: False) is None


def test_no_spare_before_the_first_time() -> None:
    assert Proposer(space()).spare(lambda _: True) is None


def test_no_spare_at_the_end() -> None:
    configs = space()[:50]
    assert searched(configs, 50).spare(lambda _: True) is None


def test_unfit_configurations_stay_available() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    search.spare(lambda _: False)
    assert {*proposed(search, 60)} == {*configs[50:]}


def test_small_space_is_searched_wholly() -> None:
    configs = sorted(space()[::60], key=time_us, reverse=True)  # new bests until the end
    assert sorted(proposed(Proposer(configs, seed=1), 100)) == sorted(configs)


def test_nothing_is_proposed_twice_in_flight() -> None:
    configs = space()[::16]
    search, under_way, asked = Proposer(configs), list[Config](), list[Config]()
    while (config := search.ask()) is not None:
        asked.append(config)
        under_way.append(config)
        if len(under_way) == 12:
            search.tell(result(under_way.pop(5)))
    assert sorted(asked) == sorted(configs)


def test_proposals_in_flight_differ() -> None:
    search = searched(space(), 200)
    asked = [search.ask() for _ in range(16)]
    assert len({config.params[:2] for config in asked if config is not None}) > 4


def test_optimum_outside_the_sample_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surrogate, "SAMPLE", 400)
    monkeypatch.setattr(surrogate, "FIRST", 100)
    monkeypatch.setattr(surrogate, "AROUND", 60)
    configs = space()
    bests = []
    for seed in range(3):
        search = Proposer(configs, seed=seed, describe=hint)
        engine = search._surrogate
        assert engine is not None
        optimum = next(place for place, config in enumerate(configs) if time_us(config) == 100)
        engine._sample = engine._sample[engine._sample != optimum]
        bests.append(min(map(time_us, proposed(search, 120))))
    assert bests == [100.0] * 3


def test_neighbours_are_searched_in_the_whole_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surrogate, "SAMPLE", 400)
    monkeypatch.setattr(surrogate, "FIRST", 100)
    monkeypatch.setattr(surrogate, "AROUND", 60)
    search = Proposer(space(), describe=hint)
    for _ in proposed(search, 20):
        pass
    engine = search._surrogate
    assert engine is not None
    described = np.isin(engine._neighbours(engine._history.left), engine._sample).mean()
    assert described < 0.25  # a tenth of the space is in the sample


def test_only_a_sample_of_a_large_space_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "SAMPLE", 400)
    monkeypatch.setattr(surrogate, "FIRST", 100)
    monkeypatch.setattr(surrogate, "AROUND", 60)
    seen: set[Config] = set()

    def noted(configs: Sequence[Config], resources: Sequence[Resources | None]) -> Description:
        seen.update(configs)
        return hint(configs, resources)

    configs = space()
    for _ in proposed(Proposer(configs, describe=noted), 10):
        pass
    assert {*configs[:100]} <= seen
    assert len(seen) <= 400 + 10 * 60


def test_same_seed_repeats_with_a_model() -> None:
    first, second = ([*proposed(Proposer(space(), seed=7, describe=hint), 30)] for _ in range(2))
    assert first == second


def test_value_can_be_the_cold_time() -> None:
    def cold(config: Config) -> Trial:
        return Trial(config, Measurement(1e5 / time_us(config), cold_us=time_us(config)))

    search = Proposer(space(), value=lambda trial: trial.time(COLD))
    asked: list[Config] = []
    while len(asked) < 80:
        config = search.ask()
        assert config is not None
        asked.append(config)
        search.tell(cold(config))
    assert min(map(time_us, asked)) < 110


# A search's expectation of the configurations it has not tried, and the stop rule


LOW = 0.9 * ENOUGH


def test_gain_is_unknown_at_first() -> None:
    assert searched(space(), GAIN_AFTER - 1).expected_gain() is None


def test_other_samplers_have_no_gain() -> None:
    configs = space()
    told = map(result, configs[: 2 * GAIN_AFTER])
    assert Proposer(configs, sampler="tpe", told=told).expected_gain() is None


def test_gain_without_times_is_infinite() -> None:
    configs = space()
    told = [Trial(config, Failure("launch", "no")) for config in configs[:GAIN_AFTER]]
    assert Proposer(configs, told=told).expected_gain() == math.inf


def test_gain_is_large_far_from_the_optimum() -> None:
    configs = sorted(space(), key=time_us)
    gain = Proposer(configs, told=map(result, configs[-GAIN_AFTER * 20 :: 20])).expected_gain()
    assert gain is not None
    assert gain > 0.02


def test_gain_is_small_once_all_good_are_tried() -> None:
    configs = sorted(space(), key=time_us)
    gain = Proposer(configs, told=map(result, [*configs[:100], *configs[100::40]])).expected_gain()
    assert gain is not None
    assert gain < 0.005


@pytest.mark.parametrize("told", [50, 49], ids=["all are told", "one is pending"])
def test_gain_of_an_exhausted_space_is_zero(told: int) -> None:
    search = searched(space()[:50], told)
    search.ask()
    assert search.expected_gain() == 0


def test_errors_near_the_best_count() -> None:
    logs = np.array([2.0, 2 + 0.9 * NEAR, 2 + 1.1 * NEAR, math.inf, math.nan])
    errors = np.array([3.0, 4, 50, 60, 70])
    assert margin(logs[:1], logs, errors) == pytest.approx(SHARE * math.sqrt(12.5))


def after(*logs: float) -> float:
    """The margin after results whose times have these logarithms, and an error of 0.1 of each."""
    told = np.array([1.0, *logs])
    return margin(told, told, np.full(len(told), 0.1))


@pytest.mark.parametrize(
    "log", [1.0, 1.2, 1 - 0.9 * GAIN, math.inf], ids=["equal", "slower", "little", "failed"]
)
def test_margin_shrinks_while_results_bring_no_gain(log: float) -> None:
    assert after(*[log] * CALM) == pytest.approx(after() / 2)


def test_gain_brings_the_margin_back() -> None:
    assert after(*[1.0] * CALM, 1 - 1.1 * GAIN) == pytest.approx(after())


def test_gain_stays_high_where_nothing_can_be_foreseen() -> None:
    random = np.random.default_rng(1)
    tried = space()[::41]
    told = [Trial(config, Measurement(100 * random.lognormal(0, 0.1))) for config in tried]
    gain = Proposer(space(), told=told).expected_gain()
    assert gain is not None
    assert gain > ENOUGH


# The stop rule.


def patience(*gains: float | None) -> Patience:
    """A stop rule that has seen these gains, each when a look was due."""
    made = Patience()
    for number, gain in enumerate(gains, 1):
        made.look(number * EVERY, gain)
    return made


@pytest.mark.parametrize(
    ("gains", "over"),
    [
        ([LOW] * LOOKS, True),
        ([LOW] * (LOOKS - 1), False),
        ([*[LOW] * (LOOKS - 1), ENOUGH, *[LOW] * (LOOKS - 1)], False),
        ([*[LOW] * (LOOKS - 1), None, LOW], False),
        ([0.2, *[LOW] * LOOKS], True),
        ([None] * 9, False),
        ([], False),
    ],
    ids=["low", "too few", "once worth it", "once unknown", "at last", "never known", "unlooked"],
)
def test_it_ends_after_low_gains_in_a_row(gains: Sequence[float | None], over: bool) -> None:
    assert patience(*gains).over is over


@pytest.mark.parametrize(("trials", "due"), [(0, False), (EVERY - 1, False), (EVERY, True)])
def test_look_is_due_after_some_trials(trials: int, due: bool) -> None:
    assert Patience().due(trials) is due


def test_next_look_is_due_after_as_many() -> None:
    made = Patience()
    made.look(EVERY + 3, 0.1)  # several trials came back at once
    assert [made.due(trials) for trials in (2 * EVERY, 2 * EVERY + 3)] == [False, True]


def test_nothing_is_due_once_the_search_is_over() -> None:
    assert not patience(*[LOW] * LOOKS).due(10**6)


def test_stop_rule_keeps_the_last_gain() -> None:
    assert patience(0.3, 0.2).gain == 0.2
