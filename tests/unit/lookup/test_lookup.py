"""The four steps of a look-up: exact, in range, nearest, predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record

from autotune.device import Device, find
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup.answer import Answer, untuned_card
from autotune.lookup.lookup import lookup
from autotune.model import cost, space
from autotune.problem import Problem, distance
from autotune.records import Entry, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.roofline import least_seconds

NEAR = Problem(4096, 4096, 2048)

FAR = Problem(64, 64, 64)

H200 = find("h200")

pytestmark = pytest.mark.usefixtures("no_candidates")


@pytest.fixture(autouse=True)
def _no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the model no configurations to choose from, unless a test offers some."""
    monkeypatch.setattr("autotune.lookup.nearest.members_of", lambda *_: [])
    monkeypatch.setattr("autotune.lookup.nearest.variants", lambda *_: [])
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))


def timed(width: int, time_us: float) -> Entry:
    """An entry of a configuration that is legal today."""
    return replace(entry(width, time_us), config=tiled(width))


def look_up(store: Store, problem: Problem = SQUARE, device: Device = H100) -> Answer:
    answer = lookup(problem, device, store)
    assert answer is not None
    return answer


def width(answer: Answer) -> int:
    return answer.config.integer("tile_width")


# Exact


def test_recorded_problem_gets_its_best_entry(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), timed(32, 800.0)))
    answer = look_up(store)
    assert (answer.how, answer.evidence, answer.config, answer.time_us, answer.record) == (
        "exact",
        "measured",
        tiled(32),
        800.0,
        saved,
    )
    assert answer.expected_loss == 0.0


def test_interrupted_search_is_not_final(store: Store) -> None:
    cut = record(timed(16, 900.0))
    store.save(replace(cut, provenance=replace(cut.provenance, interrupted=True)))
    assert (look_up(store).how, look_up(store).final) == ("exact", False)
    store.save(cut)
    assert look_up(store).final


def test_replayed_record_is_exact_and_says_so(store: Store) -> None:
    store.save(record(timed(16, 900.0), evidence="replayed"))
    assert (look_up(store).how, look_up(store).evidence) == ("exact", "replayed")


def test_entry_no_longer_legal_is_passed_over(store: Store) -> None:
    store.save(record(timed(16, 900.0), timed(64, 800.0)))
    assert look_up(store).time_us == 900.0


@pytest.mark.parametrize(("vendor_us", "vendor"), [(700.0, True), (900.0, False)])
def test_answer_says_whether_the_vendor_is_faster(
    store: Store, vendor_us: float, vendor: bool
) -> None:
    store.save(record(timed(16, 800.0), baseline_us=vendor_us))
    assert look_up(store).vendor is vendor


@pytest.mark.parametrize(("vendor_us", "vendor"), [(100.0, True), (8000.0, False)])
def test_neighbours_vendor_baseline_tells_what_to_expect(
    store: Store, vendor_us: float, vendor: bool
) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR, baseline_us=vendor_us))
    assert look_up(store).vendor is vendor


def test_record_of_another_card_of_the_model_is_exact(store: Store) -> None:
    card = replace(H100, name="NVIDIA H100 SXM5 80GB", memory_bytes=84 * 10**9)
    saved = store.save(record(timed(16, 900.0), device=card))
    assert (look_up(store).how, look_up(store).record) == ("exact", saved)


def clustered_rules(
    config: Config, problem: Problem, device: Device, *, recorded: bool = False
) -> str | None:
    """Rules under which configurations run on cards with these resident clusters alone."""
    del config, problem, recorded
    return None if device.clusters == (66, 30, 15) else f"clusters {device.clusters}"


