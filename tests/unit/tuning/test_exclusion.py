"""A search beside other processes: what they have claimed and what they find."""

from __future__ import annotations

from support.sample_search import (
    proposed,
    result,
    searched,
    space,
    time_us,
)

from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.tuning.trials import Trial


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
