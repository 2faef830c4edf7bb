"""The runners of a problem: when they start, that their models agree, that all are closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from support.fake_runner import ORIGIN, FakeRunner
from support.sample_records import entry, record

from autotune import settings
from autotune.device import Device, find
from autotune.errors import (
    AutotuneError,
    DeviceError,
    MissingError,
    ProblemError,
    UsageError,
)
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.source_text import hash_of
from autotune.measure import devices, gpu_runner, targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.targets import Target, TargetOpener
from autotune.problem import Problem
from autotune.records import Record
from autotune.records.merging import merge, stale

PROBLEM = Problem(64, 64, 64)


class Gpu(FakeRunner):
    """A runner that logs when it starts, is waited for and closes."""

    driver = "13.0"

    def __init__(self, index: int, library: bool, device: Device, log: list[str]) -> None:
        super().__init__(device=device)
        self.library = library
        self._index, self._log = index, log
        log.append(f"start {index}")

    @property
    def device(self) -> Device:
        self._log.append(f"wait {self._index}")
        return super().device

    def close(self) -> None:
        self._log.append(f"close {self._index}")


@pytest.fixture
def log() -> list[str]:
    return []


Install = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Install:
    def install(*models: Device) -> None:
        def open_runner(_: Problem, index: int, *, with_baseline: bool, quick: bool) -> Gpu:
            if quick:
                log.append(f"{index} quick")
            if index >= len(models):
                raise DeviceError(f"no GPU {index}; the driver shows {len(models)}")
            return Gpu(index, with_baseline, models[index], log)

        monkeypatch.setattr(gpu_runner, "open_runner", open_runner)
        monkeypatch.setattr(devices, "count", lambda: len(models))
        monkeypatch.setattr(devices, "probe", lambda index: models[index])

    return install


@contextmanager
def starting(
    problem: Problem, device: DeviceLike = DEFAULT, **options: Any
) -> Iterator[Callable[[], Target]]:
    with TargetOpener(device, **options) as opener, opener.starting(problem) as target:
        yield target


H100 = find("h100")


def test_runner_starts_before_it_is_waited_for(installed: Install, log: list[str]) -> None:
    installed(H100)
    with starting(PROBLEM) as target:
        assert log == ["start 0"]
        assert target().runner.device == H100
    assert log[-1] == "close 0"


def test_origin_has_the_driver_of_the_runner(installed: Install) -> None:
    installed(H100)
    with targets.opened(PROBLEM, "gpu:0") as target:
        assert target.origin.driver == "13.0"


def test_quick_reaches_the_runner(installed: Install, log: list[str]) -> None:
    installed(H100)
    for device in ("gpu", "h100"):
        with starting(PROBLEM, device, quick=True) as target:
            target()
    assert log.count("0 quick") == 2


@pytest.mark.parametrize("numbers", ["all", "0,1,2", (0, 1, 2), " 0, 1 ,2"])
def test_several_gpus_share_the_work(
    numbers: str | Sequence[int], installed: Install, log: list[str]
) -> None:
    installed(H100, H100, H100)
    with starting(PROBLEM, numbers=numbers) as target:
        assert log == ["start 0", "start 1", "start 2"]
        assert len(target().further) == 2
    assert log[-3:] == ["close 2", "close 1", "close 0"]


def test_only_the_first_runner_loads_the_vendor_library(installed: Install) -> None:
    installed(H100, H100)
    with starting(PROBLEM, numbers="1,0") as target:
        opened = target()
        first, (second,) = opened.runner, opened.further
        assert isinstance(first, Gpu)
        assert isinstance(second, Gpu)
        assert (first.library, second.library) == (True, False)


def test_gpus_of_two_models_are_refused_and_closed(installed: Install, log: list[str]) -> None:
    installed(H100, find("t4"))
    with (
        pytest.raises(
            DeviceError, match=r"GPU 0 is NVIDIA H100.*, GPU 1 is .*T4; give GPUs of one"
        ),
        starting(PROBLEM, numbers="all") as target,
    ):
        target()
    assert log[-2:] == ["close 1", "close 0"]


def test_missing_gpu_closes_the_others(installed: Install, log: list[str]) -> None:
    installed(H100)
    with (
        pytest.raises(DeviceError, match="no GPU 1"),
        starting(PROBLEM, numbers=[0, 1]),
    ):
        raise AssertionError("opened")
    assert log == ["start 0", "close 0"]


def test_too_large_a_problem_closes_the_runner(installed: Install, log: list[str]) -> None:
    installed(replace(H100, memory_bytes=2**20))
    with (
        pytest.raises(ProblemError, match="give a smaller shape"),
        targets.opened(Problem(4096, 4096, 4096)),
    ):
        raise AssertionError("opened")
    assert log[-1] == "close 0"


def test_missing_pycuda_is_reported_with_a_gpu(
    installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(H100)

    def missing(*_: object, **__: object) -> None:
        raise MissingError("no PyCUDA; install it")

    monkeypatch.setattr(gpu_runner, "open_runner", missing)
    with pytest.raises(MissingError, match=r"no PyCUDA; install it$"), targets.opened(PROBLEM):
        raise AssertionError("opened")


@pytest.mark.parametrize("numbers", ["", "0,,1", "0,x", "-1", (), (-1,), (0, 0), "1,01"])
def test_invalid_numbers_are_refused(numbers: str | Sequence[int]) -> None:
    with pytest.raises(UsageError, match="GPUs are"), starting(PROBLEM, numbers=numbers):
        raise AssertionError("opened")


def test_numbers_and_a_device_exclude_each_other() -> None:
    with (
        pytest.raises(UsageError, match="give one of both"),
        starting(PROBLEM, "h100", numbers="0"),
    ):
        raise AssertionError("opened")


# The kernel sources of records


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The CUDA sources, to be changed."""
    copy = copytree(settings.source_dir(), tmp_path / "cuda_src")
    monkeypatch.setattr(settings, "source_dir", lambda: copy)
    return copy


