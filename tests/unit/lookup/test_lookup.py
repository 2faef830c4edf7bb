"""What is answered for a problem that is recorded, near, or neither."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record

from autotune.candidates import cost, space
from autotune.device import Device, find
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import lookup
from autotune.problem import Problem, distance
from autotune.records import Entry, Store, ranges
from autotune.records.ranges import Range, Segment

NEAR = Problem(4096, 4096, 2048)
FAR = Problem(64, 64, 64)
H200 = find("h200")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(autouse=True)
def _no_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has nothing to choose from unless a test lets it."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))


def timed(width: int, time_us: float) -> Entry:
    """A configuration that today's families know."""
    return replace(entry(width, time_us), config=tiled(width))


def ask(store: Store, problem: Problem = SQUARE, device: Device = H100) -> Answer:
    answer = lookup(problem, device, store)
    assert answer is not None
    return answer


def width(answer: Answer) -> int:
    return answer.config.integer("tile_width")


# Exact


def test_a_recorded_problem_is_answered_with_its_best(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), timed(32, 800.0)))
    answer = ask(store)
    assert (answer.how, answer.evidence, answer.config, answer.time_us, answer.record) == (
        "exact",
        "measured",
        tiled(32),
        800.0,
        saved,
    )


def test_a_recorded_problem_has_no_regret(store: Store) -> None:
    store.save(record(timed(16, 900.0)))
    assert ask(store).expected_loss == 0.0


def test_a_replayed_record_says_so(store: Store) -> None:
    store.save(record(timed(16, 900.0), evidence="replayed"))
    assert (ask(store).how, ask(store).evidence) == ("exact", "replayed")


def test_an_entry_that_is_no_longer_legal_is_passed_over(store: Store) -> None:
    store.save(record(timed(16, 900.0), timed(64, 800.0)))
    assert ask(store).time_us == 900.0


@pytest.mark.parametrize(("theirs_us", "vendor"), [(700.0, True), (900.0, False)])
def test_it_says_whether_the_vendors_library_is_faster(
    store: Store, theirs_us: float, vendor: bool
) -> None:
    store.save(record(timed(16, 800.0), baseline_us=theirs_us))
    assert ask(store).vendor is vendor


def test_the_vendors_library_is_said_to_be_faster_only_where_it_was_timed(store: Store) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR, baseline_us=100.0))
    assert ask(store).vendor is False


def test_a_record_of_another_card_of_the_model_is_exact(store: Store) -> None:
    card = replace(H100, name="NVIDIA H100 SXM5 80GB", memory_bytes=84 * 10**9)
    saved = store.save(record(timed(16, 900.0), device=card))
    assert (ask(store).how, ask(store).record) == ("exact", saved)


# In a tuned range


def ranged(store: Store, *, point: int, loss: float = 0.04) -> None:
    """4096x4096x1024 to 4096x4096x4096 run what is recorded at `point`."""
    ranges.save(store.root, Range(H100, SQUARE, "k", (Segment(1024, 4096, point),), loss))


