"""The scripts that compare the machine code of two checkouts and race their kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_race
import machine_code
import pytest
from typer.testing import CliRunner

from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.device import find
from autotune.families import registry
from autotune.families.plan import Template
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate
from autotune.problem import PRECISIONS, Problem

DISASSEMBLY = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0020*/                   LDS.128 R4, [R0+UR4] ;
        /*0030*/               @P0 LDC R2, c[0x0][{offset}] ;
        /*0040*/                   FFMA R3, R4, R2, R3 ;
        /*0050*/              @!P0 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   BRA `(.L_x_2) ;
"""
CODE = {"counts": {"instructions": 10, "LDC": 2}, "loops": {"instructions": 4}}
ROW = {
    **{"name": "x", "kernel": "simt", "target": "sm_80", "problem": "8x8x8:f32:nn"},
    **{"config": "simt:bm=64", "registers": 40, "spills": 0, "cubin": "1", "code": "2", **CODE},
}


def test_instructions_are_counted_in_and_out_of_loops() -> None:
    figures = machine_code.figures(DISASSEMBLY.format(offset="0x220"))
    assert figures["counts"] == {"instructions": 8, "parameters": 2, "LDS": 1, "LDC": 2}
    assert figures["loops"] == {"instructions": 4, "parameters": 1, "LDS": 1, "LDC": 1}


def test_offsets_of_parameters_are_masked() -> None:
    before, after = (DISASSEMBLY.format(offset=offset) for offset in ("0x220", "0x238"))
    other = after.replace("FFMA", "FADD")
    codes = [machine_code.figures(text)["code"] for text in (before, after, other)]
    assert codes[0] == codes[1] != codes[2]


def test_hash_of_a_cubin_ignores_random_names(tmp_path: Path) -> None:
    source = """
        namespace {{ __device__ const int N[2] = {{1, 2}}; }}
        __global__ void k(int* a) {{ *a = N[*a] + {}; }}
    """
    digests = []
    for number in (1, 1, 2):
        (tmp_path / "k.cu").write_text(source.format(number))
        program = compile(Template("k.cu", "k"), "sm_80", cache=None, sources=tmp_path)
        assert isinstance(program, Program)
        assert b"_GLOBAL__N_" in program.cubin
        digests.append(machine_code.digest(program.cubin))
    assert digests[0] == digests[1] != digests[2]
    assert machine_code.digest(b"code") != machine_code.digest(b"more")


def test_programs_cover_families_and_precisions() -> None:
    device = find("h200")
    pairs = [*machine_code.members(device)][:: machine_code.SHARES["portfolio"]]
    families = {config.family for _, config in pairs}
    assert families == {"simt", "gemv", "mma", "wgmma"}
    assert {problem.compute for problem, _ in pairs} == {*PRECISIONS}
    templates = machine_code.templates("sm_90", pairs)
    assert len({case.name for case in templates.values()}) == len(templates)


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({}, 0, "1 programs"),
        ({"cubin": "3"}, 0, "1 programs"),
        ({"registers": 42}, 1, "registers 40 -> 42"),
        ({"spills": 8}, 1, "spills 0 -> 8"),
        ({"reason": "no memory"}, 1, "no memory"),
        ({"name": "y"}, 1, "1 only before, 1 only after"),
    ],
)
def test_comparison_fails_for_programs_that_take_more(
    tmp_path: Path, change: dict[str, Any], status: int, said: str
) -> None:
    for name, row in (("before", ROW), ("after", ROW | change)):
        (tmp_path / name).mkdir()
        text = json.dumps({"programs": [row], "race": []})
        (tmp_path / name / kernel_race.FILE).write_text(text)
    arguments = ["compare", str(tmp_path / "before"), str(tmp_path / "after")]
    result = CliRunner().invoke(machine_code.app, arguments)
    assert (result.exit_code, said in result.output) == (status, True), result.output


def test_changes_are_summed_up() -> None:
    assert machine_code.changes([0, 0]) == "="
    assert machine_code.changes([0, 4, -2]) == "1 more, 1 less, most +4"
    grown = ROW | {"counts": {"instructions": 11, "LDC": 2}}
    assert machine_code.percent([(ROW, grown)], "counts", ("instructions",)) == "+10.00 %"


class FakeSide:
    """A side of a race whose runs take given times."""

    def __init__(self, *times: float, failure: str = "") -> None:
        self.times: Iterator[float] = iter(times)
        self.failure = failure

    def ask(self, **request: str) -> dict[str, Any]:
        if "open" in request:
            return {"failure": self.failure} if self.failure else {"runs": 1}
        return {"us": next(self.times)}


ENTRY = {"problem": "8x8x8:f32:nn", "config": "simt:bm=64", "programs": ["x"]}


def test_ratio_is_the_median_over_rounds() -> None:
    sides: Any = [FakeSide(10.0, 20.0, 10.0), FakeSide(11.0, 20.0, 9.0)]
    row = kernel_race.raced(ENTRY, sides, rounds=3)
    assert (row["before_us"], row["after_us"], row["ratio"]) == (10.0, 11.0, 1.0)
    assert row["spread"] == pytest.approx(0.1)
    assert kernel_race.summary([row, row | {"ratio": 1.21}]) == {
        "simt": {"rows": 2, "geometric_mean": pytest.approx(1.1), "largest": 1.21}
    }


