"""The comparison with Kernel Tuner: its kernels compile, its figures, its processes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import peer_kernels as peers
import pytest
from cases import CASES, Case, evaluated
from references import Results, box
from results import rows_in
from typer import BadParameter

import autotune
from autotune.problem.call import KernelCall
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.tunable import KernelTunable


def drawn(case: Case) -> dict[str, Any]:
    return Random(case.name).choice(case.legal())


def defined(case: Case, **changed: Any) -> UserKernel:
    keywords = {**case.keywords(), **case.geometry(), **changed}
    return define_kernel(**keywords, grid=None, block=None)


def small_call(name: str) -> list[Any]:
    """Arguments of a kernel's reference that a test can afford."""
    ones = np.ones((4, 4), np.float32)
    arguments: dict[str, list[Any]] = {
        "stencil5": [ones * np.arange(4, dtype=np.float32), ones, 4, 4, np.float32(0.5)],
        "nbody": [
            np.array([[0, 0, 0, 1], [0.5, 0, 0, 1]], np.float32),
            *(np.zeros((2, 4), np.float32), 2, np.float32(0.75)),
        ],
        "layer_norm": [np.array([[1, 3]], np.float32), np.zeros((1, 2), np.float32), 0.0],
        "softmax": [np.zeros((2, 4), np.float32), ones, 2],
        "scan": [np.array([[1, 2, 3]], np.uint32), np.zeros((1, 3), np.uint32), 3],
        "laplace": [np.ones((3, 3, 3), np.float32), ones, 3, 3, 3],
        "histogram": [np.arange(128, dtype=np.uint8) % 2, np.ones(256, np.uint32), 128],
    }
    return arguments[name]


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("stencil5", (1, 1), 1.0),
        ("nbody", (0, 0), 0.5),
        ("layer_norm", (0, 0), -1.0),
        ("softmax", (1, 3), 0.25),
        ("scan", (0, 2), 6),
        ("laplace", (0, 0, 0), -3.0),
        ("histogram", (1,), 65),
    ],
)
def test_references_compute_known_results(name: str, place: tuple[int, ...], expected: Any) -> None:
    answer = CASES[name].reference(*small_call(name))
    (output,) = (array for array in answer if array is not None)
    assert output[place] == pytest.approx(expected)


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_spaces_are_worth_a_search(case: Case) -> None:
    assert 200 <= len(case.legal()) <= 20_000
    kernel = defined(case)
    assert kernel.name == case.kernel.partition("<")[0]


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_judge_launches_like_the_tuner(case: Case) -> None:
    config = drawn(case)
    kernel = defined(case, parameters={name: [at] for name, at in config.items()})
    (only,) = kernel.combinations()
    (launch,) = KernelTunable(kernel, KernelCall(case.name, ())).plan(only).launches
    assert (launch.grid, launch.block) == peers.geometry(case, config)
    assert launch.shared == evaluated(case.shared, config)


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_kernels_compile(case: Case) -> None:
    if case.name == "matvec" and shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    keywords = case.keywords() | {"parameters": {key: [at] for key, at in drawn(case).items()}}
    (row,) = autotune.kernel_occupancy(**keywords, device="h100", jobs=1).rows
    assert row.rejection is None


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["matvec", "matmul_template"])
def test_judge_compiles_by_nvcc(name: str) -> None:
    case = CASES[name]
    code = peers.cubin(case, drawn(case), arch="sm_90")
    assert isinstance(code, bytes), code
    assert name in peers.symbol(case, code)


def task(**options: Any) -> dict[str, Any]:
    return {"seconds": 11.0, "answer": False, "strategy": "random_sample", "seed": 0, **options}


def test_kernel_tuner_gets_the_same_space() -> None:
    case = CASES["convolution"]
    keywords = peers.kernel_tuner_call(case, task(), [], "CUPY")
    assert keywords["tune_params"] == {name: [*at] for name, at in case.parameters.items()}
    assert keywords["restrictions"] == [*case.constraints]
    assert keywords["grid_div_y"] == ["block_size_y", "tile_size_y"]
    assert keywords["grid_div_z"] == []
    assert [*keywords["cmem_args"]] == ["d_filter"]
    assert keywords["strategy_options"] == {"time_limit": 11.0}


def test_template_has_no_name_of_a_parameter() -> None:
    """Kernel Tuner defines every parameter as a macro."""
    (case,) = (case for case in CASES.values() if case.is_template)
    code = re.sub(r"//.*", "", case.path.read_text(encoding="utf-8"))
    assert not {*case.parameters} & {*re.findall(r"\w+", code)}


