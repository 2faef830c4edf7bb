"""Rules and the parameters they read."""

from dataclasses import dataclass
from functools import partial

from autotune.device import Device, find
from autotune.families.family import Rule, bind
from autotune.problem import Problem

H100 = find("h100")
PROBLEM = Problem(512, 256, 128)


@dataclass(frozen=True)
class Tile:
    bm: int
    bn: int

    @property
    def area(self) -> int:
        return self.bm * self.bn


@dataclass(frozen=True)
class Slice:
    k: int


def test_rule_needs_the_parameters_its_check_names() -> None:
    def check(stages: int, problem: Problem, bk: int) -> str | None:
        return f"{stages} {bk} {problem}"

    rule = Rule("stages", check)
    assert rule.needs == ("stages", "bk")
    assert bind(rule.check, PROBLEM, H100)((3, 16)) == f"3 16 {PROBLEM}"


def test_view_needs_its_fields() -> None:
    def check(stages: int, tile: Tile, device: Device) -> str | None:
        return f"{stages} {tile.area} {device.name}"

    rule = Rule("tile", check)
    assert rule.needs == ("stages", "bm", "bn")
    assert bind(rule.check, PROBLEM, H100)((3, 64, 32)) == f"3 2048 {H100.name}"


def test_shared_parameter_is_needed_once() -> None:
    def check(tile: Tile, bn: int) -> str | None:
        return f"{tile.bm}x{tile.bn} {bn}"

    rule = Rule("tile", check)
    assert rule.needs == ("bm", "bn")
    assert bind(rule.check, PROBLEM, H100)((64, 32)) == "64x32 32"


def test_view_of_one_field_is_built_from_its_value() -> None:
    def check(part: Slice) -> str | None:
        return str(part.k)

    assert bind(check, PROBLEM, H100)((8,)) == "8"


def test_rule_may_read_only_the_problem() -> None:
    def check(problem: Problem) -> str | None:
        return f"M={problem.m}"

    rule = Rule("shape", check)
    assert rule.needs == ()
    assert bind(rule.check, PROBLEM, H100)(()) == "M=512"


def test_bound_arguments_are_not_needed() -> None:
    def check(axis: str, bm: int) -> str | None:
        return f"{axis}{bm}"

    rule = Rule("axis", partial(check, "m"))
    assert rule.needs == ("bm",)
    assert bind(rule.check, PROBLEM, H100)((16,)) == "m16"


def test_rules_share_views_of_the_same_values() -> None:
    tiles: list[Tile] = []

    def check(tile: Tile) -> str | None:
        tiles.append(tile)
        return None

    for problem in (PROBLEM, Problem(1, 1, 1)):
        bind(check, problem, H100)((64, 32))
    assert tiles[0] is tiles[1]
