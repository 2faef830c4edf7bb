"""The script that times compiled models."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import compiled_models
import pytest
from apart import Failed
from compiled_models import (
    EAGER,
    MAX,
    PLAIN,
    RACED,
    TUNED,
    Program,
    Task,
    conclusions,
    gain,
    markdown,
    run_model,
    summary,
)
from support.sample_records import H100
from typer import Typer
from typer.testing import CliRunner
from zoo import LONGEST, MODELS, built, checksum, hidden_states

import autotune
from autotune.measure import devices

US = {EAGER: 50.0, PLAIN: 20.0, RACED: 16.0, MAX: 18.0}


def task(variant: str, **fields: Any) -> Task:
    return Task("llama", variant, Path("unused"), rows=(1, 16), **fields)


class FakeProgram:
    """Answers as a program of which a request may fail; `asked` has the variants in their turns."""

    asked: ClassVar[list[str]] = []
    failing: ClassVar[tuple[str, str] | None] = None

    def __init__(self, of: Task) -> None:
        self.variant, self.closed = of.variant, 0

    def __call__(self, name: str, *arguments: Any) -> Any:
        del arguments
        if (self.variant, name) == self.failing:
            raise Failed("it is broken")
        if name == "sample":
            self.asked.append(self.variant)
            return US[self.variant], 2 * US[self.variant]
        if name == "start":
            return {"tune_s": 0.0}
        return {"compile_s": {EAGER: 0.0, MAX: 40.0}.get(self.variant, 5.0), "error": 0.01}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProgram, "asked", [])
    monkeypatch.setattr(FakeProgram, "failing", None)


def rows_of(*variants: str, until: float = math.inf) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    run_model([task(variant) for variant in variants], until, rows.append, FakeProgram)
    return rows


def app() -> Typer:
    made = Typer()
    made.command()(compiled_models.main)
    return made


def row(rows: int, us: dict[str, float], errors: dict[str, float] | None = None) -> dict[str, Any]:
    seconds = {EAGER: 0.0, MAX: 40.0}
    variants = {
        name: {
            "us": time,
            "spread_us": 0.1,
            "wall_us": 2 * time,
            "compile_s": seconds.get(name, 5.0),
            "tune_s": 0.0,
            "error": (errors or {}).get(name, 0.01),
        }
        for name, time in us.items()
    }
    return {"model": "llama", "rows": rows, "variants": variants, "failures": {}}


def test_variants_take_turns_in_alternating_order() -> None:
    first, second = rows_of(EAGER, PLAIN, RACED)
    assert FakeProgram.asked[:6] == [EAGER, PLAIN, RACED, RACED, PLAIN, EAGER]
    assert [first["rows"], second["rows"]] == [1, 16]
    assert first["variants"][RACED]["us"] == 16.0
    assert first["variants"][RACED]["wall_us"] == 32.0
    assert gain(first, RACED, PLAIN) == 1.25


@pytest.mark.parametrize("request_name", ["start", "prepare", "sample"])
def test_failing_variant_leaves_the_others(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProgram, "failing", (RACED, request_name))
    first, second = rows_of(EAGER, PLAIN, RACED)
    for found in (first, second):
        assert {*found["variants"]} == {EAGER, PLAIN}
        assert found["failures"] == {RACED: "it is broken"}
    assert gain(first, RACED, PLAIN) is None


def test_summary_has_means_worst_cases_and_compile_seconds() -> None:
    rows = [
        row(1, US, {RACED: 0.012}),
        row(16, {**US, RACED: 25.0}),
        row(128, {EAGER: 50.0, PLAIN: 20.0}),  # nothing of ours ran
    ]
    found = summary(rows)
    assert {*found} == {RACED}
    over = found[RACED]["over"]
    assert over[PLAIN]["geomean"] == pytest.approx(1.0)
    assert over[PLAIN]["worst"] == pytest.approx(0.8)
    assert over[PLAIN]["worst_case"] == "llama, 16 rows"
    assert over[MAX]["geomean"] == pytest.approx((18 / 16 * 18 / 25) ** 0.5)
    assert over[MAX]["compile_share"] == pytest.approx(10 / 80)
    assert found[RACED]["by_rows"] == {1: pytest.approx(1.25), 16: pytest.approx(0.8)}
    assert found[RACED]["largest_error_ratio"] == pytest.approx(1.2)
    lines = [*conclusions(found)]
    assert lines[0].startswith("raced over plain: geomean 1.000, worst 0.800 (llama, 16 rows)")


def test_documents_table_has_means_of_models_and_of_all() -> None:
    first = row(1, {**US, TUNED: 10.0})
    rows = [first, row(16, {**US, RACED: 25.0}), {**row(1, US), "model": "vision"}]
    head, _, *lines = markdown(rows)
    assert head.startswith("| over plain | 1 rows | 16 rows | over max-autotune | compile s |")
    assert lines == [
        "| llama, raced | 1.250 | 0.800 | 0.900 | 10 | 10 | 80 | 1.00 |",
        "| vision, raced | 1.250 |  | 1.125 | 5 | 5 | 40 | 1.00 |",
        "| all, raced | 1.250 | 0.800 | 0.969 | 15 | 15 | 120 | 1.00 |",
        "| llama, tuned | 2.000 |  | 1.800 | 5 | 5 | 40 | 1.00 |",
        "| all, tuned | 2.000 |  | 1.800 | 5 | 5 | 40 | 1.00 |",
    ]


def test_nothing_starts_after_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows_of(EAGER, PLAIN, until=0.0) == []
    assert FakeProgram.asked == []
    assert "llama: no time for 1, 16 rows; a second run continues" in capsys.readouterr().out


def test_second_run_continues_on_the_same_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[dict[str, Any], list[str]]] = []

    def contest(missing: Any, settings: Any, gpus: Any, add: Any) -> None:
        assert (settings["limit"], gpus) == (9.0, ["0", "1"])
        asked.append((missing, settings["asked"]))
        for name, numbers in missing.items():
            for number in numbers:
                add({**row(number, US), "model": name})

    cards = iter([H100, H100, replace(H100, name="another card")])
    monkeypatch.setattr(devices, "probe", lambda _: next(cards))
    monkeypatch.setattr(compiled_models, "contest", contest)
    out = tmp_path / "out.json"
    options = [str(out), "--limit", "9", "--index", "0,1"]
    run = partial(CliRunner().invoke, app(), catch_exceptions=False)
    assert run([*options, "--rows", "16", "--models", "vision"]).exit_code == 0
    result = run([*options, "--rows", "16,1", "--models", "llama,vision"])
    assert [missing for missing, _ in asked] == [
        {"vision": [16]},
        {"llama": [1, 16], "vision": [1]},
    ]
    assert asked[0][1] == [EAGER, PLAIN, RACED, MAX]
    content = json.loads(out.read_text())
    found = [(item["model"], item["rows"]) for item in content["rows"]]
    assert found == [(name, number) for name in ("llama", "vision") for number in (1, 16)]
    assert content["summary"][RACED]["over"][PLAIN]["geomean"] == pytest.approx(1.25)
    assert "raced over max-autotune: geomean 1.125" in result.output
    run([*options, "--rows", "16", "--models", "vision"])
    content = json.loads(out.read_text())
    assert (content["device"], len(content["rows"])) == ("another card", 1)


@pytest.mark.parametrize(
    "options", [["--models", "llama,none"], ["--skip", "none"], ["--mode", "none"]]
)
def test_unknown_names_are_refused(options: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app(), [str(tmp_path / "out.json"), *options])
    assert result.exit_code == 2
    assert "none" in result.output


TINY: dict[str, dict[str, Any]] = {
    "llama": {"hidden": 64, "intermediate": 128, "heads": 4, "kv_heads": 2, "layers": 1},
    "decoder": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4},
    "encoder": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4},
    "experts": {"hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 8, "head_dim": 16},
    "vision": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4},
    "speech": {"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "num_mel_bins": 16},
}
TINY["speech"] |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
FEW_WORDS = {"vocab_size": 99, "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1}


@pytest.mark.parametrize("name", MODELS)
def test_model_runs_on_the_cpu_beside_its_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if name != "llama":
        pytest.importorskip("transformers")
        words = FEW_WORDS | ({"decoder_start_token_id": 1} if name == "speech" else {})
        monkeypatch.setitem(MODELS[name], "num_hidden_layers", 1)
        for field, value in words.items():
            monkeypatch.setitem(MODELS[name], field, value)
    for field, value in TINY[name].items():
        monkeypatch.setitem(MODELS[name], field, value)
    program = Program(Task(name, EAGER, tmp_path, gpu="", rows=(5,)))
    prepared = program.prepare(5)
    assert prepared["compile_s"] == 0.0
    assert 0 < prepared["error"] < 0.05
    model, inputs = built(torch, name, 5, "cpu")
    output = hidden_states(model(**inputs))
    assert output.shape[:2] == (1, 5)
    assert torch.equal(output, hidden_states(program.run()))
    us, wall_us = program.sample()
    assert us == wall_us > 0
    program.open.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Program]:
    """Starts a program whose compiler is PyTorch's eager mode."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    for field, value in TINY["llama"].items():
        monkeypatch.setitem(MODELS["llama"], field, value)

    def start(variant: str) -> Program:
        program = Program(Task("llama", variant, tmp_path, seconds=3.0, gpu="", rows=(5, 7)))
        program.open.callback(program.forget)
        program.start()
        return program

    return start


