"""The portfolio: configurations that serve any shape."""

from __future__ import annotations

import pytest

from autotune.device import find
from autotune.lookup import nearest
from autotune.lookup.nearest import Choice
from autotune.model import space
from autotune.model.legality import Legality
from autotune.problem import LAYOUTS, PRECISIONS, Problem

H200 = find("h200")
SHAPES = ("1x4096x4096", "37x53x71", "4096x4096x4096", "8000x24x333")
ARCHITECTURES = ("h200", "h100", "a100", "a10", "l40s")


@pytest.mark.parametrize("compute", PRECISIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_some_member_runs_any_shape(layout: str, compute: str) -> None:
    for shape in SHAPES:
        problem = Problem.parse(f"{shape}:{compute}:{layout}")
        legal = Legality(problem, H200)
        assert any(map(legal, nearest.members_of(problem, H200)))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_choice_needs_no_enumeration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(space, "feasible")
    assert nearest.portfolio(Problem(300, 200, 100, "bf16"), find(name))


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
    listed = [config.family for config in nearest.portfolio(problem, H200)]
    assert listed.count(family) >= nearest.FEWEST_OF_FAMILY


def test_persistent_blocks_are_those_of_the_device() -> None:
    problem = Problem(4096, 4096, 4096)
    workers = {
        config.values.get("workers", 0)
        for config in nearest.portfolio(problem, find("l4"))
        if config.family == "simt"
    }
    assert workers <= {0, find("l4").sms, 2 * find("l4").sms}


@pytest.mark.parametrize(("slower", "place"), [(1.04, 1), (1.06, 0)])
def test_compiled_member_is_chosen_unless_it_is_slower(
    slower: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(512, 512, 512)
    first, second = nearest.portfolio(problem, H200)[:2]
    monkeypatch.setattr(nearest, "installed_count", lambda _: 1)
    monkeypatch.setattr(nearest, "ready", lambda config, *_: config == second)
    ranked = [Choice(first, 10.0, 10.0, 0.1), Choice(second, 10.0 * slower, 10.0, 0.1)]
    chosen = next(nearest._ready(ranked, problem, H200), ranked[0])
    assert ranked.index(chosen) == place
