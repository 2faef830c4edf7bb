"""The programs of a wheel: kernels drawn, covered and compiled."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import programs
import pytest

from autotune.cuda import cache, compiler
from autotune.cuda.program import Program
from autotune.device import find
from autotune.families.plan import Template
from autotune.lookup import nearest
from autotune.lookup.nearest import Neighbourhood, choices
from autotune.measure.objective import COLD
from autotune.problem import LAYOUTS, PRECISIONS
from autotune.records import Records, shipped

H200 = find("h200")


@pytest.fixture
def no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shipped records, so that the cost model chooses."""
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_records")
def test_every_drawn_problem_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FEWEST", 0)
    made = {*programs.templates("sm_90", ["bf16", "i8"], count=12)}
    monkeypatch.setattr(nearest, "is_installed", lambda template, _: template in made)
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
    monkeypatch.setattr(nearest, "is_installed", lambda template, _: template in made)
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
    assert cache.is_installed(template, "sm_90")
