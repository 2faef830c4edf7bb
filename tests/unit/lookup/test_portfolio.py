"""The portfolio: configurations that serve any shape, and the programs compiled for them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from autotune import compiler
from autotune.candidates import space
from autotune.candidates.recorded import Legality
from autotune.compiler import Program, installed
from autotune.device import find
from autotune.lookup import nearest, portfolio, programs
from autotune.lookup.nearest import NeighbourChoice
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.records import shipped

H200 = find("h200")
SHAPES = ("1x4096x4096", "37x53x71", "4096x4096x4096", "8000x24x333")
ARCHITECTURES = ("h200", "h100", "a100", "a10", "l40s")


@pytest.mark.parametrize("compute", PRECISIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_some_member_runs_any_shape(layout: str, compute: str) -> None:
    for shape in SHAPES:
        problem = Problem.parse(f"{shape}:{compute}:{layout}")
        legal = Legality(problem, H200)
        assert any(map(legal, portfolio.members_of(problem, H200)))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_choice_needs_no_enumeration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(space, "feasible")
    assert portfolio.candidates(Problem(300, 200, 100, "bf16"), find(name))


def test_persistent_blocks_are_those_of_the_device() -> None:
    problem = Problem(4096, 4096, 4096)
    workers = {
        config.values.get("workers", 0)
        for config in portfolio.candidates(problem, find("l4"))
        if config.family == "simt"
    }
    assert workers <= {0, find("l4").sms, 2 * find("l4").sms}


# Compiled


def test_every_layout_and_alignment_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MEMBERS", 2)
    monkeypatch.setattr(programs, "UNALIGNED_MEMBERS", 1)
    made = {*programs.templates("sm_90", ["bf16"])}
    monkeypatch.setattr(installed, "has", lambda template, _: template in made)
    for layout in LAYOUTS:
        for sizes in ((640, 1280, 960), (63, 65, 67), (640, 1280, 67), (62, 66, 70), (60, 68, 76)):
            problem = Problem(*sizes, "bf16", layout)
            members = filter(Legality(problem, H200), portfolio.members_of(problem, H200))
            assert any(portfolio.ready(config, problem, H200) for config in members)


def test_first_members_of_every_card_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MEMBERS", 5)
    monkeypatch.setattr(programs, "UNALIGNED_MEMBERS", 0)
    made = {*programs.templates("sm_90", ["bf16"])}
    monkeypatch.setattr(installed, "has", lambda template, _: template in made)
    problem = Problem(*programs.ALIGNED[0], "bf16")
    for card in (find("h100-pcie"), H200):
        members = filter(Legality(problem, card), portfolio.members_of(problem, card))
        assert all(portfolio.ready(config, problem, card) for config in islice(members, 5))


def test_fastest_kernels_of_shipped_records_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")
    monkeypatch.setattr(programs, "MEMBERS", 0)
    monkeypatch.setattr(programs, "UNALIGNED_MEMBERS", 0)
    made = {*programs.templates("sm_90", ["f8"])}
    monkeypatch.setattr(installed, "has", lambda template, _: template in made)
    records = [record for record in shipped.records(H200) if record.problem.compute == "f8"]
    assert records
    for record in records:
        assert portfolio.ready(record.best.config, record.problem, H200)
        assert portfolio.ready(record.best_by("cold").config, record.problem, H200)


def test_archive_serves_what_was_compiled_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MEMBERS", 1)
    monkeypatch.setattr(programs, "UNALIGNED_MEMBERS", 0)
    monkeypatch.setattr(programs, "ALIGNED", ((64, 64, 64),))
    monkeypatch.setattr(programs, "LAYOUTS", ("nn",))
    monkeypatch.setenv("AUTOTUNE_PROGRAMS_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))
    (tmp_path / "sm_90.programs").write_bytes(programs.compiled("sm_90", ["f32"]))
    (template, *_) = programs.templates("sm_90", ["f32"])
    program = compiler.compile(template, "sm_90", cache=None, with_installed=True)
    assert isinstance(program, Program)
    assert program.cubin.startswith(b"\x7fELF")
    problem = Problem(64, 64, 64)
    config = next(filter(Legality(problem, H200), portfolio.members_of(problem, H200)))
    assert portfolio.ready(config, problem, H200)


@pytest.mark.parametrize(("slower", "chosen"), [(1.04, 1), (1.06, 0)])
def test_compiled_member_is_chosen_unless_it_is_slower(
    slower: float, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(512, 512, 512)
    first, second = portfolio.candidates(problem, H200)[:2]
    monkeypatch.setattr(nearest, "ready", lambda config, *_: config == second)
    choices = [
        NeighbourChoice(10.0, 10.0, 0.1, first, None),
        NeighbourChoice(10.0 * slower, 10.0 * slower, 0.1, second, None),
    ]
    assert nearest._ready(choices, problem, H200) is choices[chosen]
