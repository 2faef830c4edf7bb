"""Fitting the cost model's coefficients."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cost as fit_cost
import numpy as np
import pytest
import typer
from support.sample_records import H100

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.model import cost, space
from autotune.model.cost import Coefficients, Load
from autotune.problem import Problem

TRUE = Coefficients(slot=1.4, turn=90.0, launch=2.5, traits={"8x8": 1.2})


SHAPES = (Problem(256, 256, 256), Problem(512, 512, 2048), Problem(64, 1024, 1024))


def resources_of(config: Config) -> Resources:
    return registry.find(config.family).estimate(config, SHAPES[0])


def recorded(problem: Problem, failed: int = 0) -> Recording:
    """The recording of a device that follows the model with the coefficients `TRUE`."""
    configs = space.feasible(problem, H100).configs[::1501]
    times = cost.times(configs, problem, H100, coefficients=TRUE).tolist()
    rows = [
        SweepRow(config, resources_of(config), Measurement(time, samples=9))
        for config, time in zip(configs, times, strict=True)
    ]
    rows += [
        SweepRow(row.config, row.resources, Failure("verify", "wrong")) for row in rows[:failed]
    ]
    return Recording(
        problem,
        H100,
        Origin("13.0", "NVRTC", "abc"),
        "2026-11-21T12:00:00+00:00",
        None,
        tuple(rows),
    )


def save(folder: Path, *problems: Problem) -> None:
    for problem in problems:
        recorded(problem).save(folder / f"{problem.slug}.json.gz")


@pytest.fixture(scope="module")
def samples() -> list[fit_cost.Sample]:
    return [fit_cost.Sample.of(recorded(problem)) for problem in SHAPES]


def test_fit_recovers_the_true_coefficients(samples: list[fit_cost.Sample]) -> None:
    fitted = fit_cost.fit(samples)
    errors = np.concatenate([sample.errors(fitted) for sample in samples])
    before = np.concatenate([sample.errors(Coefficients()) for sample in samples])
    assert np.median(np.abs(errors)) < 0.01 < np.median(np.abs(before))
    assert fitted.slot * fitted.traits["8x8"] == pytest.approx(1.4 * 1.2, rel=0.1)


def test_left_out_shape_is_ranked_by_a_fit_of_the_rest(samples: list[fit_cost.Sample]) -> None:
    scores = list(fit_cost.left_out(samples, Coefficients()))
    assert [score.problem for score in scores] == list(SHAPES)
    assert min(score.spearman for score in scores) > 0.95


def test_recordings_of_one_shape_are_left_out_together(
    samples: list[fit_cost.Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def fit(rest: list[fit_cost.Sample], start: Coefficients, _: object) -> Coefficients:
        counts.append(len(rest))
        return start

    monkeypatch.setattr(fit_cost, "fit", fit)
    list(fit_cost.left_out([*samples, samples[0]], TRUE))
    assert counts == [2, 3, 3]


def test_shape_is_left_out_in_all_precisions_and_layouts(
    samples: list[fit_cost.Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[list[Problem]] = []

    def fit(rest: list[fit_cost.Sample], start: Coefficients, _: object) -> Coefficients:
        fitted.append([sample.recording.problem for sample in rest])
        return start

    first, second, _ = samples
    variant = replace(SHAPES[0], compute="tf32x3", layout="nt")
    again = replace(first, recording=replace(first.recording, problem=variant))
    monkeypatch.setattr(fit_cost, "fit", fit)
    judged = list(fit_cost.left_out([first, second, again], TRUE))
    assert fitted == [[SHAPES[1]], [SHAPES[0], variant]]
    assert [*fit_cost.summaries(judged)] == ["f32", "tf32x3"]


def test_recording_of_two_configurations_is_not_ranked(
    samples: list[fit_cost.Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_cost, "fit", lambda _, start, __: start)
    few = replace(samples[0], configs=samples[0].configs[:2], logs=samples[0].logs[:2])
    judged = list(fit_cost.left_out([few, samples[1]], TRUE))
    assert [score.problem for score in judged] == [SHAPES[1]]


def test_failures_are_not_fitted() -> None:
    recording = recorded(SHAPES[0], failed=5)
    assert len(fit_cost.Sample.of(recording).configs) == len(recording.rows) - 5


def test_newer_parameters_take_their_first_value() -> None:
    recording = recorded(SHAPES[0])
    config = recording.rows[0].config
    older = replace(config, params=tuple(pair for pair in config.params if pair[0] != "chunks"))
    assert fit_cost.completed(older, recording).values["chunks"] == 1


def test_slopes_match_finite_differences(samples: list[fit_cost.Sample]) -> None:
    space_ = fit_cost._Space(("8x16", "8x8"))
    values = space_.values(TRUE)
    used = [replace(sample, load=with_traits(sample, space_.traits)) for sample in samples]
    used[0] = with_tensor_cores(used[0])
    residuals, slopes = space_.linear(used, values)
    for place in range(len(values)):
        point = values.copy()
        point[place] += 1e-5
        moved, _ = space_.linear(used, point)
        assert (moved - residuals) / 1e-5 == pytest.approx(slopes[:, place], rel=0.02, abs=0.02)


def with_traits(sample: fit_cost.Sample, traits: tuple[str, ...]) -> Load:
    """The sample's load with only these traits."""
    work = sample.load.work
    kept = [tuple(trait for trait in row if trait in traits) for row in work.traits]
    return replace(sample.load, work=type(work)(**{**vars(work), "traits": kept}))


