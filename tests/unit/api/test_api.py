"""The public names: what they import, and what they do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from support.sample_recording import DEVICE, FASTEST, PROBLEM, ship
from support.sample_records import H100, SQUARE, entry, record

import autotune
from autotune import settings
from autotune.api import ladder as api_ladder
from autotune.api import lookups, tuning
from autotune.device import Device, find
from autotune.errors import DeviceError, NotFoundError, ProblemError, UsageError
from autotune.families.config import Config
from autotune.measure import devices, gpu_runner, targets
from autotune.measure.measurement import Evidence
from autotune.measure.runner import Runner
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.ladder import Ladder
from autotune.tuning.options import Sampler
from autotune.tuning.trials import Observer

SIZES = (PROBLEM.m, PROBLEM.n, PROBLEM.k)


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pycuda", "optuna", "scipy"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache on a machine with one recording and no GPU, for child processes too."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ship(tmp_path / "recordings", monkeypatch)
    return tmp_path / "cache"


def python(program: str) -> str:
    """The output of a program in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_import_loads_no_submodule() -> None:
    program = "import sys, autotune; print([m for m in sys.modules if 'autotune.' in m])"
    assert python(program) == "[]"


def test_every_public_name_exists() -> None:
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


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tuna'"):
        _ = autotune.tuna


def test_submodules_are_attributes() -> None:
    program = "import autotune; print(autotune.device.find('h100').sms)"
    assert python(program) == "132"


def test_submodules_do_not_shadow_public_functions() -> None:
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
        "autotune.measure.gpu_runner",
        "autotune.api.kernels",
    ],
)
def test_imports_need_neither_pycuda_nor_optuna_nor_scipy(module: str) -> None:
    assert python(f"{BLOCKED}\nimport {module}\nprint('fine')") == "fine"


def test_best_needs_neither_pycuda_nor_optuna_nor_scipy(cache: Path) -> None:
    Store(cache).save(record(problem=SQUARE))
    program = "import autotune; print(autotune.best(4096, 4096, 4096, device='h100').evidence)"
    assert python(BLOCKED + program) == "measured"


def test_tune_returns_what_best_finds() -> None:
    tuned = autotune.tune(*SIZES, device=DEVICE, trials=25)
    assert lookups.best(*SIZES, device=DEVICE) == tuned


def test_exhaustive_sampler_tries_everything() -> None:
    tuned = autotune.tune(*SIZES, device=DEVICE, effort="exhaustive")
    assert (tuned.best.config, tuned.provenance.trials) == (FASTEST, 25)


def test_record_keeps_the_origin_of_a_recording() -> None:
    assert autotune.tune(*SIZES, device=DEVICE, trials=1).provenance.source == "5e1f"


def test_predicted_record_names_no_driver() -> None:
    tuned = autotune.tune(64, 64, 64, device="h100", family="tiled", trials=1)
    assert (tuned.evidence, tuned.provenance.driver) == ("predicted", "")


def test_named_device_in_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened(Exception):
        """Raised when the GPU is opened."""

    def probe(index: int = 0) -> Device:
        if index > 1:
            raise DeviceError(f"no GPU {index}")
        return (find("t4"), find("h100"))[index]

    def open_runner(_problem: Problem, index: int, **_: bool) -> Runner:
        raise Opened(index)

    monkeypatch.setattr(devices, "probe", probe)
    monkeypatch.setattr(gpu_runner, "open_runner", open_runner)
    with pytest.raises(Opened, match="1"):
        autotune.tune(64, 64, 64, device="h100")


@pytest.mark.parametrize(
    ("sampler", "trials", "seconds", "limit"),
    [
        ("tpe", None, None, 60.0),
        ("random", 100, None, None),
        ("tpe", None, 5.0, 5.0),
        ("exhaustive", None, None, None),
    ],
)
def test_search_without_limits_ends_after_a_minute(
    sampler: Sampler, trials: int | None, seconds: float | None, limit: float | None
) -> None:
    search = autotune.Search(sampler=sampler, trials=trials, seconds=seconds)
    assert search.limited().seconds == limit