def test_a_size_within_a_range_runs_what_is_recorded_at_its_point(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    store.save(record(timed(32, 1.0), problem=Problem(4096, 4096, 3100)))
    ranged(store, point=2048)
    answer = ask(store, Problem(4096, 4096, 3000))
    assert (answer.how, answer.record, answer.expected_loss) == ("range", saved, 0.04)


def test_a_record_of_the_size_itself_goes_before_the_range(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    store.save(record(timed(32, 1500.0), problem=Problem(4096, 4096, 3000)))
    ranged(store, point=2048)
    assert ask(store, Problem(4096, 4096, 3000)).how == "exact"


def test_a_range_whose_point_is_not_recorded_is_passed_over(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    ranged(store, point=1024)
    assert ask(store, Problem(4096, 4096, 3000)).how == "nearest"


def test_a_size_outside_of_a_range_is_not_served_by_it(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    ranged(store, point=2048)
    assert ask(store, Problem(4096, 4096, 4097)).how == "nearest"


def test_of_several_ranges_the_one_that_loses_least_serves(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    ranged(store, point=2048, loss=0.04)
    narrow = Range(H100, SQUARE, "k", (Segment(2048, 4096, 2048),), 0.01)
    ranges.save(store.root, narrow)
    assert ask(store, Problem(4096, 4096, 3000)).expected_loss == 0.01


# Nearest


def test_an_unrecorded_problem_is_answered_from_its_neighbour(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    answer = ask(store)
    assert (answer.how, answer.record, width(answer)) == ("nearest", saved, 16)


def test_a_neighbours_answer_is_no_measurement(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    assert ask(store).evidence == "predicted"


def test_a_neighbours_answer_says_what_it_may_cost(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    regret = ask(store).expected_loss
    assert regret is not None
    assert 0 < regret < 0.5


def test_the_note_says_what_to_do(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    assert ask(store).note == (
        "4096x4096x4096:f32:nn is not tuned on NVIDIA H100 80GB HBM3: using a configuration of "
        "4096x4096x2048; `autotune tune 4096x4096x4096:f32:nn` finds its own"
    )


def test_what_the_model_gets_wrong_at_the_neighbour_is_corrected(store: Store) -> None:
    fair = {w: cost.predict(tiled(w), NEAR, H100) for w in (16, 32)}
    better = min(fair, key=lambda one: fair[one])
    other = 48 - better
    store.save(record(timed(better, 3 * fair[better]), timed(other, fair[other]), problem=NEAR))
    assert width(ask(store)) == other


def test_a_neighbours_time_grows_with_the_work(store: Store) -> None:
    store.save(record(timed(16, cost.predict(tiled(16), NEAR, H100)), problem=NEAR))
    doubled = cost.predict(tiled(16), SQUARE, H100)
    assert ask(store).time_us == pytest.approx(doubled, rel=0.05)


def test_an_entry_that_is_illegal_for_the_new_problem_is_passed_over(store: Store) -> None:
    store.save(record(timed(64, 1.0), timed(32, 900.0), problem=NEAR))
    assert width(ask(store)) == 32


def test_entries_of_other_versions_are_passed_over(store: Store) -> None:
    later = replace(timed(16, 1.0), config=Config("later"))
    older = replace(timed(16, 1.0), config=Config.of("tiled", {"tile_width": 16}))
    store.save(record(later, older, timed(32, 900.0), problem=NEAR))
    assert width(ask(store)) == 32


def test_a_record_without_the_epilogue_is_near_and_named(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    answer = ask(store, replace(NEAR, epilogue="bias_relu"))
    assert (answer.how, answer.record) == ("nearest", saved)
    assert "4096x4096x2048:f32:nn:bias_relu is not tuned" in answer.note
    assert "a configuration of 4096x4096x2048; `autotune tune" in answer.note


def test_a_record_of_another_layout_is_near_and_named(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=replace(NEAR, layout="nt")))
    assert "a configuration of 4096x4096x2048:f32:nt;" in ask(store).note


def test_a_record_in_bf16_serves_f16(store: Store) -> None:
    brief, long = Problem(256, 256, 256, "bf16"), Problem(256, 256, 512, "f16")
    config = Config.parse(
        "mma:compute=bf16,swap=0,bm=64,bn=64,wm=32,wn=32,slices=1,bk=32,copy=async,pack=none,"
        "stages=3,split_k=1,promote=0,min_blocks=1,store=direct,group=1"
    )
    taken = Resources(threads=128, registers=100, shared=30000)
    store.save(record(replace(entry(16, 5.0), config=config, resources=taken), problem=brief))
    answer = ask(store, long)
    assert (answer.how, answer.config.values["compute"]) == ("nearest", "f16")
    assert answer.entry is not None


def test_a_batch_counts_as_a_size(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=Problem(64, 64, 64, batch=4096)))
    near, far = (lookup(Problem(64, 64, 64, batch=batch), H100, store) for batch in (64, 32))
    assert near is not None
    assert (near.how, far) == ("nearest", None)


def test_a_record_that_says_little_of_the_problem_is_no_neighbour(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=Problem(1, 64, 64)))
    assert lookup(SQUARE, H100, store) is None


# Related


def test_a_record_of_a_related_device_is_marked(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), device=H200))
    answer = ask(store)
    assert (answer.how, answer.evidence, answer.record) == ("related", "predicted", saved)
    assert "a configuration of 4096x4096x4096 on NVIDIA H200;" in answer.note


def test_a_record_of_the_device_goes_before_one_of_a_related_one(store: Store) -> None:
    store.save(record(timed(16, 1.0), device=H200))
    store.save(record(timed(32, 900.0), problem=NEAR))
    assert (ask(store).how, width(ask(store))) == ("nearest", 32)


def test_the_vendors_library_that_is_faster_at_a_ranges_point_is_so_in_the_range(
    store: Store,
) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR, baseline_us=100.0))
    ranged(store, point=2048)
    assert (ask(store).how, ask(store).vendor) == ("range", True)


def test_the_vendors_library_that_is_faster_is_so_with_another_epilogue(store: Store) -> None:
    store.save(record(timed(16, 800.0), baseline_us=100.0))
    answer = ask(store, replace(SQUARE, epilogue="bias"))
    assert (answer.how, answer.vendor) == ("nearest", True)


def test_a_related_record_is_never_the_vendors(store: Store) -> None:
    store.save(record(timed(16, 900.0), device=H200, baseline_us=1.0))
    assert ask(store).vendor is False


def test_a_record_of_another_architecture_is_none(store: Store) -> None:
    store.save(record(timed(16, 900.0), device=find("a100")))
    assert lookup(SQUARE, H100, store) is None


# Predicted


def offered(monkeypatch: pytest.MonkeyPatch, *widths: int) -> None:
    """What the model has to choose from."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(tuple(map(tiled, widths))))


def test_without_records_the_model_chooses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, 8, 16, 32)
    times = {tiled(w): cost.predict(tiled(w), SQUARE, H100) for w in (8, 16, 32)}
    best = min(times, key=lambda config: times[config])
    answer = ask(store)
    assert (answer.how, answer.evidence, answer.record) == ("predicted", "predicted", None)
    assert (answer.config, answer.time_us) == (best, times[best])


def test_the_models_choice_says_what_it_may_cost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, 16)
    assert ask(store).expected_loss


def test_the_model_may_beat_a_bad_neighbour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, 16)
    far = Problem(4096, 64, 1024)
    store.save(record(timed(2, 1e6), problem=far))
    answer = ask(store)
    assert (answer.how, width(answer)) == ("predicted", 16)


def test_a_predicted_record_does_not_shadow_a_measured_neighbour(store: Store) -> None:
    store.save(record(timed(32, 1.0), evidence="predicted"))
    store.save(record(timed(16, 900.0), problem=NEAR))
    assert (ask(store).how, width(ask(store))) == ("nearest", 16)


def test_a_predicted_record_is_no_neighbour(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR, evidence="predicted"))
    assert lookup(SQUARE, H100, store) is None


def test_a_predicted_record_goes_before_the_models_choice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, 8)
    saved = store.save(record(timed(32, 1.0), evidence="predicted"))
    answer = ask(store)
    assert (answer.how, answer.evidence, answer.record) == ("predicted", "predicted", saved)


def test_a_problem_that_nothing_can_run_has_no_answer(store: Store) -> None:
    assert lookup(SQUARE, H100, store) is None


def test_the_models_choice_is_legal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert space.rejection(ask(store, FAR).config, FAR, H100) is None


# Distance

_problems = st.builds(Problem, *[st.integers(min_value=1, max_value=2**31 - 1)] * 3)


def test_twice_as_long_is_one_octave_away() -> None:
    assert distance(SQUARE, NEAR) == 1.0


@given(_problems, _problems)
def test_distance_does_not_depend_on_the_direction(a: Problem, b: Problem) -> None:
    assert distance(a, b) == pytest.approx(distance(b, a))
