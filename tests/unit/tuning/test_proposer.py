from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from support.sample_search import (
    proposed,
    result,
    searched,
    space,
    time_us,
)

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import OBJECTIVES, Objective
from autotune.tuning.options import LONG_TRIALS, Sampler, Search, require_time, stated
from autotune.tuning.search.axes import FAR, LEAST, History, SearchSpace, axes_of
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Trial

SAMPLERS: tuple[Sampler, ...] = ("gp", "tpe", "random", "exhaustive")


LEARNING: tuple[Sampler, ...] = ("gp", "tpe")


def synthetic() -> list[Config]:
    """A space with the constraints of a register-tiled kernel: 1,488 of 2,592 combinations."""
    choices = itertools.product(
        (32, 64, 128, 256),
        (32, 64, 128, 256),
        (8, 16, 32),
        (4, 8, 16),
        (4, 8, 16),
        (2, 3),
        ("columns", "rows", "snake"),
    )
    return [
        Config(
            "synthetic",
            tuple(zip(("bm", "bn", "bk", "tm", "tn", "stages", "order"), c, strict=True)),
        )
        for c in choices
        if 64 <= c[0] * c[1] // (c[3] * c[4]) <= 512
        and c[3] * c[4] <= 128
        and 4 * c[5] * c[2] * (c[0] + c[1]) <= 96 * 1024
    ]


def cost(config: Config) -> float:
    """Microseconds; least for 128 x 256 tiles, 8 x 16 a thread, three stages, in columns."""
    p = config.values

    def off(name: str, best: int) -> float:
        return abs(math.log2(config.integer(name) / best))

    tile = off("bm", 128) + off("bn", 256) + 0.5 * abs(off("bm", 128) - off("bn", 256))
    thread = off("tm", 8) + off("tn", 16)
    order = {"columns": 0.0, "snake": 0.05, "rows": 0.15}[str(p["order"])]
    return (
        1000
        * (1 + 0.2 * tile + 0.12 * thread + 0.04 * off("bk", 16) + order)
        * (1.0 if p["stages"] == 3 else 1.06)
    )


def run(search: Proposer, trials: int, seed: int = 0) -> list[Trial]:
    """The trials of a search whose times have 2 % noise."""
    noise = random.Random(seed)
    done: list[Trial] = []
    while len(done) < trials and (config := search.ask()) is not None:
        done.append(Trial(config, Measurement(cost(config) * noise.gauss(1, 0.02))))
        search.tell(done[-1])
    return done


def share(trials: list[Trial]) -> float:
    """True time of the optimum over that of the configuration with the best measured time."""
    return min(map(cost, synthetic())) / cost(min(trials, key=lambda trial: trial.time_us).config)


def thin() -> list[Config]:
    """A second family, which shares the parameter `bk` with the synthetic one."""
    choices = itertools.product((16, 32, 64, 128), (1, 2, 4, 8, 16), (2, 3, 4), ("near", "far"))
    names = ("bk", "splits", "unroll", "store")
    return [Config("thin", tuple(zip(names, c, strict=True))) for c in choices]


THIN = {"best_us": 800.0}


def thin_cost(config: Config) -> float:
    """Microseconds; at best a fifth faster than the synthetic family."""
    off = sum(
        abs(math.log2(config.integer(name) / best)) for name, best in (("bk", 64), ("splits", 8))
    )
    return THIN["best_us"] * (1 + 0.3 * off + 0.1 * (config.values["store"] == "far"))


def of_either(config: Config) -> float:
    """The time of a configuration of either family."""
    return thin_cost(config) if config.family == "thin" else cost(config)


def asked(search: Proposer, trials: int) -> list[Config]:
    """The proposals of a search over both families."""
    proposals: list[Config] = []
    while len(proposals) < trials and (config := search.ask()) is not None:
        proposals.append(config)
        search.tell(Trial(config, Measurement(of_either(config))))
    return proposals


def both() -> list[Config]:
    """The 1,488 configurations of the synthetic family with 120 of `thin` in between."""
    mixed = synthetic()
    for place, config in enumerate(thin()):
        mixed.insert(7 * place, config)
    return mixed


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_families_are_searched_together(sampler: Sampler) -> None:
    configs = both()[::6]
    assert sorted(asked(Proposer(configs, sampler=sampler), 1000)) == sorted(configs)


@pytest.mark.parametrize("sampler", LEARNING)
def test_small_but_better_family_is_found(sampler: Sampler) -> None:
    searches = (Proposer(both(), sampler=sampler, seed=seed) for seed in range(3))
    bests = [min(map(of_either, asked(search, 60))) for search in searches]
    assert bests == [min(map(thin_cost, thin()))] * 3