@pytest.mark.parametrize(
    ("option", "value"),
    [("trials", "5"), ("trials", 2.5), ("jobs", 1.5), ("seed", "x"), ("seconds", "60s")],
)
def test_option_of_another_type_is_refused(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{option} is {value!r}; give a "):
        autotune.tune(8, 8, 8, device=DEVICE, search=autotune.Search(**{option: value}))


def test_device_is_text_a_path_or_a_device(tmp_path: Path) -> None:
    file = tmp_path / "card"
    file.write_text(json.dumps(find("h100").to_json()))
    tuned = autotune.tune(64, 64, 64, device="h100", family="tiled", trials=1)
    for device in (find("h100"), file):
        assert lookups.best(64, 64, 64, device=device, family="tiled") == tuned


@pytest.mark.parametrize("device", [None, 1.5, True, ["h100"]])
def test_device_of_another_type_is_refused(device: Any) -> None:
    with pytest.raises(DeviceError, match="give its name"):
        autotune.best(8, 8, 8, device=device)


def test_nan_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="budget is nan s; give more than 0"):
        autotune.Search(seconds=float("nan"))


def test_best_prefers_measured_records() -> None:
    store = Store(settings.cache_dir())
    for evidence in get_args(Evidence):
        store.save(record(evidence=evidence, problem=SQUARE))
    assert lookups.best(4096, 4096, 4096, device="h100").evidence == "measured"


def test_best_of_another_layout_is_not_found() -> None:
    Store(settings.cache_dir()).save(record(problem=SQUARE))
    with pytest.raises(NotFoundError, match="4096x4096x4096:f32:tn is not tuned"):
        lookups.best(4096, 4096, 4096, layout="tn", device="h100")


def test_near_accuracy_finds_tf32x3() -> None:
    tuned = autotune.tune(64, 64, 64, compute="tf32x3", device="h100", family="tiled", trials=1)
    assert tuned.problem == Problem(64, 64, 64, "tf32x3")
    near = partial(lookups.best, 64, 64, 64, device="h100", family="tiled")
    assert near(compute="tf32x3") == tuned
    assert near(accuracy="near") == tuned


def test_best_distinguishes_outputs() -> None:
    halves = Problem(4096, 4096, 4096, "bf16", output="f32")
    Store(settings.cache_dir()).save(record(problem=halves))
    recorded = lookups.best(4096, 4096, 4096, compute="bf16", output="f32", device="h100")
    assert recorded.problem == halves
    with pytest.raises(NotFoundError, match="4096x4096x4096:bf16:nn is not tuned"):
        lookups.best(4096, 4096, 4096, compute="bf16", device="h100")


@pytest.mark.parametrize("fields", [{"batch": 8}, {"epilogue": "bias_gelu"}])
def test_best_distinguishes_batches_and_epilogues(fields: dict[str, Any]) -> None:
    problem = Problem(64, 64, 64, **fields)
    tuned = autotune.tune(problem, device="h100", family="tiled", trials=1)
    assert tuned.problem == problem
    assert lookups.best(64, 64, 64, **fields, device="h100", family="tiled") == tuned
    with pytest.raises(NotFoundError):
        lookups.best(64, 64, 64, device="h100", family="tiled")


def test_best_of_all_is_not_that_of_a_family() -> None:
    autotune.tune(64, 64, 64, device="h100", family="tiled", trials=1)
    hint = "run `autotune tune 64x64x64:f32:nn --device h100`"
    with pytest.raises(NotFoundError, match=hint):
        lookups.best(64, 64, 64, device="h100")
    assert lookups.choose(Problem(64, 64, 64), device="h100").how == "predicted"


def test_family_that_was_not_tuned_alone_is_not_found() -> None:
    autotune.tune(*SIZES, device=DEVICE, trials=1)
    hint = f"`autotune tune {PROBLEM} --family tiled --device {DEVICE}`"
    with pytest.raises(NotFoundError, match=f"with tiled kernels alone on .*; run {hint}"):
        lookups.best(*SIZES, device=DEVICE, family="tiled")
    with pytest.raises(UsageError, match="unknown family 'wmma'"):
        lookups.best(*SIZES, device=DEVICE, family="wmma")


def test_impossible_problem_is_refused_first() -> None:
    with pytest.raises(ProblemError, match="N is 0"):
        autotune.tune(1, 0, 1, device=DEVICE)