def test_dynamic_shared_memory_depends_on_the_configuration() -> None:
    case = CASES["bitonic_sort"]
    size = peers.kernel_tuner_call(case, task(), [], "CUPY")["smem_args"]["size"]
    assert size({"columns": 2048, "rows_each": 3}) == 24576


def test_kernels_with_host_code_or_structures_take_pycuda() -> None:
    scan, matvec = CASES["scan"], CASES["matvec"]
    assert peers.language(matvec, [np.int32(3)]) == "PYCUDA"
    assert peers.language(scan, [box()]) == "PYCUDA"
    assert peers.language(scan, [np.zeros(3), np.int32(3)]) == "CUPY"


def test_results_within_tolerance_are_close() -> None:
    expected = np.array([1.0, -1.0, 1e6], np.float32)
    actual = expected + np.array([30.0, 40.0, np.nan], np.float32)
    assert peers.close(actual, expected).tolist() == [True, False, False]
    whole = np.array([3, 4], np.uint32)
    assert peers.close(whole + np.array([0, 1], np.uint32), whole).tolist() == [True, False]


def outcomes(judged: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of both tuners, the first of them judged."""
    found = {"trials": 5, "failures": 1, "first_s": 1.0, "wall_s": 11.0, "us": 9.0}
    return [
        {"tuner": peers.OURS, "seed": 0, "config": {"n": 1}, "judged": judged, **found},
        {"tuner": peers.THEIRS, "seed": 0, "config": {"n": 2}, "judged": {"us": 12.0}, **found},
    ]


def test_ratio_is_their_time_over_ours() -> None:
    assert peers.ratios(outcomes({"us": 10.0})) == [1.2]
    assert peers.ratios(outcomes({"wrong": "3 elements"})) == []


def test_wrong_winner_is_counted_and_shown() -> None:
    runs = outcomes({"wrong": "3 elements"})
    total = peers.summary([{"case": "scan", "runs": runs, "ratios": []}])
    assert (total[peers.OURS]["wrong"], total[peers.THEIRS]["wrong"]) == (1, 0)
    cells = [[peers.figure(run, head) for head in peers.HEADS] for run in (*runs, {})]
    assert cells[0] == ["wrong", "5", "1.0", "11.0"]
    assert cells[1] == ["12.0", "5", "1.0", "11.0"]
    assert cells[2] == ["none"] * 4
    assert peers.totals(total[peers.OURS]) == (
        "1 of 1 runs have a winner, 1 wrong, 5 trials (5 to 5), "
        "1 s to the first result (1 to 1), 11 s of wall clock (11 to 11)"
    )


def test_crash_costs_its_own_row(tmp_path: Path) -> None:
    broken = {"case": "scan", "folder": str(tmp_path), "job": "none"}
    outcome = peers.apart(broken, limit=60, place=("", [min(os.sched_getaffinity(0))]))
    assert outcome == {"broken": "exit status 1: KeyError: 'none'"}


def test_late_process_is_ended(tmp_path: Path) -> None:
    late = {"case": "nbody", "folder": str(tmp_path), "job": "prepare"}
    outcome = peers.apart(late, limit=0.05, place=("", [min(os.sched_getaffinity(0))]))
    assert outcome == {"broken": "ended after 0 s"}


def test_prepared_call_is_the_call(tmp_path: Path) -> None:
    def reference(x: Any, box: Any) -> Results:
        return [x + box["step"], None]

    def arguments() -> list[Any]:
        return [np.ones(3, np.float32), box()]

    case = Case("none", "none", {}, [], [], [], arguments, reference)
    peers.prepare(case, {"folder": str(tmp_path)})
    (x, again), (expected, nothing) = peers.call({"folder": str(tmp_path)})
    assert (x.tolist(), again, nothing) == ([1, 1, 1], box(), None)
    assert expected is not None
    assert expected.tolist() == [1.125] * 3


def test_rows_stay_if_the_settings_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    settings = {"seconds": 5.0, "toolkit": "nvcc 13.0", "commit": "abcdef0"}
    path.write_text(json.dumps(peers.contents(settings, [{"case": "scan", "runs": []}])))
    assert [row["case"] for row in rows_in(path, settings)] == ["scan"]
    assert rows_in(path, settings | {"seconds": 6.0}) == []
    assert rows_in(tmp_path / "none.json", settings) == []


def test_unknown_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="no kernel sort"):
        peers.main(tmp_path / "out.json", cases="scan,sort")
