"""The steps from the naive kernel to the best, beside cuBLAS."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from fakes import FakeRunner, compiled
from rich.console import Console
from synthetic import FASTEST, FASTEST_US, PROBLEM, VENDOR_US, recorded

from autotune import ladder
from autotune.compiler import CompileFailure, Program
from autotune.config import Config
from autotune.errors import NotFoundError
from autotune.ladder import BEST, STEPS, climb
from autotune.plan import Template
from autotune.problem import Problem
from autotune.report.ladder import Rung, render, rungs, to_json
from autotune.runner import Failure, Measurement


def times(config: Config) -> Measurement:
    return Measurement(100.0 + len(str(config)))


def rung(name: str) -> Rung:
    return next(one for one in rungs(ladder.recorded(recorded())) if one.name == name)


def printed(climbed: ladder.Ladder, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(climbed))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_recorded_ladder_ends_with_the_fastest_recorded_kernel() -> None:
    assert ladder.recorded(recorded()).steps[BEST].config == FASTEST


def test_a_recorded_ladder_has_the_steps_in_order() -> None:
    assert [*ladder.recorded(recorded()).steps] == [*STEPS, BEST]


def test_steps_that_were_not_recorded_are_left_out() -> None:
    rows = tuple(row for row in recorded().rows if row.config.family == "simt")
    assert [*ladder.recorded(replace(recorded(), rows=rows)).steps] == [BEST]


def test_a_recording_without_a_competitor_is_no_ladder() -> None:
    rows = tuple(row for row in recorded().rows if row.config.family != "simt")
    with pytest.raises(NotFoundError, match="256x256x256:f32:nn on NVIDIA H100 80GB HBM3 has no"):
        ladder.recorded(replace(recorded(), rows=rows))


def test_a_kernel_of_another_version_is_no_competitor() -> None:
    first, *_ = rows = recorded().rows
    older = replace(first, config=Config.parse("simt:bm=64,bn=64"), outcome=Measurement(1.0))
    assert ladder.recorded(replace(recorded(), rows=(older, *rows))).steps[BEST].config == FASTEST


def test_a_climb_times_all_steps_side_by_side() -> None:
    runner = FakeRunner(times)
    climb(PROBLEM, FASTEST, runner, compiled)
    assert runner.rematched == [*STEPS.values(), FASTEST]


def test_a_climb_keeps_the_reason_of_a_step_that_falls() -> None:
    runner = FakeRunner(
        lambda config: Failure("verify", "wrong") if config.family == "naive" else times(config)
    )
    climbed = climb(PROBLEM, FASTEST, runner, compiled)
    assert [one.failure for one in rungs(climbed)][:3] == ["verify: wrong", "verify: wrong", None]


def test_a_step_that_does_not_compile_is_not_timed() -> None:
    def broken(template: Template, arch: str) -> Program | CompileFailure:
        if template.kernel == "naive":
            return CompileFailure(template, arch, "no", "")
        return compiled(template, arch)

    climbed = climb(PROBLEM, FASTEST, FakeRunner(times), broken)
    assert [one.time_us is None for one in rungs(climbed)] == [True, True, *[False] * 5]


def test_speed_is_2mnk_over_the_time() -> None:
    assert rung(BEST).gflops == pytest.approx(2 * 256**3 / FASTEST_US / 1e3)


def test_the_share_of_cublas_is_the_ratio_of_times() -> None:
    assert rung(BEST).cublas_share == VENDOR_US / FASTEST_US


def test_cublas_comes_last_with_its_speed_alone() -> None:
    last = rungs(ladder.recorded(recorded()))[-1]
    assert (last.name, last.time_us, last.cublas_share, last.config) == (
        "cuBLAS",
        VENDOR_US,
        1.0,
        None,
    )


@pytest.mark.parametrize(
    ("name", "flop_per_byte"),
    # PMPP, the chapter on tiled multiplication: 0.25 FLOP/B without tiles, TILE_WIDTH / 4 with.
    [("naive, coalesced", 0.25), ("naive, uncoalesced", 0.25), ("tiled, TILE_WIDTH 32", 8.0)],
)
def test_text_flop_per_byte(name: str, flop_per_byte: float) -> None:
    assert rung(name).flop_per_byte == flop_per_byte


def test_the_bound_is_what_the_bandwidth_feeds() -> None:
    assert rung("naive, coalesced").bound_gflops == pytest.approx(3.352e12 * 0.25 / 1e9)


def test_without_a_vendor_library_there_is_no_share() -> None:
    climbed = ladder.recorded(replace(recorded(), baseline=None))
    assert [one.cublas_share for one in rungs(climbed)] == [None] * 6


def test_the_table_says_that_it_was_recorded() -> None:
    assert printed(ladder.recorded(recorded())).startswith(
        "256x256x256:f32:nn on NVIDIA H100 80GB HBM3  REPLAYED"
    )


def test_the_ladder_is_json() -> None:
    data = json.loads(json.dumps(to_json(ladder.recorded(recorded()))))
    assert [one["name"] for one in data["rungs"]] == [*STEPS, BEST, "cuBLAS"]


def test_every_step_is_legal_on_the_devices_that_compile_it() -> None:
    from autotune import device, space

    problem = Problem(4096, 4096, 4096)
    assert [space.rejection(one, problem, device.find("t4")) for one in STEPS.values()] == [
        None
    ] * 5


def test_the_table_loses_nothing_on_a_terminal_of_80_columns() -> None:
    assert "…" not in printed(ladder.recorded(recorded()), width=80)