def test_kernel_that_fails_verification_is_not_timed() -> None:
    sides: Any = [FakeSide(), FakeSide(failure="verify: wrong elements")]
    row = kernel_race.raced(ENTRY, sides, rounds=3)
    assert row["failure"] == "verify: wrong elements"
    assert kernel_race.summary([row]) == {}


def test_row_of_both_orders_has_the_geometric_means() -> None:
    first = {"problem": "p", "config": "mma:bm=64", "before_us": 4.0, "after_us": 9.0}
    second = first | {"before_us": 9.0, "after_us": 4.0, "ratio": 1.0, "spread": 0.02}
    row = kernel_race.joined(first | {"ratio": 1.21, "spread": 0.01}, second)
    assert row["before_us"] == row["after_us"] == pytest.approx(6.0)
    assert (row["ratio"], row["spread"]) == (pytest.approx(1.1), 0.02)
    assert kernel_race.joined(first, {"failure": "wrong"}) == {"failure": "wrong"}


SERVANT = """
import json, sys
print(json.dumps({{"package": {package!r}}}), flush=True)
for text in sys.stdin:
    print(json.dumps({{"asked": json.loads(text)}}), flush=True)
"""


def tree(folder: Path, package: str) -> Path:
    (folder / "scripts/measure").mkdir(parents=True)
    (folder / "scripts/measure/kernel_race.py").write_text(SERVANT.format(package=package))
    return folder


def test_side_is_a_process_of_its_checkout(tmp_path: Path) -> None:
    home = tree(tmp_path / "here", str(tmp_path / "here/autotune"))
    with closing(kernel_race.Side(home, tmp_path)) as side:
        assert side.ask(do="time") == {"asked": {"do": "time"}}


def test_side_with_another_package_is_refused(tmp_path: Path) -> None:
    home = tree(tmp_path / "here", "/elsewhere/autotune")
    with pytest.raises(SystemExit, match="its process imports /elsewhere/autotune"):
        kernel_race.Side(home, tmp_path)


def test_racer_reads_what_was_compiled(tmp_path: Path) -> None:
    device = find("h200")
    problem, config = next(iter(kernel_race.cases(device)))
    wanted = machine_code.templates("sm_90", [(problem, config)])
    rows = []
    for template, case in wanted.items():
        program = compile(template, "sm_90", cache=None, here=True)
        assert isinstance(program, Program)
        (tmp_path / f"{case.name}.cubin").write_bytes(program.cubin)
        rows.append({"name": case.name, **machine_code.resources(program)})
    race = machine_code.race((problem, config), wanted)
    (tmp_path / kernel_race.FILE).write_text(json.dumps({"programs": rows, "race": [race]}))
    session: Any = FakeSession()
    racer = kernel_race.Racer(session, tmp_path)
    candidate = racer.candidate(problem, str(config))
    assert candidate.plan == registry.plan(config, problem)
    assert [item.cubin for item in candidate.programs] == [
        (tmp_path / f"{name}.cubin").read_bytes() for name in race["programs"]
    ]
    assert candidate.resources.registers == rows[0]["registers"]


class FakeSession:
    """A session on which every kernel takes 10 microseconds."""

    device = find("h200")
    driver = "13.0"

    def __init__(self) -> None:
        self.runs = 0

    def allocate(self, size: int) -> int:
        return size

    def fill(self, *_: int) -> None:
        """Writes nothing."""

    def mark(self) -> FakeSession:
        return self

    def time_till(self, _: FakeSession) -> float:
        return 0.01

    def synchronize(self) -> None:
        """Waits for nothing."""

    def bind(self, _: Candidate) -> Callable[[Any], Callable[[], None]]:
        def run() -> None:
            self.runs += 1

        return lambda _: run


class FakeBench:
    """A bench that accepts every kernel but that of `wrong`."""

    wrong = ""

    def __init__(self, _: FakeSession, problem: Problem, **_settings: None) -> None:
        self.operands: Any = SimpleNamespace(
            problem=problem, values=lambda *_: {}, clear_counters=lambda: None
        )

    def warm_up(self) -> None:
        """Draws nothing."""

    def switch_to(self, problem: Problem) -> None:
        self.operands.problem = problem

    def verify(self, _: Candidate) -> Any:
        if str(self.operands.problem) == self.wrong:
            return Failure("verify", "wrong elements")
        return SimpleNamespace(time_us=5000.0, relative=1e-7)


def test_racer_times_what_it_has_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_race, "GemmBench", FakeBench)
    monkeypatch.setattr(FakeBench, "wrong", "64x64x64:f32:nn")
    config = "naive:mapping=coalesced,block=16"
    texts = ["32x32x32:f32:nn", "64x64x64:f32:nn"]
    race = [{"problem": text, "config": config, "programs": ["x"]} for text in texts]
    row = {**PROGRAM, "name": "x", "target": "sm_90"}
    (tmp_path / "x.cubin").write_bytes(b"code")
    (tmp_path / kernel_race.FILE).write_text(json.dumps({"programs": [row], "race": race}))
    session: Any = FakeSession()
    racer = kernel_race.Racer(session, tmp_path)
    assert racer.open(texts[0], config) == {"runs": 1, "relative_error": 1e-7}
    assert (racer.time(), session.runs) == (10.0, 2)
    assert racer.open(texts[1], config) == {"failure": "verify: wrong elements"}


PROGRAM = {
    **{"symbol": "naive", "registers": 32, "shared": 0, "local": 0, "spills": 0, "barriers": 1},
    "compiler": "NVRTC 13.5",
}
