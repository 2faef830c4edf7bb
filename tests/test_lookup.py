from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import H100, SQUARE, entry, record

from autotune import cost, space
from autotune.config import Config
from autotune.device import Device
from autotune.errors import ConfigError
from autotune.lookup import Answer, lookup
from autotune.plan import Resources
from autotune.problem import Problem, distance
from autotune.space import Rejection, Space
from autotune.store import Store

NEAR = Problem(4096, 4096, 2048)
FAR = Problem(64, 64, 64)
Model = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Sets the tile widths that are legal and what the model predicts for them, as a rate in
    FLOP a microsecond (0: no block fits) for all problems or for one. Without a call: 8, 16 and
    32, all alike."""

    def use(
        rates: Mapping[int, float], special: Mapping[tuple[int, Problem], float] | None = None
    ) -> None:
        def predict(
            config: Config, problem: Problem, device: Device, resources: Resources | None = None
        ) -> float:
            del device, resources
            width = config.integer("tile_width")
            rate = (special or {}).get((width, problem), rates[width])
            return problem.flops / rate if rate else math.inf

        def rejection(config: Config, problem: Problem, device: Device) -> Rejection | None:
            del problem, device
            if config.family != "tiled":
                raise ConfigError(f"unknown family {config.family}")
            legal = config.integer("tile_width") in rates
            return None if legal else Rejection("threads", "too many")

        def feasible(problem: Problem, device: Device, family: str = "simt") -> Space:
            del problem, device, family
            return Space(tuple(entry(width, 1.0).config for width in rates))

        def rank(
            configs: Iterable[Config], problem: Problem, device: Device
        ) -> list[tuple[float, Config]]:
            return sorted((predict(config, problem, device), config) for config in configs)

        monkeypatch.setattr(cost, "predict", predict)
        monkeypatch.setattr(cost, "rank", rank)
        monkeypatch.setattr(space, "rejection", rejection)
        monkeypatch.setattr(space, "feasible", feasible)

    use({8: 1.0, 16: 1.0, 32: 1.0})
    return use


def _ask(store: Store, problem: Problem = SQUARE) -> Answer:
    answer = lookup(problem, H100, store)
    assert answer is not None
    return answer


def _width(answer: Answer) -> int:
    return answer.config.integer("tile_width")


# Exact


def test_a_recorded_problem_is_answered_with_its_best(store: Store) -> None:
    saved = store.save(record(entry(16, 900.0), entry(32, 800.0)))
    answer = _ask(store)
    assert (answer.how, answer.evidence, answer.config, answer.time_us, answer.record) == (
        "exact",
        "measured",
        entry(32, 800.0).config,
        800.0,
        saved,
    )


def test_a_replayed_record_says_so(store: Store) -> None:
    store.save(record(evidence="replayed"))
    assert (_ask(store).how, _ask(store).evidence) == ("exact", "replayed")


def test_an_entry_that_is_no_longer_legal_is_passed_over(store: Store, model: Model) -> None:
    store.save(record(entry(16, 900.0), entry(32, 800.0)))
    model({8: 1.0, 16: 1.0})
    assert _ask(store).time_us == 900.0


def test_a_record_without_a_legal_entry_leaves_it_to_the_model(store: Store, model: Model) -> None:
    store.save(record(entry(16, 900.0)))
    model({8: 1.0})
    assert (_ask(store).how, _width(_ask(store))) == ("predicted", 8)


# Nearest


def test_an_unrecorded_problem_is_answered_from_its_neighbour(store: Store) -> None:
    saved = store.save(record(entry(16, 900.0), problem=NEAR))
    answer = _ask(store)
    assert (answer.how, answer.record, _width(answer)) == ("nearest", saved, 16)


def test_a_neighbours_answer_is_no_measurement(store: Store) -> None:
    store.save(record(problem=NEAR))
    assert _ask(store).evidence == "predicted"


def test_the_note_says_what_to_do(store: Store) -> None:
    store.save(record(problem=NEAR))
    assert _ask(store).note == (
        "4096x4096x4096:f32:nn is not tuned on NVIDIA H100 80GB HBM3: using a configuration of "
        "4096x4096x2048; `autotune tune 4096x4096x4096:f32:nn` finds its own"
    )


def test_a_neighbours_time_grows_with_the_work(store: Store) -> None:
    store.save(record(entry(16, 900.0), problem=NEAR))
    assert _ask(store).time_us == pytest.approx(1800.0)


def test_the_model_reorders_a_neighbours_entries(store: Store, model: Model) -> None:
    store.save(record(entry(16, 900.0), entry(32, 950.0), problem=NEAR))
    model({16: 1.0, 32: 1.0}, {(32, SQUARE): 1.2})
    assert _width(_ask(store)) == 32


def test_what_the_model_gets_wrong_at_the_neighbour_is_corrected(
    store: Store, model: Model
) -> None:
    store.save(record(entry(16, 900.0), entry(32, 950.0), problem=NEAR))
    model({16: 1.0, 32: 1.2})
    assert _width(_ask(store)) == 16


def test_an_entry_that_is_illegal_for_the_new_problem_is_passed_over(
    store: Store, model: Model
) -> None:
    store.save(record(entry(16, 900.0), entry(32, 800.0), problem=NEAR))
    model({16: 1.0})
    assert _width(_ask(store)) == 16


def test_an_entry_of_an_unknown_family_is_passed_over(store: Store) -> None:
    store.save(record(replace(entry(16, 900.0), config=Config("later")), problem=NEAR))
    assert _ask(store).how == "predicted"


def test_an_entry_that_fits_no_multiprocessor_is_passed_over(store: Store, model: Model) -> None:
    store.save(record(entry(16, 900.0), entry(32, 800.0), problem=NEAR))
    model({16: 1.0, 32: 0.0})
    assert _width(_ask(store)) == 16


def test_a_record_without_the_epilogue_is_near_and_named(store: Store) -> None:
    saved = store.save(record(problem=NEAR))
    answer = _ask(store, replace(NEAR, epilogue="bias_relu"))
    assert (answer.how, answer.record) == ("nearest", saved)
    assert "4096x4096x2048:f32:nn:bias_relu is not tuned" in answer.note
    assert "a configuration of 4096x4096x2048; `autotune tune" in answer.note


def test_of_those_as_near_the_one_with_the_epilogue_comes_first(store: Store) -> None:
    for shape in ((2048, 4096, 4096), (4096, 2048, 4096), (4096, 4096, 2048)):
        store.save(record(entry(8, 1000.0), problem=Problem(*shape)))
    same = store.save(record(problem=Problem(8192, 4096, 4096, epilogue="gelu")))
    assert _ask(store, replace(SQUARE, epilogue="gelu")).record == same


def test_of_those_as_near_the_one_with_the_output_comes_first(store: Store) -> None:
    short = replace(SQUARE, compute="bf16")
    for shape in ((2048, 4096, 4096), (4096, 2048, 4096), (4096, 4096, 2048)):
        store.save(record(entry(8, 1000.0), problem=Problem(*shape, "bf16", epilogue="relu")))
    wide = Problem(8192, 4096, 4096, "bf16", output="f32")
    same = store.save(record(problem=wide))
    assert _ask(store, replace(short, epilogue="relu", output="f32")).record == same


def test_a_batch_counts_as_a_size(store: Store) -> None:
    store.save(record(problem=Problem(64, 64, 64, batch=512)))
    near = _ask(store, Problem(64, 64, 64, batch=64))
    far = _ask(store, Problem(64, 64, 64, batch=32))
    assert (near.how, far.how) == ("nearest", "predicted")


def test_only_the_nearest_three_are_asked(store: Store) -> None:
    for number, k in enumerate((4097, 4098, 4099, 4100)):
        width, time_us = (32, 1.0) if k == 4100 else (16, 900.0 + number)
        store.save(record(entry(width, time_us), problem=Problem(4096, 4096, k)))
    assert _width(_ask(store)) == 16


@pytest.mark.parametrize("other", [FAR, Problem(4096, 4096, 2048, layout="nt")], ids=str)
def test_a_record_that_says_little_of_the_problem_is_no_neighbour(
    store: Store, other: Problem
) -> None:
    store.save(record(problem=other))
    assert _ask(store).how == "predicted"


# Predicted


def test_without_records_the_model_chooses(store: Store, model: Model) -> None:
    model({8: 1.0, 16: 3.0, 32: 2.0})
    answer = _ask(store)
    assert (answer.how, answer.evidence, _width(answer), answer.time_us, answer.record) == (
        "predicted",
        "predicted",
        16,
        SQUARE.flops / 3.0,
        None,
    )


def test_a_predicted_record_does_not_shadow_a_measured_neighbour(store: Store) -> None:
    store.save(record(entry(32, 1.0), evidence="predicted"))
    store.save(record(entry(16, 900.0), problem=NEAR))
    assert (_ask(store).how, _width(_ask(store))) == ("nearest", 16)


def test_a_predicted_record_is_no_neighbour(store: Store) -> None:
    store.save(record(problem=NEAR, evidence="predicted"))
    assert _ask(store).record is None


def test_a_predicted_record_goes_before_the_models_choice(store: Store) -> None:
    saved = store.save(record(entry(32, 1.0), evidence="predicted"))
    answer = _ask(store)
    assert (answer.how, answer.evidence, answer.record) == ("predicted", "predicted", saved)


@pytest.mark.parametrize("rates", [{}, {8: 0.0}], ids=["nothing legal", "nothing fits"])
def test_a_problem_that_nothing_can_run_has_no_answer(
    store: Store, model: Model, rates: dict[int, float]
) -> None:
    model(rates)
    assert lookup(SQUARE, H100, store) is None


# With the real families and the real model


def test_the_models_choice_is_legal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert space.rejection(_ask(store, FAR).config, FAR, H100) is None


def test_a_neighbours_configuration_is_legal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    near = Problem(64, 64, 4096)
    configs = space.feasible(near, H100).configs[::2000]
    timed = [replace(entry(16, 9.0 + number), config=one) for number, one in enumerate(configs)]
    store.save(record(*timed, problem=near))
    problem = Problem(64, 64, 1024)
    answer = _ask(store, problem)
    assert (answer.how, space.rejection(answer.config, problem, H100)) == ("nearest", None)


# Distance

_problems = st.builds(Problem, *[st.integers(min_value=1, max_value=2**31 - 1)] * 3)


def test_twice_as_long_is_one_octave_away() -> None:
    assert distance(SQUARE, NEAR) == 1.0


@given(_problems, _problems)
def test_distance_does_not_depend_on_the_direction(a: Problem, b: Problem) -> None:
    assert distance(a, b) == pytest.approx(distance(b, a))