@pytest.mark.parametrize("clusters", [None, (66, 32, 16)])
@pytest.mark.parametrize(("problem", "how"), [(SQUARE, "exact"), (NEAR, "nearest")])
def test_record_is_checked_by_the_clusters_of_its_card(
    problem: Problem,
    how: str,
    clusters: tuple[int, int, int] | None,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(space, "rejection", clustered_rules)
    card = replace(H100, clusters=(66, 30, 15))
    store.save(record(timed(16, 900.0), device=card))
    answer = look_up(store, problem, replace(H100, clusters=clusters))
    assert (answer.how, answer.config) == (how, tiled(16))


def test_record_of_another_model_is_checked_by_the_device(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "rejection", clustered_rules)
    card = replace(H100, name="Half an H100", sms=66, clusters=(66, 30, 15))
    store.save(record(timed(16, 900.0), device=card))
    assert lookup(SQUARE, H100, store) is None


@pytest.mark.parametrize("near", [False, True])
def test_models_choice_counts_the_clusters_of_its_model(
    near: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()

    def feasible(_: Problem, device: Device, *__: object) -> space.Space:
        seen.add(device.resident_clusters(4))
        return space.Space((tiled(16),))

    monkeypatch.setattr(space, "feasible", feasible)
    if near:
        store.save(record(timed(32, 900.0), problem=NEAR, device=H200))
    look_up(store, SQUARE, replace(H200, clusters=None))
    assert seen == {30}


# In a tuned range


def save_range(store: Store, *, point: int) -> None:
    """A range in which 4096x4096x1024 to 4096x4096x4096 run the record of `point`."""
    ranges.save(store.root, Range(H100, SQUARE, "k", (Segment(1024, 4096, point),)))


def test_size_in_a_range_runs_its_points_record(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    store.save(record(timed(32, 1.0), problem=Problem(4096, 4096, 3100)))
    save_range(store, point=2048)
    answer = look_up(store, Problem(4096, 4096, 3000))
    assert (answer.how, answer.record) == ("range", saved)
    assert answer.expected_loss
    assert 0 < answer.expected_loss < 0.5


def test_exact_record_comes_before_the_range(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    store.save(record(timed(32, 1500.0), problem=Problem(4096, 4096, 3000)))
    save_range(store, point=2048)
    assert look_up(store, Problem(4096, 4096, 3000)).how == "exact"


def test_range_without_its_points_record_is_passed_over(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    save_range(store, point=1024)
    assert look_up(store, Problem(4096, 4096, 3000)).how == "nearest"


def test_range_without_a_legal_entry_at_its_point_is_skipped(store: Store) -> None:
    store.save(record(timed(64, 1.0), problem=NEAR))
    store.save(record(timed(16, 900.0), problem=Problem(4096, 4096, 1024)))
    save_range(store, point=2048)
    assert look_up(store, Problem(4096, 4096, 3000)).how == "nearest"


def test_size_outside_a_range_is_not_served_by_it(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    save_range(store, point=2048)
    assert look_up(store, Problem(4096, 4096, 4100)).how == "nearest"


def test_range_with_the_most_tuned_sizes_serves(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    save_range(store, point=2048)
    denser = Segment(1536, 2048, 1536), Segment(2049, 4096, 2048)
    ranges.save(store.root, dense := Range(H100, SQUARE, "k", denser))
    assert f"tuned for {dense}" in look_up(store, Problem(4096, 4096, 3000)).note


def test_measured_range_serves_before_a_replayed_one(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    save_range(store, point=2048)
    replayed = Range(H100, SQUARE, "k", (Segment(2048, 4096, 2048),), evidence="replayed")
    ranges.save(store.root, replayed)
    assert "tuned for 4096x4096x1024..4096" in look_up(store, Problem(4096, 4096, 3000)).note


# Nearest


def test_unrecorded_problem_is_served_by_its_neighbour(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    answer = look_up(store)
    assert (answer.how, answer.record, width(answer)) == ("nearest", saved, 16)
    assert answer.evidence == "predicted"


def test_neighbours_answer_has_an_expected_loss(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR))
    loss = look_up(store).expected_loss
    assert loss is not None
    assert 0 < loss < 0.5


def test_note_says_how_to_tune(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR, baseline_us=1e6))
    assert look_up(store).note == (
        "4096x4096x4096:f32:nn is not tuned on NVIDIA H100 80GB HBM3: using a configuration of "
        "4096x4096x2048; `autotune tune 4096x4096x4096:f32:nn` finds its own"
    )


def test_model_error_at_the_neighbour_is_corrected(store: Store) -> None:
    fair = {w: cost.predict(tiled(w), NEAR, H100) for w in (16, 32)}
    better = min(fair, key=lambda tile_width: fair[tile_width])
    slower = 48 - better
    store.save(record(timed(better, 3 * fair[better]), timed(slower, fair[slower]), problem=NEAR))
    assert width(look_up(store)) == slower


def test_neighbours_time_grows_with_the_work(store: Store) -> None:
    store.save(record(timed(16, cost.predict(tiled(16), NEAR, H100)), problem=NEAR))
    doubled = cost.predict(tiled(16), SQUARE, H100)
    assert look_up(store).time_us == pytest.approx(doubled, rel=0.05)


def test_corrected_time_is_no_shorter_than_the_roofline(store: Store) -> None:
    too_fast = [timed(width, 1e6 * least_seconds(SQUARE, H100) / 9) for width in (16, 32)]
    store.save(record(*too_fast, problem=SQUARE))
    answer = look_up(store, replace(SQUARE, k=4032))
    assert answer.time_us == 1e6 * least_seconds(answer.problem, H100)


def test_neighbours_illegal_entry_is_passed_over(store: Store) -> None:
    store.save(record(timed(64, 1.0), timed(32, 900.0), problem=NEAR))
    assert width(look_up(store)) == 32


def test_entries_of_other_versions_are_passed_over(store: Store) -> None:
    later = replace(timed(16, 1.0), config=Config("later"))
    older = replace(timed(16, 1.0), config=Config.of("tiled", {"tile_width": 16}))
    store.save(record(later, older, timed(32, 900.0), problem=NEAR))
    assert width(look_up(store)) == 32


def test_record_without_the_epilogue_is_a_neighbour(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), problem=NEAR))
    answer = look_up(store, replace(NEAR, epilogue="bias_relu"))
    assert (answer.how, answer.record) == ("nearest", saved)
    assert "4096x4096x2048:f32:nn:bias_relu is not tuned" in answer.note
    assert "a configuration of 4096x4096x2048; `autotune tune" in answer.note


def test_record_of_another_layout_is_named_in_full(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=replace(NEAR, layout="nt")))
    assert "a configuration of 4096x4096x2048:f32:nt;" in look_up(store).note


def test_record_in_bf16_serves_f16(store: Store) -> None:
    brief, long = Problem(256, 256, 256, "bf16"), Problem(256, 256, 512, "f16")
    config = Config.parse(
        "mma:compute=bf16,swap=0,bm=64,bn=64,wm=32,wn=32,slices=1,bk=32,copy=async,pack=none,"
        "stages=3,split_k=1,promote=0,min_blocks=1,store=direct,group=1"
    )
    resources = Resources(threads=128, registers=100, shared=30000)
    store.save(record(replace(entry(16, 5.0), config=config, resources=resources), problem=brief))
    answer = look_up(store, long)
    assert (answer.how, answer.config.values["compute"]) == ("nearest", "f16")
    assert answer.entry is not None


def test_batch_counts_as_a_size(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=Problem(64, 64, 64, batch=4096)))
    near, far = (lookup(Problem(64, 64, 64, batch=batch), H100, store) for batch in (64, 32))
    assert near is not None
    assert (near.how, far) == ("nearest", None)


def test_remote_record_is_no_neighbour(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=Problem(1, 64, 64)))
    assert lookup(SQUARE, H100, store) is None


# Related


def test_record_of_a_related_device_is_marked(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), device=H200))
    answer = look_up(store)
    assert (answer.how, answer.evidence, answer.record) == ("related", "predicted", saved)
    assert "a configuration of 4096x4096x4096 on NVIDIA H200;" in answer.note


