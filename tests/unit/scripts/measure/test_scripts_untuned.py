"""The script that measures what untuned shapes get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import untuned
from support.fake_runner import FakeRunner, tiled
from typer import Typer
from typer.testing import CliRunner, Result
from untuned import LOOKUP, RACE, TUNED, VENDOR, Row, figures, kept

from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.problem import LAYOUTS, Problem

SHAPES = [Problem(64, 64, 64), Problem(96, 80, 64, "bf16", "nt")]


def few(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Draws few shapes, with the cache in a folder."""
    patch.setenv("AUTOTUNE_CACHE_DIR", str(folder / "cache"))
    patch.setattr(untuned, "drawn", lambda count, _: SHAPES[:count])


@pytest.fixture(autouse=True)
def _few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(tmp_path, monkeypatch)


def run(out: Path, count: int, *options: str) -> Result:
    app = Typer()
    app.command()(untuned.main)
    words = (out, "--device", "h100", "--count", count, "--each", 1, *options)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def of_one_shape(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a run with one shape."""
    folder = tmp_path_factory.mktemp("untuned")
    with pytest.MonkeyPatch.context() as patch:
        few(folder, patch)
        patch.setenv("AUTOTUNE_SHIPPED_DIR", str(folder / "shipped"))
        assert run(folder / "out.json", 1).exit_code == 0
    return (folder / "out.json").read_text()


def row(lookup_us: float | None, race_us: float, *left_to_vendor: str) -> Row:
    times = {RACE: race_us, TUNED: 8.0, VENDOR: 10.0}
    times |= {} if lookup_us is None else {LOOKUP: lookup_us}
    seconds = {LOOKUP: 0.1, RACE: 1.0, TUNED: 5.0}
    failures = {} if lookup_us else {LOOKUP: "accuracy: 3 of 2"}
    return Row("64x64x64:f32:nn", "nearest", 0.1, {}, times, failures, left_to_vendor, seconds)


def test_second_run_continues(tmp_path: Path, of_one_shape: str) -> None:
    out = tmp_path / "out.json"
    out.write_text(of_one_shape)
    (first,) = kept(out)
    assert run(out, 2).exit_code == 0
    rows = kept(out)
    assert rows[0] == first
    assert [row.problem for row in rows] == [*map(str, SHAPES)]
    assert all(row.seconds[TUNED] > 0 and not row.failures for row in rows)


def test_shapes_of_an_earlier_run_stay_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_one_shape: str
) -> None:
    earlier, out = tmp_path / "earlier.json", tmp_path / "out.json"
    earlier.write_text(of_one_shape)
    (first,) = kept(earlier)
    content = json.loads(earlier.read_text())
    content["rows"][0]["configs"][LOOKUP] = "of an older model"
    earlier.write_text(json.dumps({**content, "source": "5e1f"}))
    monkeypatch.delattr(untuned, "tune_at")
    assert run(out, 1, "--tuned", str(earlier)).exit_code == 0
    (second,) = kept(out)
    assert second.configs == first.configs
    assert second.seconds[TUNED] == first.seconds[TUNED]


def test_rows_of_other_kernel_sources_go(tmp_path: Path, of_one_shape: str) -> None:
    out = tmp_path / "out.json"
    content = json.loads(of_one_shape)
    out.write_text(json.dumps({**content, "source": "5e1f"}))
    assert kept(out) == []


def test_shapes_cover_precisions_and_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shapes = untuned.drawn(70, 3)
    assert shapes == untuned.drawn(70, 3)
    assert shapes != untuned.drawn(70, 4)
    assert len({shape.compute for shape in shapes}) == len(untuned.PRECISIONS)
    assert {shape.layout for shape in shapes} == {*LAYOUTS} - {"tt"}
    assert all(shape.flops <= untuned.MOST_FLOPS for shape in shapes)


def test_figures_are_of_kernels_and_of_matmul() -> None:
    rows = [row(10.0, 8.0), row(None, 16.0, RACE)]
    of_lookups, of_races = (figures(rows, kind) for kind in (LOOKUP, RACE))
    assert of_lookups["failures"] == 1
    assert of_lookups["worst"] == 0
    assert of_races["geomean"] == pytest.approx(0.5**0.5)
    assert of_races["slower_than_vendor"] == 0  # matmul calls cuBLAS in place of the slow kernel
    assert of_races["over_vendor"] == pytest.approx((10 / 8) ** 0.5)
    assert of_lookups["slower_than_vendor"] == 1  # the one that failed


class JudgingRunner(FakeRunner):
    """A runner whose baseline has an error."""

    def baseline(self) -> Measurement:
        return Measurement(90.0, relative_error=1e-7)


def test_wrong_and_inaccurate_kernels_have_no_time() -> None:
    wrong, inaccurate, right = (tiled(width) for width in (8, 16, 24))
    outcomes: dict[Config, Measurement | Failure] = {
        wrong: Failure("verify", "error 3 of 0.1"),
        inaccurate: Measurement(5.0, relative_error=1e-2),
        right: Measurement(7.0, relative_error=1e-7),
    }
    runner = JudgingRunner(lambda config: outcomes[config], recorded=[*outcomes])
    configs = {LOOKUP: wrong, RACE: inaccurate, TUNED: right}
    timed = untuned.timed(configs, SHAPES[0], runner)
    assert timed[LOOKUP] == outcomes[wrong]
    assert isinstance(failure := timed[RACE], Failure)
    assert failure.stage == "accuracy"
    assert timed[TUNED] == outcomes[right]
    assert timed[VENDOR] == runner.baseline()
    assert runner.rematched == [inaccurate, right]
