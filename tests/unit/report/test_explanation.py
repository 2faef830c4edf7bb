"""Why a configuration won, and what the rules and the cost model say of another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.sample_records import H100, SQUARE, entry, record

from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup.answer import Answer, recorded_answer
from autotune.measure.objective import COLD, HOT
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.report.explanation import compared, completed, explain, least_us, render, to_json, why

PROBLEM = Problem(512, 512, 512)

TURING = find("t4")

HALF = Problem(1024, 1024, 1024, "bf16")

LEGAL = space.feasible(PROBLEM, H100, "simt").configs

WINNER = cost.rank(space.spread(LEGAL, 500), PROBLEM, H100)[0][1]


def predicted_answer(
    device: Device = H100, config: Config = WINNER, problem: Problem = PROBLEM
) -> Answer:
    note = "the model's choice"
    return Answer(problem, device, config, "predicted", "predicted", None, 10.0, note, 0.1)


def changed(config: Config, **values: Any) -> Config:
    return Config.of(config.family, {**config.values, **values})


def test_legal_configuration_holds_every_rule() -> None:
    explanation = explain(WINNER, predicted_answer())

    rules = registry.find("simt").rules
    assert [result.rule for result in explanation.results] == [rule.reason for rule in rules]
    assert {result.finding for result in explanation.results} == {"holds"}
    assert explanation.rejection == ""


@pytest.mark.parametrize("place", range(0, 400, 16))
def test_fit_is_that_of_the_families_estimate(place: int) -> None:
    config = space.spread(LEGAL, 400)[place]
    fit = explain(config, predicted_answer()).fit

    assert fit
    family = registry.find("simt")
    assert (fit.resources, fit.source) == (family.estimate(config, PROBLEM, H100), "estimated")
    assert fit.occupancy == fit.resources.occupancy(H100)
    assert fit.predicted_us == cost.predict(config, PROBLEM, H100)
    assert fit.waves == fit.blocks / (fit.occupancy.blocks_per_sm * H100.sms)


def test_rejected_configuration_has_the_reason_and_no_fit() -> None:
    config = changed(space.feasible(HALF, H100, "wgmma").configs[-1], stages=12)
    explanation = explain(config, predicted_answer(problem=HALF))

    findings = [result.finding for result in explanation.results]
    assert explanation.rejection == str(space.rejection(config, HALF, H100, recorded=True))
    assert explanation.fit is None
    assert set(findings[findings.index("broken") + 1 :]) == {"not reached"}


@pytest.mark.parametrize(
    ("config", "rejection"),
    [
        (Config.parse("tiled:tile_width=99,specialized=1"), "value: tile_width=99 is none of 4, 5"),
        (Config.parse("tiled:tile_width=8"), "parameters: missing or unknown: specialized"),
    ],
)
def test_values_of_no_kernel_are_named(config: Config, rejection: str) -> None:
    explanation = explain(config, predicted_answer())

    assert explanation.rejection.startswith(rejection)
    assert (explanation.results, explanation.fit) == ((), None)


def test_rules_about_speed_do_not_stop_the_kernel() -> None:
    config, rule = next(
        (config, rule)
        for base in space.spread(space.feasible(HALF, H100, "wgmma").configs, 50)
        for config in neighbours(base)
        if (rule := space.rejection(config, HALF, H100))
        and space.rejection(config, HALF, H100, recorded=True) is None
    )
    answer = predicted_answer(problem=HALF)
    explanation = explain(config, answer)

    assert (explanation.rejection, explanation.fit is None) == (str(rule), False)
    assert {result.finding for result in explanation.results} == {"holds", "slow"}
    assert compared(answer, explain(WINNER, predicted_answer()), explanation)[0] == (
        f"left out of the search: {rule}"
    )


def neighbours(config: Config) -> list[Config]:
    """Configurations that differ from one in a single value."""
    domain = registry.find(config.family).domain(HALF, H100)
    return [changed(config, **{name: value}) for name in domain for value in domain[name]]


def test_open_parameters_are_the_winners() -> None:
    config, added = completed("simt:bk=8", predicted_answer())

    assert config.values == {**WINNER.values, "bk": 8}
    assert added.keys() == WINNER.values.keys() - {"bk"}


def test_open_parameters_of_another_family_are_the_fastest() -> None:
    config, added = completed("tiled:tile_width=16", predicted_answer())

    assert str(config) == "tiled:tile_width=16,specialized=1"
    assert dict(added) == {"specialized": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simt:foo=1", "simt has no parameter foo; it has bm, bn"),
        ("nosuch", "unknown family 'nosuch'; give one of"),
        ("wgmma:bm=64", "wgmma does not compute f32; give one of"),
        ("=", "malformed configuration"),
    ],
)
def test_malformed_configurations_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        completed(text, predicted_answer())


def test_least_time_names_what_sets_it() -> None:
    assert least_us(Problem(4096, 4096, 4096), H100)[1] == "the peak"
    assert least_us(Problem(1, 8192, 8192), H100)[1] == "the memory's bandwidth"


def test_least_hot_time_leaves_to_l2_what_it_holds() -> None:
    row = Problem(1, 8192, 8192)
    hot, cold = least_us(row, H100, HOT)[0], least_us(row, H100, COLD)[0]

    assert hot == pytest.approx(cold - H100.l2_bytes / H100.memory_bandwidth * 1e6)


def test_recorded_times_and_resources_are_used() -> None:
    config = Config.parse("tiled:tile_width=16,specialized=1")
    best = replace(entry(16, 5000.0), config=config)
    answer = recorded_answer(SQUARE, H100, record(best), "exact", 0.0)
    assert answer
    explanation = explain(config, answer)

    assert explanation.measured_us == 5000.0
    assert explanation.fit
    assert (explanation.fit.source, explanation.fit.resources) == ("recorded", best.resources)
    assert why(answer, explanation)[0] == "It is the only configuration of the record."


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("other", [None, "tiled:tile_width=16", "tiled:tile_width=99"])
def test_text_fits_the_terminal(width: int, other: str | None) -> None:
    answer = predicted_answer()
    winner = explain(WINNER, answer)
    chosen = completed(other, answer)[0] if other else None
    explanation = explain(chosen, answer) if chosen else None
    console = Console(width=width, record=True, file=None)
    with console.capture() as capture:
        console.print(render(answer, winner, explanation))
    text = capture.get()

    assert max(map(len, text.splitlines())) <= width
    assert text.isascii()


def test_json_is_complete() -> None:
    answer = predicted_answer()
    winner = explain(WINNER, answer)
    data: Any = json.loads(json.dumps(to_json(answer, winner, winner)))

    assert data["winner"]["config"] == data["config"]["config"] == str(WINNER)
    assert data["config"]["fit"]["limiter"] == winner.fit.occupancy.limiter if winner.fit else False
    assert len(data["winner"]["rules"]) == len(winner.results)


def test_resident_blocks_are_counted_in_plain_words() -> None:
    wide = Config.parse("tiled:tile_width=32,specialized=1")
    placed = {
        config: " ".join(why(answer, explain(config, answer)))
        for config in (wide, Config.parse("tiled:tile_width=16,specialized=1"))
        for answer in (predicted_answer(TURING, config),)
    }
    assert [" 1 block an SM" in text for text in placed.values()] == [True, False]
    assert "4 blocks an SM" in [*placed.values()][1]


def test_kernel_that_does_not_fit_has_no_prediction() -> None:
    config = Config.parse("tiled:tile_width=32,specialized=1")
    tiny = replace(find("gtx-980"), registers_per_block=8192)
    fit = explain(config, predicted_answer(tiny, config)).fit

    assert fit
    assert (fit.occupancy.blocks_per_sm, fit.predicted_us, fit.waves) == (0, None, None)


@pytest.mark.parametrize(("vendor_error", "finding"), [(1e-6, "holds"), (1e-8, "slow")])
def test_accuracy_is_checked_beside_the_recorded_error(vendor_error: float, finding: str) -> None:
    best = replace(entry(16, 10.0), config=WINNER)
    made = record(best, problem=PROBLEM, baseline_us=20.0)
    assert made.baseline is not None
    made = replace(made, baseline=replace(made.baseline, relative_error=vendor_error))
    answer = replace(predicted_answer(), how="exact", record=made)
    result = explain(WINNER, answer).results[-1]
    assert (result.rule, result.finding) == ("accuracy", finding)
    assert {"error", "limit"} <= result.values.keys()
    assert ("1e-08" in result.detail) == (finding == "slow")
