"""The portfolio: configurations that serve any shape, and the programs compiled for them."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from autotune import compiler
from autotune.candidates import space
from autotune.candidates.legality import Legality
from autotune.compiler import Program, installed
from autotune.device import find
from autotune.families.plan import Template
from autotune.lookup import nearest, portfolio, programs
from autotune.lookup.nearest import Choice, Neighbourhood, choices
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.records import Records, shipped
from autotune.runners.objective import COLD

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


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ("4x928x4446:f32:tn", "gemv"),
        ("4928x256x3904:tf32x3:nn", "wgmma"),
        *((f"16x16x500000:{compute}", "gemv") for compute in ("f32", "tf32", "tf32x3")),
        ("2x2x164532:tf32", "gemv"),
    ],
)
def test_every_family_that_serves_the_shape_is_listed(shape: str, family: str) -> None:
    problem = Problem.parse(shape)
    listed = [config.family for config in portfolio.candidates(problem, H200)]
    assert listed.count(family) >= portfolio.FEWEST_OF_FAMILY


def test_persistent_blocks_are_those_of_the_device() -> None:
    problem = Problem(4096, 4096, 4096)
    workers = {
        config.values.get("workers", 0)
        for config in portfolio.candidates(problem, find("l4"))
        if config.family == "simt"
    }
    assert workers <= {0, find("l4").sms, 2 * find("l4").sms}


# Compiled


@pytest.fixture
def no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shipped records, so that the cost model chooses."""
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_records")
def test_every_drawn_problem_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FEWEST", 0)
    made = {*programs.templates("sm_90", ["bf16", "i8"], count=12)}
    monkeypatch.setattr(installed, "has", lambda template, _: template in made)
    for compute in ("bf16", "i8"):
        problems = zip(programs.drawn(compute, 12), cycle(programs.cards("sm_90")), strict=False)
        for problem, card in problems:
            ranked = choices(Neighbourhood.of(problem, card, Records.shipped_only()))
            within = nearest.nearly_fastest(ranked)
            assert any(nearest.ready(choice.config, problem, card) for choice in within)


@pytest.mark.parametrize("compute", PRECISIONS)
def test_drawn_problems_are_of_every_kind(compute: str) -> None:
    problems = [*programs.drawn(compute, 200)]
    assert problems == [*programs.drawn(compute, 200)]
    assert {problem.layout for problem in problems} == {*LAYOUTS}
    assert {problem.scale for problem in problems} == {*PRECISIONS[compute].scales}
    assert {problem.k % 8 == 0 for problem in problems} == {True, False}


def test_programs_that_serve_most_problems_come_first() -> None:
    a, b, c, d = (Template("x.cu", name, ()) for name in "abcd")
    needs = [((a, b), (c,)), ((c,), (d,)), ((b,),), ((b,),), ((b,),), ((d,),), ()]
    assert programs.covering(needs, []) == [b, c]
    assert programs.covering(needs, [c]) == [b]
    assert programs.covering([()], []) == []


def test_fastest_kernels_of_shipped_records_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")
    made = {*programs.templates("sm_90", ["f8"], count=0)}
    monkeypatch.setattr(installed, "has", lambda template, _: template in made)
    records = [record for record in shipped.records(H200) if record.problem.compute == "f8"]
    assert records
    for record in records:
        assert nearest.ready(record.best.config, record.problem, H200)
        assert nearest.ready(record.best_by(COLD).config, record.problem, H200)


@pytest.mark.usefixtures("no_records")
def test_archive_serves_what_was_compiled_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "FEWEST", 0)
    monkeypatch.setenv("AUTOTUNE_PROGRAMS_DIR", str(tmp_path))
    (tmp_path / "sm_90.programs").write_bytes(programs.compiled("sm_90", ["f32"], count=1))
    (template, *_) = programs.templates("sm_90", ["f32"], count=1)
    program = compiler.compile(template, "sm_90", cache=None, with_installed=True)
    assert isinstance(program, Program)
    assert program.cubin.startswith(b"\x7fELF")
    assert installed.has(template, "sm_90")


@pytest.mark.parametrize(("slower", "place"), [(1.04, 1), (1.06, 0)])
def test_compiled_member_is_chosen_unless_it_is_slower(
    slower: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(512, 512, 512)
    first, second = portfolio.candidates(problem, H200)[:2]
    monkeypatch.setattr(installed, "count", lambda _: 1)
    monkeypatch.setattr(nearest, "ready", lambda config, *_: config == second)
    ranked = [Choice(first, 10.0, 10.0, 0.1), Choice(second, 10.0 * slower, 10.0, 0.1)]
    chosen = next(nearest._ready(ranked, problem, H200), ranked[0])
    assert ranked.index(chosen) == place
