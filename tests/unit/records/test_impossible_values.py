"""Impossible values in every kind of file, and times that no card reaches: refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import results
from support.command_line import own_machine, run
from support.fake_runner import tiled
from support.impossible_values import KINDS, Mutation, mutations
from support.logged import logs
from support.sample_records import H100, SQUARE, entry, record

from autotune import settings
from autotune.files import checksum
from autotune.lookup.lookup import lookup
from autotune.measure.measurement import Measurement
from autotune.problem import Problem
from autotune.records import Entry, Record, Store, bundle, codec, exchange, shipped


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def refusals(kind: str) -> list[tuple[Mutation, str | None]]:
    """Each changed file with the reason for which it is refused; None if it is accepted."""
    changed = [
        mutation
        for number, mutation in enumerate(mutations(KINDS[kind]))
        # Texts nest too deeply wherever they do, and each takes 0.05 s.
        if mutation.value != "deep list" or number < 20
    ]
    return [(mutation, _refusal(kind, mutation.data)) for mutation in changed]


def _refusal(kind: str, data: bytes) -> str | None:
    try:
        KINDS[kind].read(data)
    except ValueError as error:
        return str(error)
    return None


def test_unchanged_sample_is_accepted(kind: str) -> None:
    assert _refusal(kind, KINDS[kind].written(KINDS[kind].document)) is None


def test_impossible_values_are_refused(refusals: list[tuple[Mutation, str | None]]) -> None:
    accepted = [
        str(mutation) for mutation, why in refusals if why is None and not mutation.possible
    ]
    assert accepted == []


def test_possible_values_are_accepted(refusals: list[tuple[Mutation, str | None]]) -> None:
    refused = {str(mutation): why for mutation, why in refusals if why and mutation.possible}
    assert refused == {}


def test_refusal_is_one_short_line(refusals: list[tuple[Mutation, str | None]]) -> None:
    reasons = [why for _, why in refusals if why is not None]
    assert [why[:100] for why in reasons if "\n" in why or len(why) > 500] == []


pytestmark = pytest.mark.usefixtures("plausible_times")

LEAST_US = 0.25 * 1e6 * SQUARE.flops / H100.peak_fp32
"""Microseconds of a quarter of the H100's peak on 4096x4096x4096: 514."""
STREAMED = Problem(16384, 16384, 1)
"""A product of 1 GiB of results."""
READ = Problem(1, 1, 10**8)
"""A product of 800 MB of operands."""


def timed(time_us: float, cold_us: float | None = None) -> Entry:
    made = replace(entry(16, time_us), config=tiled(16))
    return replace(made, measurement=replace(made.measurement, cold_us=cold_us))


def refusal(made: Record) -> str:
    """Why the record's file is refused, in one line."""
    with pytest.raises(ValueError, match=r"is|also") as caught:
        codec.loads(codec.dumps(made))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_quarter_of_the_peak_time_is_the_least() -> None:
    possible = record(timed(1.01 * LEAST_US, 1.01 * LEAST_US))
    assert codec.loads(codec.dumps(possible)) == possible
    assert refusal(record(timed(0.99 * LEAST_US))).startswith(
        "entries[0]: time_us is 508, and 4096x4096x4096:f32:nn takes at least 514 us on NVIDIA H100"
    )
    assert "entries[0]: cold_us is 508" in refusal(record(timed(900.0, 0.99 * LEAST_US)))


@pytest.mark.parametrize("time_us", [1e-9, 0.049])
def test_no_launch_is_shorter_than_an_access_of_memory(time_us: float) -> None:
    assert "takes at least 0.05" in refusal(record(timed(time_us), problem=Problem(1, 1, 1)))
    possible = record(timed(0.051), problem=Problem(1, 1, 1))
    assert codec.loads(codec.dumps(possible)) == possible


def test_hot_runs_move_what_l2_does_not_hold() -> None:
    least_us = 0.25 * 1e6 * (STREAMED.bytes - H100.l2_bytes) / H100.memory_bandwidth
    refusal(record(timed(0.99 * least_us), problem=STREAMED))
    possible = record(timed(1.01 * least_us), problem=STREAMED)
    assert codec.loads(codec.dumps(possible)) == possible


def test_cold_runs_read_all_operands() -> None:
    held = replace(READ, k=10**6)  # 8 MB, which L2 holds
    least_us = 0.25 * 1e6 * 8 * held.k / H100.memory_bandwidth
    assert "cold_us is" in refusal(record(timed(0.1, 0.98 * least_us), problem=held))
    possible = record(timed(0.1, 1.01 * least_us), problem=held)
    assert codec.loads(codec.dumps(possible)) == possible


def test_baseline_is_held_to_the_same_times() -> None:
    assert refusal(record(timed(900.0), baseline_us=400.0)).startswith("baseline: time_us is 400")


@pytest.mark.parametrize("place", ["entry", "baseline"])
def test_error_beyond_the_tolerance_is_refused(place: str) -> None:
    wrong = Measurement(900.0, error=2.0, tolerance=1.0)
    made = record(timed(900.0))
    if place == "entry":
        made = replace(made, entries=(replace(made.entries[0], measurement=wrong),))
    else:
        made = replace(made, baseline=wrong)
    assert "error is 2, beyond the tolerance 1" in refusal(made)


def test_configuration_stands_once() -> None:
    assert "entries[1]: tiled:" in refusal(record(timed(900.0), timed(910.0)))


def sealed(folder: Path, made: Record) -> Path:
    """A stranger's file of a record."""
    data = {**codec.encode(made)}
    data.pop(checksum.CHECKSUM)
    path = folder / "stranger.json"
    path.write_text(json.dumps({checksum.CHECKSUM: checksum.of(data), **data}))
    return path


def test_import_refuses_it_and_keeps_the_winner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(own_machine(monkeypatch, tmp_path))
    own = store.save(record(timed(900.0)))
    path = sealed(tmp_path, record(timed(1e-9)))
    assert run("cache", "import", str(path)) == 1
    assert "time_us is 1e-09" in capsys.readouterr().err
    assert store.load(H100, SQUARE) == own


def test_file_in_the_cache_is_named_and_not_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(own_machine(monkeypatch, tmp_path))
    path = store.path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_bytes(codec.dumps(record(timed(1e-9))))
    assert run("cache", "verify") == 1
    assert "time_us is 1e-09" in capsys.readouterr().out
    with logs("time_us is 1e-09"):
        answer = lookup(SQUARE, H100, store)
    assert answer is None or answer.how != "exact"


def test_bundle_of_a_site_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "site.jsonl.xz").write_bytes(bundle.dumps([record(timed(1e-9))]))
    monkeypatch.setenv("AUTOTUNE_SITE_DIR", str(tmp_path))
    with logs("site.jsonl.xz: skipped: .*time_us is 1e-09"):
        assert shipped.records(H100) == ()


def test_shipped_records_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")
    paths = [*settings.shipped_dir().glob("*.jsonl.xz")]
    assert sum(1 for path in paths for _ in exchange.read(path)) > 100


def test_recordings_are_plausible() -> None:
    listed = [
        made for archive in results.archives("trials") for made in results.recorded(archive, 8)
    ]
    assert len(listed) > 20
    for made in listed:
        outcomes = [row.outcome for row in made.rows if isinstance(row.outcome, Measurement)]
        for outcome in [*outcomes, *([made.baseline] if made.baseline else [])]:
            codec.check_plausible(
                record(
                    replace(timed(1.0), measurement=outcome),
                    problem=made.problem,
                    device=made.device,
                )
            )