def tuned_rows(climbed: Ladder) -> dict[str, str | None]:
    return {rung.name: rung.config for rung in climbed.rungs if rung.name.startswith("tuned")}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Problem, str]]:
    """The searches of a ladder, which find nothing of their family."""
    searched: list[tuple[Problem, str]] = []

    def search(problem: Problem, _search: Any, *, family: str, **_options: Any) -> Record:
        searched.append((problem, family))
        return record(entry(16, 1.0), replace(entry(16, 2.0), config=FASTEST), problem=problem)

    monkeypatch.setattr(tuning, "search", search)
    return searched


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled rungs of a ladder, which take seconds."""
    folder = tmp_path_factory.mktemp("ladder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(folder))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        api_ladder.ladder(256, device="h100")
    return folder / "programs"


@pytest.fixture
def compiled_rungs(programs: Path, cache: Path) -> None:
    shutil.copytree(programs, cache / "programs")


@pytest.mark.usefixtures("compiled_rungs")
def test_ladder_takes_the_recorded_simt_kernel() -> None:
    tiled = entry(16, 1.0)
    winner = replace(tiled, config=Config.of("simt", FASTEST.values | {"bk": 8}))
    Store(settings.cache_dir()).save(record(tiled, winner, problem=PROBLEM, device=find("h100")))
    climbed = api_ladder.ladder(256, device="h100")
    assert tuned_rows(climbed)["tuned simt"] == str(winner.config)
    assert climbed.untuned == ("tuned wgmma",)


@pytest.mark.usefixtures("compiled_rungs")
def test_ladder_tunes_what_is_not_recorded(searches: list[tuple[Problem, str]]) -> None:
    climbed = api_ladder.ladder(256, device="h100", tune=True)
    assert tuned_rows(climbed)["tuned simt"] == str(FASTEST)
    bf16 = replace(PROBLEM, compute="bf16", layout="nt")
    assert searches == [(PROBLEM, "simt"), (bf16, "wgmma")]
    assert climbed.untuned == ("tuned wgmma",)  # the search found none of the family


@pytest.mark.usefixtures("compiled_rungs")
def test_predicted_ladder_does_not_tune(searches: list[tuple[Problem, str]]) -> None:
    climbed = api_ladder.ladder(256, device="h100")
    assert climbed.untuned == ("tuned simt", "tuned wgmma")
    assert searches == []


@pytest.mark.usefixtures("compiled_rungs")
def test_ladder_ends_an_interrupted_search(searches: list[tuple[Problem, str]]) -> None:
    cut = record(replace(entry(16, 1.0), config=FASTEST), problem=PROBLEM, device=find("h100"))
    cut = replace(cut, provenance=replace(cut.provenance, interrupted=True))
    Store(settings.cache_dir()).save(cut)
    assert api_ladder.ladder(256, device="h100").interrupted == ("tuned simt",)
    assert searches == []
    assert api_ladder.ladder(256, device="h100", tune=True).interrupted == ()


def test_ladder_of_a_recording_without_one_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no ladder of 256 is recorded on synthetic"):
        api_ladder.ladder(256, device=DEVICE)


def test_file_of_a_recording_holds_no_ladder() -> None:
    with pytest.raises(NotFoundError, match=r"own.json.gz holds no ladder; give replay:h100"):
        api_ladder.ladder(256, device="replay:./own.json.gz")


def test_times_of_a_gpu_that_is_here_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [targets.measures(device) for device in ("gpu", "gpu:1", DEVICE, "h100")] == [
        *(True, True, False, False)
    ]
    monkeypatch.setattr(devices, "probe", lambda _=0: find("h100"))
    assert targets.measures("h100")


def test_missing_gpu_has_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(index: int) -> Device:
        if index:
            raise DeviceError("no GPU 1; the driver shows 1, numbered from 0")
        return H100

    monkeypatch.setattr(devices, "probe", probe)
    with pytest.raises(DeviceError, match="T4 is not in this machine"):
        devices.index_of(find("t4"))


def test_several_gpus_are_numbers_or_words() -> None:
    assert devices.numbered("cuda:0,cuda:1") == devices.numbered(["gpu:0", 1]) == [0, 1]
    with pytest.raises(UsageError, match="GPUs are '0,cuda:0', one of them twice"):
        devices.numbered("0,cuda:0")


# Progress


def test_tune_shows_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune(*SIZES, device=DEVICE, trials=3)
    shown = capsys.readouterr()
    assert "25 configurations" in shown.err
    assert "after 3 trials" in shown.err
    assert shown.out == ""


def test_range_shows_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune("63..64x64x64", device="h100", trials=1)
    assert "tuning 64x64x64:f32:nn" in capsys.readouterr().err


def test_progress_can_be_silenced(capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune(*SIZES, device=DEVICE, trials=3, progress=False)
    autotune.tune("63..64x64x64", device="h100", trials=1, progress=False)
    assert capsys.readouterr().err == ""


def test_own_observer_replaces_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune(*SIZES, device=DEVICE, trials=3, progress=Observer())
    assert capsys.readouterr().err == ""