def made_today(family: str) -> Record:
    """A record of one family, with the sources that this machine has."""
    best = replace(entry(16, 900.0), config=Config.of(family, {"width": 16}))
    return merge(None, record(best, source=targets.here().source))


KERNELS = [name for name, family in registry.FAMILIES.items() if family.sources]
"""The families of the package's own kernels."""

CHANGES = {
    "include/hopper/finish.cuh": {"wgmma"},
    "include/mma/column.cuh": {"mma"},
    "naive.cu": {"naive"},
    "pack.cu": {"simt", "mma", "wgmma"},
    "ladder/07_warps.cu": {"ladder"},
    "include/common/dependent_launch.cuh": {*KERNELS} - {"ladder"},
    "verify.cu": set[str](),
}


@pytest.mark.parametrize("file", CHANGES)
def test_changed_file_stales_the_families_that_compile_it(sources: Path, file: str) -> None:
    records = {name: made_today(name) for name in KERNELS}
    today = targets.here()
    assert {name for name, made in records.items() if stale(made, today)} == set()
    with (sources / file).open("a") as text:
        text.write("// changed\n")
    today = targets.here()
    assert {name for name, made in records.items() if stale(made, today)} == CHANGES[file]


def test_record_of_one_family_has_the_hash_of_its_files() -> None:
    source = targets.here().source
    assert made_today("mma").provenance.source == hash_of(source, "mma")
    hashes = [hash_of(source, name) for name in KERNELS]
    assert {len(digest) for digest in hashes} == {64}
    assert len({*hashes}) == len(hashes)


@pytest.mark.parametrize(("version", "why"), [("13.0.0", None), ("13.1.0", "13.0.0, now 13.1.0")])
def test_another_cublaslt_stales_the_records_that_it_won(
    monkeypatch: pytest.MonkeyPatch, version: str, why: str | None
) -> None:
    monkeypatch.setattr("autotune.cuda.cublaslt.version", lambda: "13.0.0")
    made = made_today("cublaslt")
    assert made.library_version == "13.0.0"
    monkeypatch.setattr("autotune.cuda.cublaslt.version", lambda: version)
    said = stale(made, targets.here())
    assert said is None if why is None else f"cuBLASLt {why}" in str(said)