def with_tensor_cores(sample: fit_cost.Sample) -> fit_cost.Sample:
    """The sample in tf32, with blocks that compute on the tensor cores."""
    work = sample.load.work
    tensor = type(work)(**{**vars(work), "tensor": work.issue * 4096})
    problem = replace(sample.recording.problem, compute="tf32")
    busy = replace(sample.load, problem=problem, work=tensor)
    return replace(sample, recording=replace(sample.recording, problem=problem), load=busy)


def test_tensor_core_coefficient_is_fitted_beside_fp32(
    samples: list[fit_cost.Sample],
) -> None:
    busy = with_tensor_cores(samples[1])
    true = replace(TRUE, tensor=1.4)
    busy = replace(busy, logs=np.log(busy.load.terms(true).total))
    fitted = fit_cost.fit([*samples, busy])
    assert fitted.tensor == pytest.approx(1.4, rel=0.05)


def test_precision_is_added_to_coefficients_that_stay(samples: list[fit_cost.Sample]) -> None:
    """`8x8` stands for the name of a precision, as these kernels have none in their traits."""
    before = replace(TRUE, traits={"8x16": 1.1})
    fitted = fit_cost.fit(samples, before, {"8x8"})
    added = {trait for trait in fitted.traits if "8x8" in trait.split()}
    assert fitted.traits["8x8"] == pytest.approx(1.2, rel=0.05)
    assert fitted.traits.keys() == {"8x16"} | added
    assert replace(fitted, traits={}) == replace(before, traits={})
    assert fitted.traits["8x16"] == 1.1


def test_shape_is_left_out_before_a_precision_is_added(
    samples: list[fit_cost.Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Coefficients] = []

    def fit(_: object, start: Coefficients, __: object) -> Coefficients:
        starts.append(start)
        return start

    monkeypatch.setattr(fit_cost, "fit", fit)
    list(fit_cost.left_out(samples, TRUE, {"8x8"}))
    assert [start.traits for start in starts] == [{}] * len(samples)


def test_file_has_coefficients_and_provenance(tmp_path: Path) -> None:
    save(tmp_path, *SHAPES[:2])
    out = tmp_path / "cost.json"
    fit_cost.main([tmp_path], out)
    data = json.loads(out.read_text())
    assert Coefficients(**data["coefficients"]).slot > 0
    assert data["provenance"]["devices"] == [H100.name]
    assert [recording["source"] for recording in data["provenance"]["recordings"]] == ["abc", "abc"]
    assert len(data["provenance"]["left out"]) == 2


def test_added_precision_keeps_the_provenance_of_the_rest(tmp_path: Path) -> None:
    save(tmp_path, *SHAPES[:2])
    out = tmp_path / "cost.json"
    fit_cost.main([tmp_path], out, ["8x8"])
    packaged, data = (json.loads(path.read_text()) for path in (fit_cost.COST, out))
    assert data["provenance"] == packaged["provenance"]
    assert data["added"][:-1] == packaged["added"]
    added = data["added"][-1]
    assert (added["precisions"], len(added["recordings"])) == (["8x8"], 2)
    fitted, before = (content["coefficients"].pop("traits") for content in (data, packaged))
    assert data["coefficients"] == packaged["coefficients"]
    others = {trait: factor for trait, factor in before.items() if "8x8" not in trait.split()}
    assert others.items() <= fitted.items()


def test_precision_that_is_fitted_again_has_its_origin_once() -> None:
    packaged = json.loads(fit_cost.COST.read_text())
    again = fit_cost.added({"date": "later"}, {*packaged["added"][0]["precisions"]})
    assert [entry["date"] for entry in again["added"]] == ["later"]


def test_precision_without_recordings_is_refused(tmp_path: Path) -> None:
    save(tmp_path, SHAPES[0])
    with pytest.raises(typer.BadParameter, match="none of 1 recordings has traits of f6"):
        fit_cost.main([tmp_path], None, ["f6"])
