"""The table of rungs, and what the ladder's family refuses and launches."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.device import Device, find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.ladder import LAYOUTS, RUNGS, Rung
from autotune.families.plan import Alignment, Launch
from autotune.model import space
from autotune.problem import Problem
from autotune.tuning.pipeline import resources_of

H100 = find("h100")
SIDE = 4096

each_rung = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)


def problem_of(rung: Rung, side: int = SIDE) -> Problem:
    return Problem(side, side, side, rung.compute, LAYOUTS[rung.compute])


def launch_of(rung: Rung) -> Launch:
    return registry.plan(rung.config(H100), problem_of(rung)).main


def reason(rung: Rung, problem: Problem, device: Device = H100) -> str:
    return str(space.rejection(rung.config(device), problem, device))


def test_rungs_are_numbered_in_order() -> None:
    assert [rung.number for rung in RUNGS] == [*range(1, len(RUNGS) + 1)]
    assert [rung.compute for rung in RUNGS] == ["f32"] * 9 + ["bf16"] * 8


def test_every_file_of_the_folder_is_a_rung() -> None:
    files = sorted(path.name for path in (settings.source_dir() / "ladder").glob("*"))
    assert [f"ladder/{name}" for name in files] == [rung.source for rung in RUNGS]


@each_rung
def test_source_is_short_and_opens_with_its_number(rung: Rung) -> None:
    lines = (settings.source_dir() / rung.source).read_text().splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"// Rung {rung.number}. C = alpha A B")
    assert sum(line.startswith("// Constraints: ") for line in lines) == 1


@each_rung
def test_rung_is_legal_at_4096(rung: Rung) -> None:
    assert space.rejection(rung.config(H100), problem_of(rung), H100) is None


@each_rung
def test_resources_of_the_table_are_those_compiled(rung: Rung) -> None:
    launch = launch_of(rung)
    program = compiler.compile(launch.template, "sm_90", cache=None)
    assert isinstance(program, Program), program.reason
    assert program.local == 0
    compiled = resources_of(launch, program)
    estimate = registry.find("ladder").estimate(rung.config(H100), problem_of(rung))
    assert (compiled.threads, compiled.shared) == (estimate.threads, estimate.shared)
    assert compiled.registers == pytest.approx(estimate.registers, abs=8)


@pytest.mark.parametrize(
    "rung", [rung for rung in RUNGS if not rung.edges], ids=lambda rung: rung.name
)
def test_constants_of_the_source_are_those_of_the_table(rung: Rung) -> None:
    text = (settings.source_dir() / rung.source).read_text()
    constants = {name: int(value) for name, value in re.findall(r"\b(B[MNK]) = (\d+)\b", text)}
    assert (constants["BM"], constants["BN"], constants["BK"]) == rung.tile


@each_rung
def test_grid_covers_c_once(rung: Rung) -> None:
    rows, columns, _ = rung.tile
    x, y, _ = launch_of(rung).grid
    blocks = x * y
    assert blocks == (132 if rung.persistent else (SIDE // rows) * (SIDE // columns))


@pytest.mark.parametrize(
    ("number", "problem", "message"),
    [
        (1, "64x64x64:f32:nt", "operation: computes alpha A B + beta C as in 64x64x64:f32:nn"),
        (2, "64x64x64:f32:nn:bias", "operation: computes alpha A B + beta C"),
        (3, "64x64x64:f32:nn:batch=2", "operation: computes alpha A B + beta C"),
        (10, "128x128x64:bf16:nn", "operation: computes alpha A B + beta C as in 128x128x64:bf16"),
        (5, "100x128x12:f32:nn", "tiles: takes whole tiles: give a multiple for m of 128, k of 8"),
        (16, "128x256x64:bf16:nt", "tiles: takes whole tiles: give a multiple for m of 256"),
    ],
)
def test_rung_refuses_what_it_is_not_about(number: int, problem: str, message: str) -> None:
    assert reason(RUNGS[number - 1], Problem.parse(problem)).startswith(message)


@pytest.mark.parametrize(
    ("number", "device", "message"),
    [
        (8, "t4", "capability: the kernel needs compute capability 8.0; Tesla T4 has 7.5"),
        (
            13,
            "rtx-4090",
            "capability: the kernel is of compute capability 9.0 alone; NVIDIA GeForce",
        ),
        (
            13,
            "b200",
            "capability: the kernel is of compute capability 9.0 alone; NVIDIA B200 has 10.0",
        ),
    ],
)
def test_rung_needs_its_instructions(number: int, device: str, message: str) -> None:
    rung = RUNGS[number - 1]
    assert reason(rung, problem_of(rung), find(device)).startswith(message)


def test_plain_rungs_take_any_size() -> None:
    legal = [
        r.number for r in RUNGS if r.compute == "f32" and reason(r, problem_of(r, 37)) == "None"
    ]
    assert legal == [1, 2, 3, 4]


def test_persistent_grid_has_a_block_for_each_sm() -> None:
    config = Config.of("ladder", {"rung": 17, "workers": 0})
    rejection = space.rejection(config, problem_of(RUNGS[16]), H100)
    assert str(rejection) == f"workers: runs with 132 workers on {H100.name}"
    assert RUNGS[16].config(replace(H100, sms=113)).integer("workers") == 112


def test_unaligned_rows_are_refused_with_a_reason() -> None:
    rung = RUNGS[5]
    with pytest.raises(ConfigError, match="loads vectors of 4 elements; give matrices whose"):
        registry.find("ladder").plan(rung.config(H100), problem_of(rung), Alignment(4, 1, 4))


def test_grid_beyond_cudas_limit_is_rejected() -> None:
    problem = Problem(2**22, 32, 32)
    assert reason(RUNGS[0], problem) == "grid: needs 131072 blocks along y, a grid allows 65535"
