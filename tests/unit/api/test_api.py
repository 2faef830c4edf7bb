"""The public names, what importing them costs, and what they do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from support.sample_recording import DEVICE, FASTEST, PROBLEM, ship
from support.sample_records import H100, SQUARE, entry, record

import autotune
from autotune import gpu, settings
from autotune.api import ladder as api_ladder
from autotune.api import lookups, tuning
from autotune.device import Device, find
from autotune.errors import AutotuneError, DeviceError, NotFoundError, ProblemError, UsageError
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.runners.base import Evidence, Runner
from autotune.targets import local
from autotune.tuning.ladder import BEST
from autotune.tuning.options import options_of

SIZES = (PROBLEM.m, PROBLEM.n, PROBLEM.k)

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pycuda", "optuna"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of a machine with one recording and no GPU, in the interpreters it starts too."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ship(tmp_path / "recordings", monkeypatch)
    return tmp_path / "cache"


def python(program: str) -> str:
    """What a program prints in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_imports_nothing_else() -> None:
    program = "import sys, autotune; print([m for m in sys.modules if 'autotune.' in m])"
    assert python(program) == "[]"


def test_every_public_name_is_there() -> None:
    assert python("import autotune\nfor name in autotune.__all__: getattr(autotune, name)") == ""


def test_public_names_are_listed() -> None:
    assert set(autotune.__all__) <= set(dir(autotune))


def test_tune_can_be_called_again() -> None:
    program = (
        "import autotune\n"
        "for n in (32, 64):\n"
        "    tuned = autotune.tune(n, n, n, device='h100', family='tiled', trials=1)\n"
        "    print(tuned.problem)"
    )
    assert python(program).split() == ["32x32x32:f32:nn", "64x64x64:f32:nn"]


def test_other_names_are_missing_attributes() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tuna'"):
        _ = autotune.tuna


def test_submodules_need_no_import_of_their_own() -> None:
    program = "import autotune; print(autotune.device.find('h100').sms)"
    assert python(program) == "132"


def test_functions_stay_functions_once_all_but_the_part_for_pytorch_is_imported() -> None:
    program = (
        "import pkgutil, autotune\n"
        "for module in pkgutil.walk_packages(autotune.__path__, 'autotune.'):\n"
        "    if not module.name.startswith('autotune.torch'):\n"
        "        __import__(module.name)\n"
        "print(*(callable(getattr(autotune, n)) for n in ('tune', 'best', 'matmul', 'kernel')))"
    )
    assert python(program) == "True True True True"


@pytest.mark.parametrize(
    "module",
    [
        "autotune.api.tuning",
        "autotune.cli",
        "autotune.runtime",
        "autotune.gpu",
        "autotune.api.kernels",
    ],
)
def test_import_without_pycuda_and_optuna(module: str) -> None:
    assert python(f"{BLOCKED}\nimport {module}\nprint('fine')") == "fine"


def test_best_needs_neither_pycuda_nor_optuna(cache: Path) -> None:
    Store(cache).save(record(problem=SQUARE))
    program = "import autotune; print(autotune.best(4096, 4096, 4096, device='h100').evidence)"
    assert python(BLOCKED + program) == "measured"


def test_tune_returns_what_best_finds() -> None:
    tuned = tuning.tune(*SIZES, device=DEVICE, trials=25)
    assert lookups.best(*SIZES, device=DEVICE) == tuned


def test_tune_exhaustively_tries_everything() -> None:
    tuned = tuning.tune(*SIZES, device=DEVICE, sampler="exhaustive")
    assert (tuned.best.config, tuned.provenance.trials) == (FASTEST, 25)


def test_a_recordings_origin_is_in_the_record() -> None:
    assert tuning.tune(*SIZES, device=DEVICE, trials=1).provenance.source == "5e1f"


def test_predictions_name_no_driver() -> None:
    tuned = tuning.tune(64, 64, 64, device="h100", family="tiled", trials=1)
    assert (tuned.evidence, tuned.provenance.driver) == ("predicted", "")


def test_a_device_that_this_machine_has_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened(Exception):
        """The GPU was opened."""

    def probe(index: int = 0) -> Device:
        if index > 1:
            raise DeviceError(f"no GPU {index}")
        return (find("t4"), find("h100"))[index]

    def open_runner(_problem: Problem, index: int, **_: bool) -> Runner:
        raise Opened(index)

    monkeypatch.setattr(gpu, "probe", probe)
    monkeypatch.setattr(gpu, "open_runner", open_runner)
    with pytest.raises(Opened, match="1"):
        tuning.tune(64, 64, 64, device="h100")


@pytest.mark.parametrize(
    ("sampler", "trials", "budget", "limit"),
    [
        ("tpe", None, None, 60.0),
        ("random", 100, None, None),
        ("tpe", None, 5.0, 5.0),
        ("exhaustive", None, None, None),
    ],
)
def test_a_search_without_limits_ends_after_a_minute(
    sampler: str, trials: int | None, budget: float | None, limit: float | None
) -> None:
    assert options_of(trials, budget, 0, sampler, None).budget_s == limit