@pytest.mark.parametrize("sampler", LEARNING)
def test_large_family_overtakes_a_small_one(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(THIN, "best_us", 1280.0)  # the other family's best takes 1000
    searches = (Proposer(both(), sampler=sampler, seed=seed) for seed in range(3))
    bests = [min(map(of_either, asked(search, 120))) for search in searches]
    assert statistics.median(bests) < 1100


def test_family_is_an_axis_and_gaps_are_none() -> None:
    axes = {axis.name: axis for axis in axes_of(both())}
    assert axes["family"].values == ("synthetic", "thin")
    assert axes["bk"].values == (8, 16, 32, 64, 128)
    assert axes["bm"].values == (None, 32, 64, 128, 256)
    assert axes["store"].values == (None, "far", "near")


def test_single_family_has_no_family_axis() -> None:
    assert "family" not in {axis.name for axis in axes_of(thin())}


def test_draw_projects_onto_its_own_family() -> None:
    configs = both()
    axes = {axis.name: axis for axis in axes_of(configs)}
    away = axes["family"].distances("thin")
    parameters = [axis for axis in axes.values() if axis.name != "family"]
    farthest = sum(float(axis.distances(axis.param(0)).max()) for axis in parameters)
    of_thin = np.array([config.family == "thin" for config in configs])
    assert away[of_thin].max() == 0
    assert away[~of_thin].min() > farthest


def test_absent_value_is_at_distance_zero() -> None:
    configs = [*synthetic()[:1], *thin()[:1], *synthetic()[-1:]]
    bm = next(axis for axis in axes_of(configs) if axis.name == "bm")
    assert bm.distances(bm.param(0)).tolist() == [0, 0, 1]
    assert bm.distances(bm.param(1)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("sampler", LEARNING)
def test_search_over_families_continues_from_told(sampler: Sampler) -> None:
    configs = both()
    first = asked(Proposer(configs, sampler=sampler, seed=4), 40)
    told = [Trial(config, Measurement(of_either(config))) for config in first]
    again = asked(Proposer(configs, sampler=sampler, seed=4, told=told), 40)
    assert not {trial.config for trial in told} & set(again)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_configuration_is_proposed_once(sampler: Sampler) -> None:
    configs = synthetic()[::6]
    asked = [trial.config for trial in run(Proposer(configs, sampler=sampler), 1000)]
    assert sorted(asked) == sorted(configs)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_told_configurations_are_not_proposed(sampler: Sampler) -> None:
    configs = synthetic()[::6]
    told = run(Proposer(configs, sampler=sampler), 60)
    again = run(Proposer(configs, sampler=sampler, told=told), 1000)
    assert not {trial.config for trial in told} & {trial.config for trial in again}
    assert len(told) + len(again) == len(configs)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_several_may_be_asked_before_one_is_told(sampler: Sampler) -> None:
    search = Proposer(synthetic(), sampler=sampler)
    asked = [search.ask() for _ in range(12)]
    assert len(set(asked)) == 12


def test_exhaustive_keeps_the_order() -> None:
    configs = synthetic()[:20]
    assert [trial.config for trial in run(Proposer(configs, sampler="exhaustive"), 20)] == configs


def test_guesses_come_first() -> None:
    configs = synthetic()
    guesses = [configs[700], configs[3], Config("synthetic", (("bm", 7),)), configs[500]]
    first = [trial.config for trial in run(Proposer(configs, guesses=guesses), 3)]
    assert first == [configs[700], configs[3], configs[500]]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_same_seed_repeats_the_proposals(sampler: Sampler) -> None:
    first, second = (run(Proposer(synthetic(), sampler=sampler, seed=7), 50) for _ in range(2))
    assert first == second


def test_another_seed_changes_the_proposals() -> None:
    first, second = (run(Proposer(synthetic(), seed=seed), 50) for seed in (1, 2))
    assert first != second


@pytest.mark.parametrize("sampler", LEARNING)
def test_learning_samplers_beat_random_in_50_trials(sampler: Sampler) -> None:
    def reached(sampler: Sampler, seed: int) -> float:
        return share(run(Proposer(synthetic(), sampler=sampler, seed=seed), 50, seed))

    learnt = statistics.median(reached(sampler, seed) for seed in range(7))
    drawn = statistics.median(reached("random", seed) for seed in range(7))
    assert learnt > drawn + 0.03


@pytest.mark.parametrize("sampler", LEARNING)
def test_learning_samplers_avoid_failures(sampler: Sampler) -> None:
    search = Proposer(synthetic(), sampler=sampler, seed=3)
    asked: list[Config] = []
    for _ in range(80):
        config = search.ask()
        assert config is not None
        asked.append(config)
        fails = config.values["order"] == "columns"
        outcome = Failure("verify", "wrong") if fails else Measurement(cost(config))
        search.tell(Trial(config, outcome))
    assert sum(config.values["order"] == "columns" for config in asked[40:]) < 40 / 3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_search_continues_if_everything_fails(sampler: Sampler) -> None:
    search = Proposer(synthetic(), sampler=sampler)
    for _ in range(40):
        config = search.ask()
        assert config is not None
        search.tell(Trial(config, Failure("crash", "illegal access")))
    assert search.ask() is not None


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_single_configuration_can_be_searched(sampler: Sampler) -> None:
    search = Proposer(synthetic()[:1], sampler=sampler)
    assert [search.ask(), search.ask()] == [synthetic()[0], None]


def test_optuna_logging_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    run(Proposer(synthetic()), 3)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


# Twenty configurations of one family, and twenty of another.
FIRST, SECOND = range(20), range(20, 40)


CONFIGS = [Config.of(family, {"bm": bm}) for family in ("simt", "thin") for bm in FIRST]


def history() -> History:
    return History(SearchSpace(axes_of(CONFIGS), len(CONFIGS)))


def behind(by: float, trials: int = LEAST, value: float | None = None) -> History:
    """A history in which the second family has `trials` trials and is `by` times as slow."""
    made = history()
    made.finish(0, math.log(100.0))
    for index in SECOND[:trials]:
        made.finish(index, math.log(100.0 * by) if value is None else value)
    return made


def free(made: History) -> list[int]:
    return [int(index) for index in np.flatnonzero(made.left)]


def test_started_configuration_is_not_left() -> None:
    made = history()
    made.start(3)
    assert free(made) == [index for index in range(40) if index != 3]


def test_released_configuration_is_left_again() -> None:
    made = history()
    made.start(3)
    made.release(3)
    assert (free(made), list(made.pending)) == ([*range(40)], [])


def test_finished_configuration_is_not_released() -> None:
    made = history()
    made.start(3)
    made.finish(3, 1.0)
    made.release(3)
    assert 3 not in free(made)


def test_finished_but_never_started_is_not_left() -> None:
    made = history()
    made.finish(4, 1.0)
    assert 4 not in free(made)


def test_pending_keeps_its_order() -> None:
    made = history()
    for index in (7, 2, 9):
        made.start(index)
    made.finish(2, 1.0)
    assert list(made.pending) == [7, 9]


def test_best_is_the_least_of_all_families() -> None:
    made = history()
    for index, value in ((5, 3.0), (25, 2.0), (6, 4.0)):
        made.finish(index, value)
    assert made.best == 25


def test_failure_is_never_the_best() -> None:
    made = history()
    made.finish(5, math.inf)
    assert (made.best, made.told, made.logs[5]) == (None, [5], math.inf)


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (behind(1.01 * FAR), {0}),
        (behind(0.99 * FAR), {0, 1}),
        (behind(9.0, LEAST - 1), {0, 1}),
        (behind(9.0, value=math.inf), {0}),
    ],
    ids=["far behind", "near", "hardly tried", "all fail"],
)
def test_family_far_behind_is_not_left(made: History, left: set[int]) -> None:
    assert {index // 20 for index in free(made)} == left


def test_family_far_behind_is_left_if_no_other_is() -> None:
    made = behind(9.0)
    for index in FIRST:
        made.start(index)
    assert free(made) == [*SECOND[LEAST:]]


def test_without_times_no_family_is_behind() -> None:
    made = history()
    for index in SECOND[:LEAST]:
        made.finish(index, math.inf)
    assert len(free(made)) == 40 - LEAST


def test_overtaken_family_falls_behind() -> None:
    made = behind(0.99 * FAR)
    made.finish(1, math.log(50.0))
    assert {index // 20 for index in free(made)} == {0}


def test_rivals_are_the_best_of_close_families() -> None:
    assert sorted(behind(0.99 * FAR).rivals()) == [0, 20]


def test_family_far_behind_has_no_rival() -> None:
    assert behind(1.01 * FAR).rivals() == [0]


def test_no_rivals_without_times() -> None:
    assert history().rivals() == []


# A search beside other processes: what they have claimed and what they find


def test_excluded_configurations_are_not_proposed() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    search.exclude(frozenset(configs[50:55]))
    assert {*proposed(search, 60)} == {*configs[55:]}


def test_readmitted_configurations_are_proposed() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    search.exclude(frozenset(configs[50:55]))
    search.exclude(frozenset(configs[52:55]))
    assert {*proposed(search, 60)} == {*configs[50:52], *configs[55:]}


def test_given_up_config_waits_for_the_other_process() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    claimed = search.ask()
    assert claimed is not None
    search.give_up(claimed)
    search.exclude(frozenset([claimed]))
    proposals = [*proposed(search, 60)]
    search.exclude(frozenset())
    assert (claimed in proposals, len(proposals), search.ask()) == (False, 9, claimed)


def test_exclusion_does_not_free_an_asked_config() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    here = search.ask()
    assert here is not None
    search.exclude(frozenset([here]))
    search.exclude(frozenset())
    assert here not in [*proposed(search, 60)]


def test_learned_trials_guide_the_search() -> None:
    configs = space()
    search = searched(configs, 50)
    optimum = next(config for config in configs if time_us(config) == 100)
    search.learn(result(optimum))
    near = [*proposed(search, 20)]
    off = [
        sum(a[1] != b[1] for a, b in zip(config.params, optimum.params, strict=True))
        for config in near
    ]
    assert optimum not in near
    assert min(off) == 1


def test_unknown_and_told_trials_are_not_learned() -> None:
    configs = space()[:60]
    search = searched(configs, 50)
    search.learn(Trial(Config("three", ()), Measurement(1.0)))
    search.learn(Trial(configs[0], Measurement(1.0)))
    assert {*proposed(search, 60)} == {*configs[50:]}


# `Search`: what its effort sets, what stated fields replace, and what it refuses


@pytest.mark.parametrize(
    ("search", "trials", "seconds", "sampling"),
    [
        (Search(), None, 60.0, "gp"),
        (Search(trials=9), 9, None, "gp"),
        (Search(seconds=5), None, 5, "gp"),
        (Search(sampler="exhaustive"), None, None, "exhaustive"),
        (Search(effort="long"), LONG_TRIALS, 300.0, "gp"),
        (Search(effort="long", seconds=30), LONG_TRIALS, 30, "gp"),
        (Search(effort="long", trials=900), 900, None, "gp"),
        (Search(effort="exhaustive"), None, None, "exhaustive"),
        (Search(effort="exhaustive", seconds=30), None, 30, "exhaustive"),
        (Search(effort="exhaustive", sampler="random"), None, None, "random"),
        (Search(effort="quick"), None, None, "exhaustive"),
        (Search(effort="quick", seconds=2), None, 2, "exhaustive"),
    ],
)
def test_effort_sets_what_is_not_stated(
    search: Search, trials: int | None, seconds: float | None, sampling: str
) -> None:
    limited = search.limited()
    assert (limited.trials, limited.seconds, limited.sampling) == (trials, seconds, sampling)
    assert limited.limited() == limited


@pytest.mark.parametrize(
    ("search", "seconds"),
    [
        (Search(), 60.0),
        (Search(effort="quick"), 60.0),
        (Search(effort="long"), 300.0),
        (Search(effort="exhaustive"), 300.0),
        (Search(effort="long", seconds=7), 7),
    ],
)
def test_problems_share_the_seconds_of_the_effort(search: Search, seconds: float) -> None:
    limited = search.each_limited()
    assert limited.seconds == search.seconds
    assert limited.shared_seconds(3) == seconds


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trials": 5}, "quick takes no trials; leave either out"),
        ({"sampler": "tpe", "seed": 3}, "quick takes no seed, sampler"),
        ({"storage": "a.log"}, "quick takes no storage"),
        ({"energy": True}, "quick takes no energy"),
    ],
)
def test_race_refuses_what_is_of_a_search(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Search(effort="quick", **fields).limited()


def test_race_of_one_family_is_refused() -> None:
    with pytest.raises(UsageError, match="quick takes no family"):
        Search(effort="quick").limited("simt")


def test_race_of_a_call_keeps_its_deadline() -> None:
    search = Search(seconds=5, seed=7, jobs=2, objective="cold").begun(100.0)
    race = search.race()
    assert (race.quick, race.deadline, race.jobs, race.objective) == (True, 105.0, 2, "cold")
    assert race == Search(effort="quick", jobs=2, objective="cold")


def test_stated_values_replace_fields() -> None:
    search = Search(effort="long", seed=3)
    assert stated(search, effort=None, trials=5) == replace(search, trials=5)
    assert stated(None, objective="cold") == Search(objective="cold")


@pytest.mark.parametrize("search", [Search(objective="energy"), Search(energy=True)])
def test_energy_is_of_one_problem(search: Search) -> None:
    with pytest.raises(UsageError, match="tune for energy one shape at a time"):
        require_time(search, "tuning a range")


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_impossible_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"budget is .* s; give more than 0"):
        Search(seconds=seconds)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objective_is_held_as_the_row_of_its_word(objective: Objective) -> None:
    word: Any = "".join(objective)
    assert Search(objective=word).objective is Search(objective=objective).objective is objective
