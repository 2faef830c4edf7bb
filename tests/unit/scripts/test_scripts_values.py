"""The worth of each parameter value over several shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import values
from support.sample_recording import FASTEST, PROBLEM, recorded
from typer import Typer
from typer.testing import CliRunner, Result
from values import Worth

from autotune.families.config import Config
from autotune.measure.recording import path_of


def config(bm: int, order: str = "rows", family: str = "simt") -> Config:
    return Config.of(family, {"bm": bm, "order": order})


SHAPES = {
    "large": {config(128): 10.0, config(64): 10.1, config(32): 20.0, config(128, "snake"): 40.0},
    "small": {config(128): 20.0, config(64): 10.0, config(64, "snake"): 10.1},
}


@pytest.fixture
def worths() -> dict[tuple[str, str, object], Worth]:
    shapes = {name: values.ranked(times) for name, times in SHAPES.items()}
    judged = values.worths(shapes)
    return {(worth.family, worth.parameter, worth.value): worth for worth in judged}


def test_value_wins_where_the_fastest_has_it(worths: dict[object, Worth]) -> None:
    assert [worths["simt", "bm", bm].wins for bm in (32, 64, 128)] == [0, 1, 1]


def test_value_is_near_within_2_percent(worths: dict[object, Worth]) -> None:
    assert [worths["simt", "bm", bm].near for bm in (32, 64, 128)] == [0, 2, 1]


def test_only_never_near_values_are_dropped(worths: dict[object, Worth]) -> None:
    assert [trait for trait, worth in worths.items() if worth.goes] == [("simt", "bm", 32)]


def test_tried_counts_the_shapes_a_value_ran_on(worths: dict[object, Worth]) -> None:
    assert [worths["simt", "bm", bm].tried for bm in (32, 64, 128)] == [1, 2, 2]


def test_cost_compares_with_the_best_without_it(worths: dict[object, Worth]) -> None:
    without_64 = worths["simt", "bm", 64]
    assert without_64.cost == pytest.approx(
        (1.0 * 2.0) ** 0.5
    )  # no cost on large; 20 us instead of 10 us on small
    assert (without_64.worst, without_64.shape) == (2.0, "small")


def test_value_without_cost_has_no_worst_shape(worths: dict[object, Worth]) -> None:
    without_32 = worths["simt", "bm", 32]
    assert (without_32.cost, without_32.worst, without_32.shape) == (1.0, 1.0, "")


def test_indispensable_value_has_no_cost(worths: dict[object, Worth]) -> None:
    simt = worths["simt", "family", "simt"]
    assert (simt.alone, simt.cost, simt.worst) == (2, None, None)


def test_same_parameter_is_judged_per_family() -> None:
    times = {config(64): 10.0, config(64, family="gemv"): 5.0}
    judged = values.worths({"thin": values.ranked(times)})
    costs = {(worth.family, worth.parameter): worth.cost for worth in judged}
    assert (costs["gemv", "bm"], costs["simt", "bm"], costs["gemv", "family"]) == (2.0, 1.0, 2.0)


def test_values_are_sorted_with_the_family_first() -> None:
    times = {config(bm): 1.0 for bm in (128, 16, 64)}
    judged = values.worths({"any": values.ranked(times)})
    assert [worth.value for worth in judged] == ["simt", 16, 64, 128, "rows"]


def test_family_is_judged_in_its_precisions() -> None:
    times = {
        "exact": {config(64): 10.0},
        "half": {config(64, family="mma"): 5.0, config(32, family="mma"): 20.0},
    }
    shapes = {name: values.ranked(measured) for name, measured in times.items()}
    judged = values.worths(shapes, {"exact": "f32", "half": "bf16"})
    costs = {(worth.family, worth.value): (worth.cost, worth.alone) for worth in judged}
    assert costs["mma", 64] == (4.0, 0)
    assert costs["simt", "simt"] == (None, 1)


def run(*words: object) -> Result:
    app = Typer()
    app.command()(values.main)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_main_reads_recordings_and_writes_both_files(tmp_path: Path) -> None:
    recorded().save(path_of("trials", PROBLEM, tmp_path))
    json_file, markdown = tmp_path / "out.json", tmp_path / "out.md"
    result = run(tmp_path / "trials", "--json", json_file, "--markdown", markdown)
    assert result.exit_code == 0, result.output
    content = json.loads(json_file.read_text())
    assert (content["device"], content["date"]) == (recorded().device.name, recorded().date)
    assert all(content[name] for name in ("driver", "toolkit", "commit"))
    winners = {(value["parameter"], value["value"]) for value in content["values"] if value["wins"]}
    assert winners == {("family", "simt"), *FASTEST.params}
    assert len(markdown.read_text().splitlines()) == len(content["values"]) + 4


def test_folder_without_recordings_is_a_usage_error(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 2