@pytest.mark.parametrize(
    ("option", "value"),
    [("trials", "5"), ("trials", 2.5), ("jobs", 1.5), ("seed", "x"), ("budget", "60s")],
)
def test_options_of_another_type_are_refused(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{option} is {value!r}; give a "):
        autotune.tune(8, 8, 8, device=DEVICE, **{option: value})


def test_a_device_is_text_a_path_or_a_device(tmp_path: Path) -> None:
    file = tmp_path / "card"
    file.write_text(json.dumps(find("h100").to_json()))
    tuned = tuning.tune(64, 64, 64, device="h100", family="tiled", trials=1)
    for device in (find("h100"), file):
        assert lookups.best(64, 64, 64, device=device) == tuned


@pytest.mark.parametrize("device", [None, 1.5, True, ["h100"]])
def test_a_device_of_another_type_is_refused(device: Any) -> None:
    with pytest.raises(DeviceError, match="give its name"):
        autotune.best(8, 8, 8, device=device)


def test_a_nan_is_no_budget() -> None:
    with pytest.raises(UsageError, match="budget is nan s; give more than 0"):
        options_of(None, float("nan"), 0, "tpe", None)


def test_best_prefers_what_was_measured() -> None:
    store = Store(settings.cache_dir())
    for evidence in get_args(Evidence):
        store.save(record(evidence=evidence, problem=SQUARE))
    assert lookups.best(4096, 4096, 4096, device="h100").evidence == "measured"


def test_best_of_another_layout_is_not_found() -> None:
    Store(settings.cache_dir()).save(record(problem=SQUARE))
    with pytest.raises(NotFoundError, match="4096x4096x4096:f32:tn is not tuned"):
        lookups.best(4096, 4096, 4096, layout="tn", device="h100")


def test_near_accuracy_is_tuned_and_found_as_tf32x3() -> None:
    given = {"device": "h100", "accuracy": "near"}
    tuned = tuning.tune(64, 64, 64, **given, family="tiled", trials=1)  # type: ignore[arg-type]
    assert tuned.problem == Problem(64, 64, 64, "tf32x3")
    assert lookups.best(64, 64, 64, device="h100", compute="tf32x3") == tuned
    assert lookups.best(64, 64, 64, device="h100", accuracy="near") == tuned


def test_the_output_is_part_of_what_is_found() -> None:
    halves = Problem(4096, 4096, 4096, "bf16", output="f32")
    Store(settings.cache_dir()).save(record(problem=halves))
    found = lookups.best(4096, 4096, 4096, compute="bf16", output="f32", device="h100")
    assert found.problem == halves
    with pytest.raises(NotFoundError, match="4096x4096x4096:bf16:nn is not tuned"):
        lookups.best(4096, 4096, 4096, compute="bf16", device="h100")


@pytest.mark.parametrize("given", [{"batch": 8}, {"epilogue": "bias_gelu"}])
def test_batch_and_epilogue_are_tuned_and_found_by(given: dict[str, Any]) -> None:
    tuned = tuning.tune(64, 64, 64, **given, device="h100", family="tiled", trials=1)
    assert tuned.problem == Problem(64, 64, 64, **given)
    assert lookups.best(64, 64, 64, **given, device="h100") == tuned
    with pytest.raises(NotFoundError):
        lookups.best(64, 64, 64, device="h100")


def test_an_impossible_problem_is_refused_before_anything_starts() -> None:
    with pytest.raises(ProblemError, match="N is 0"):
        tuning.tune(1, 0, 1, device=DEVICE)


@pytest.fixture
def _fp32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder that ends before the tensor cores, whose kernels take long to choose."""
    monkeypatch.setattr("autotune.tuning.ladder.precisions", lambda _: ())


@pytest.mark.usefixtures("_fp32_alone")
def test_the_ladder_takes_the_recorded_winner() -> None:
    tiled = entry(16, 1.0)
    winner = replace(tiled, config=Config.of("simt", FASTEST.values | {"bk": 8}))
    Store(settings.cache_dir()).save(record(tiled, winner, problem=PROBLEM, device=find("h100")))
    assert api_ladder.ladder(256, device="h100").steps[BEST].config == winner.config


def test_the_ladder_goes_on_to_the_tensor_cores_on_the_same_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    winner = replace(entry(16, 1.0), config=FASTEST)
    Store(settings.cache_dir()).save(record(winner, problem=PROBLEM, device=find("h100")))
    monkeypatch.setattr(
        "autotune.tuning.ladder.precisions", lambda one: (replace(one, compute="tf32"),)
    )
    (tf32,) = api_ladder.ladder(256, device="h100").higher
    assert tf32.problem == replace(PROBLEM, compute="tf32")


@pytest.mark.usefixtures("_fp32_alone")
def test_the_ladder_searches_among_simt_kernels_where_none_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, simt = entry(16, 1.0), replace(entry(16, 2.0), config=FASTEST)
    asked: list[str] = []

    def search(problem: Problem, _options: Any, *, family: str, **_given: Any) -> Record:
        asked.append(family)
        return record(other, simt, problem=problem)

    monkeypatch.setattr(tuning, "search", search)
    assert api_ladder.ladder(256, device="h100").steps[BEST].config == FASTEST
    assert asked == ["simt"]


def test_a_ladder_so_small_that_other_families_win_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "search", lambda problem, *_, **__: record(problem=problem))
    with pytest.raises(AutotuneError, match="8x8x8:f32:nn are no simt kernels"):
        api_ladder.ladder(8, device="h100")


def test_a_gpu_that_is_not_there_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(index: int) -> Device:
        if index:
            raise DeviceError("no GPU 1; the driver shows 1, numbered from 0")
        return H100

    monkeypatch.setattr(gpu, "probe", probe)
    with pytest.raises(DeviceError, match="no GPU 1"):
        local.index_of(find("t4"))