def test_card_without_records_is_told_what_to_run(store: Store) -> None:
    saved = store.save(record(timed(16, 900.0), device=H200, problem=NEAR))
    command = "`autotune tune shapes.json --effort quick` races the shapes of a model"
    assert look_up(store).advice.startswith(f"{H100.name} has no records: {command}, 5 s for the")
    store.save(replace(saved, device=H100, problem=FAR))
    assert look_up(store).advice == ""


def test_seconds_of_races_are_those_of_all_shapes() -> None:
    assert "about 5 s for 1;" in untuned_card(H100, 1)
    assert "about 39 s for 30;" in untuned_card(H100, 30)


def test_own_device_comes_before_a_related_one(store: Store) -> None:
    for device in (H200, H100):
        store.save(record(timed(16, 900.0), problem=NEAR, device=device))
    assert look_up(store).how == "nearest"


def test_related_device_serves_what_its_own_does_not(store: Store) -> None:
    store.save(record(timed(32, 9000.0), problem=Problem(4096, 4096, 512)))
    store.save(record(timed(16, 900.0), device=H200))
    assert (look_up(store).how, width(look_up(store))) == ("related", 16)


def test_vendor_faster_at_the_point_is_faster_in_range(store: Store) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR, baseline_us=100.0))
    save_range(store, point=2048)
    assert (look_up(store).how, look_up(store).vendor) == ("range", True)


