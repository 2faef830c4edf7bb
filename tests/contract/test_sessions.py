"""The contract of tuning sessions, on PyCUDA and on `cuda.bindings` with a fake GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import fake_gpu, fake_pycuda
from support.fake_gpu import FakeGpu
from support.fake_runner import program as made_program
from support.session_contract import SessionContract

from autotune.cuda.program import Program
from autotune.errors import MissingError, UsageError
from autotune.families.plan import Template
from autotune.measure.session import BindingsSession, PyCudaSession, Session, open_session


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = fake_gpu.install(FakeGpu(), monkeypatch)
    fake_pycuda.install(gpu, monkeypatch)
    return gpu


class OnFake(SessionContract):
    @pytest.fixture
    def program(self) -> Program:
        return replace(made_program(Template("put.cu", "put"), "sm_90"), symbol="put")


class TestPyCudaSession(OnFake):
    @pytest.fixture
    def opened(self) -> Callable[[int], Session]:
        return PyCudaSession


class TestBindingsSession(OnFake):
    @pytest.fixture
    def opened(self) -> Callable[[int], Session]:
        return BindingsSession

    def test_memory_may_outlive_the_session(self, gpu: FakeGpu) -> None:
        with BindingsSession(0) as session:
            memory = session.allocate(64)
        del memory
        assert (gpu.allocations, gpu.cuCtxGetCurrent()) == ({}, (0, 0))

    def test_nothing_is_left_behind(self, gpu: FakeGpu) -> None:
        with BindingsSession(0) as session:
            start, memory = session.mark(), session.allocate(64)
            start.synchronize()
            del start, memory
        assert (gpu.streams, gpu.events, gpu.allocations) == (set(), {}, {})


def test_pycuda_is_the_default() -> None:
    assert isinstance(open_session(), PyCudaSession)


@pytest.fixture
def no_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver")


@pytest.mark.usefixtures("no_pycuda")
def test_bindings_serve_without_pycuda() -> None:
    assert isinstance(open_session(), BindingsSession)


def test_bindings_serve_where_pycuda_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").touch()
    (tmp_path / "pycuda" / "driver.py").write_text("raise ImportError('libcurand.so.10')")
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(open_session(), BindingsSession)


@pytest.mark.parametrize(
    ("name", "kind"), [("pycuda", PyCudaSession), ("bindings", BindingsSession)]
)
def test_variable_chooses(name: str, kind: type[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SESSION", name)
    assert isinstance(open_session(), kind)


@pytest.mark.usefixtures("no_pycuda")
def test_chosen_pycuda_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SESSION", "pycuda")
    with pytest.raises(
        MissingError, match=r'no PyCUDA .* run `pip install "tile-autotune\[gpu\]"`, or unset'
    ):
        open_session()


def test_unknown_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SESSION", "cupy")
    with pytest.raises(UsageError, match="AUTOTUNE_SESSION is cupy; give pycuda or bindings"):
        open_session()