def test_shapes_are_tuned_cold_before_compiling(
    started: Callable[[str], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    import autotune.torch

    policies: list[autotune.Policy | None] = []
    tuned: list[tuple[set[int], dict[str, Any]]] = []

    def inductor(policy: autotune.Policy | None) -> AbstractContextManager[None]:
        policies.append(policy)
        return nullcontext()

    def tune(shapes: Any, **options: Any) -> None:
        tuned.append(({problem.m for problem in shapes}, options))

    monkeypatch.setattr(autotune.torch, "inductor", inductor)
    monkeypatch.setattr(autotune, "tune", tune)
    started(RACED)
    assert (policies, tuned) == ([None], [])
    started(TUNED)
    assert policies == [None, autotune.Policy(cold=True)]
    assert tuned == [({5, 7}, {"seconds": 3.0, "objective": "cold", "progress": False})]


def test_rows_are_tokens_of_sequences_that_are_not_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(LONGEST, "llama", 8)
    for field, value in TINY["llama"].items():
        monkeypatch.setitem(MODELS["llama"], field, value)
    shapes = [tuple(built(torch, "llama", rows, "cpu")[1]["input"].shape) for rows in (1, 8, 32)]
    assert shapes == [(1, 1, 64), (1, 8, 64), (4, 8, 64)]


@pytest.mark.parametrize(
    ("nudge", "told"),
    [(1.0, "the weights of plain differ from those of eager"), (0.0, "plain returned numbers")],
)
def test_wrong_program_is_refused(
    started: Callable[[str], Program], nudge: float, told: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    held = checksum(built(torch, "llama", 5, "cpu")[0]) + nudge
    torch.save(
        {"sum": held, "output": torch.full((1, 5, 64), torch.nan)}, tmp_path / "reference-5.pt"
    )
    with pytest.raises(ValueError, match=told):
        started(PLAIN).prepare(5)