def test_missing_cublaslt_has_no_version_and_stales_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotune.cuda.cublaslt.version", lambda: "13.0.0")
    made = made_today("cublaslt")
    monkeypatch.setattr("autotune.cuda.cublaslt.version", lambda: "")
    assert hash_of(targets.here().source, "cublaslt") == ""
    assert stale(made, targets.here()) is None


def test_known_sources_are_not_read_again(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, scanned, scandir = targets.here().source, list[str](), os.scandir
    folders = [path for path in (sources, *sources.rglob("*")) if path.is_dir()]

    def counted(path: str | Path) -> object:
        if Path(path).is_relative_to(sources):
            scanned.append(str(path))
        return scandir(path)

    monkeypatch.setattr("autotune.cuda.program.files.read", None)
    monkeypatch.setattr(os, "scandir", counted)
    assert targets.here().source == source
    assert sorted(scanned) == sorted(map(str, folders))


SMALL, LARGE = Problem(8, 8, 8), Problem(8, 8, 16)


class SwitchingRunner(FakeRunner):
    """Switches problems and lists them."""

    def __init__(self) -> None:
        super().__init__()
        self.switched: list[Problem] = []

    def switch_to(self, problem: Problem) -> None:
        self.switched.append(problem)


class Machine:
    """Opens targets, and counts those that are open.

    Attributes:
        runner: makes a runner.
        opened: the targets, in order.
        closed: how many of them are closed again.
    """

    def __init__(self) -> None:
        self.runner: Callable[[], FakeRunner] = SwitchingRunner
        self.opened: list[Target] = []
        self.closed = 0

    def started(self, opener: TargetOpener, _: Problem) -> Callable[[], Target]:
        def close() -> None:
            self.closed += 1

        self.opened.append(Target(self.runner(), ORIGIN))
        opener._stack.callback(close)
        return lambda: self.opened[-1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(TargetOpener, "_started", lambda *arguments: machine.started(*arguments))
    return machine


def test_next_problem_reuses_the_processes(machine: Machine) -> None:
    with TargetOpener() as opener:
        first, second = (opener.target(problem) for problem in (SMALL, LARGE))
        assert first is second
        assert isinstance(first.runner, SwitchingRunner)
        assert first.runner.switched == [LARGE]
        assert machine.closed == 0
    assert (len(machine.opened), machine.closed) == (1, 1)


def test_runner_that_cannot_switch_is_closed(machine: Machine) -> None:
    machine.runner = FakeRunner
    with TargetOpener() as opener:
        first, second = (opener.target(problem) for problem in (SMALL, LARGE))
        assert first is not second
        assert machine.closed == 1
    assert machine.closed == 2


def test_all_gpus_switch_or_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = SwitchingRunner(), FakeRunner()
    with TargetOpener() as opener:
        opener.target(SMALL)
        monkeypatch.setattr(opener, "_target", Target(pair[0], ORIGIN, pair[1:]))
        opener.target(LARGE)
    assert pair[0].switched == []
    assert len(machine.opened) == 2


def test_error_closes_the_runners(machine: Machine) -> None:
    with TargetOpener() as opener:
        with pytest.raises(AutotuneError, match="no kernel"), opener.starting(SMALL):
            raise AutotuneError("no kernel works")
        assert machine.closed == 1
        opener.target(SMALL)
        assert len(machine.opened) == 2


def test_problem_that_does_not_fit_is_refused(machine: Machine) -> None:
    with TargetOpener() as opener:
        opener.target(SMALL)
        with pytest.raises(ProblemError, match="GiB"):
            opener.target(Problem(10**6, 10**6, 10**6))
    assert len(machine.opened) == 1