def test_vendor_is_as_fast_with_another_epilogue(store: Store) -> None:
    store.save(record(timed(16, 800.0), baseline_us=100.0))
    answer = look_up(store, replace(SQUARE, epilogue="bias"))
    assert (answer.how, answer.vendor) == ("nearest", True)


def test_refused_vendor_is_not_expected_to_be_faster(store: Store) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR, baseline_us=100.0))
    assert look_up(store).vendor is True
    illegal = record(timed(64, 800.0))
    refused = replace(illegal.provenance, baseline_fault="wrong result")
    store.save(replace(illegal, provenance=refused))
    assert (look_up(store).how, look_up(store).vendor) == ("nearest", False)


def test_related_records_vendor_time_is_an_expectation(store: Store) -> None:
    store.save(record(timed(16, 900.0), device=H200, baseline_us=1.0))
    answer = look_up(store)
    assert answer.vendor
    assert "cuBLAS is expected to be faster" in answer.note


def test_record_of_another_architecture_does_not_serve(store: Store) -> None:
    store.save(record(timed(16, 900.0), device=find("a100")))
    assert lookup(SQUARE, H100, store) is None


# Predicted


def offer_model(monkeypatch: pytest.MonkeyPatch, *widths: int) -> None:
    """Gives the model these configurations to choose from."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(tuple(map(tiled, widths))))


def test_without_records_the_model_chooses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_model(monkeypatch, 8, 16, 32)
    times = {tiled(w): cost.predict(tiled(w), SQUARE, H100) for w in (8, 16, 32)}
    best = min(times, key=lambda config: times[config])
    answer = look_up(store)
    assert (answer.how, answer.evidence, answer.record) == ("predicted", "predicted", None)
    assert (answer.config, answer.time_us) == (best, times[best])
    assert answer.expected_loss


def test_model_may_beat_a_slow_neighbour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_model(monkeypatch, 16)
    far = Problem(4096, 64, 1024)
    store.save(record(timed(2, 1e6), problem=far))
    answer = look_up(store)
    assert (answer.how, width(answer)) == ("predicted", 16)


def test_measured_neighbour_beats_a_predicted_record(store: Store) -> None:
    store.save(record(timed(32, 1.0), evidence="predicted"))
    store.save(record(timed(16, 900.0), problem=NEAR))
    assert (look_up(store).how, width(look_up(store))) == ("nearest", 16)


def test_predicted_record_is_no_neighbour(store: Store) -> None:
    store.save(record(timed(16, 900.0), problem=NEAR, evidence="predicted"))
    assert lookup(SQUARE, H100, store) is None


def test_predicted_record_comes_before_the_models_choice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_model(monkeypatch, 8)
    saved = store.save(record(timed(32, 1.0), evidence="predicted"))
    answer = look_up(store)
    assert (answer.how, answer.evidence, answer.record) == ("predicted", "predicted", saved)


def test_problem_that_nothing_can_run_has_no_answer(store: Store) -> None:
    assert lookup(SQUARE, H100, store) is None


def test_models_choice_is_legal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert space.rejection(look_up(store, FAR).config, FAR, H100) is None


# Distance

_problems = st.builds(Problem, *[st.integers(min_value=1, max_value=2**31 - 1)] * 3)


def test_doubling_a_size_is_one_octave() -> None:
    assert distance(SQUARE, NEAR) == 1.0


@given(_problems, _problems)
def test_distance_is_symmetric(a: Problem, b: Problem) -> None:
    assert distance(a, b) == pytest.approx(distance(b, a))
