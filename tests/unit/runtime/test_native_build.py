"""The library of warm calls: compiled when the package is built, and only then."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.native_library import built_library, library_in
from support.paths import ROOT

from autotune.runtime.native import build, calls

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def path(built: Path, tmp_path: Path) -> Iterator[Path]:
    """The library in a folder of its own, from which the process takes it."""
    with library_in(tmp_path):
        yield Path(shutil.copy(built, tmp_path))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", started)


@pytest.mark.usefixtures("path", "no_compiler")
def test_library_is_loaded_without_a_compiler() -> None:
    assert calls.library() is not None


@pytest.mark.usefixtures("no_compiler")
def test_nothing_is_compiled_where_there_is_no_library(tmp_path: Path) -> None:
    with library_in(tmp_path):
        assert calls.library() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("path")
def test_library_of_another_source_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "calls.c"
    source.write_bytes(build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", source)
    assert calls.library() is None


@pytest.mark.usefixtures("path")
def test_variable_switches_the_library_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NATIVE", "0")
    assert calls.library() is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"int autotune_table;"])
def test_file_that_is_no_library_leaves_python(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert calls.library() is None


def test_library_without_our_functions_leaves_python(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.c"
    other.write_text("int autotune_table(void) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, other], check=True)
    assert calls.library() is None


def test_compiler_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.raises(subprocess.CalledProcessError):
        build.build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_new_build_leaves_the_mapped_file_alone(tmp_path: Path) -> None:
    with built_library(tmp_path) as path, path.open("rb") as mapped:
        build.build(tmp_path)
        assert path.stat().st_ino != Path(f"/proc/self/fd/{mapped.fileno()}").stat().st_ino


def hooked(version: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The additions of a build's hook to a package in `folder`, and its warnings."""
    native = folder / "autotune/runtime/native"
    native.mkdir(parents=True)
    for name in ("build.py", "calls.c"):
        shutil.copy(build.SOURCE.with_name(name), native)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    warned: list[str] = []
    hook = object.__new__(module.BuildHook)
    vars(hook).update(
        _BuildHookInterface__root=str(folder),
        _BuildHookInterface__app=SimpleNamespace(display_warning=warned.append),
    )
    data: dict[str, Any] = {"force_include": {}, "pure_python": True}
    hook.initialize(version, data)
    hook.finalize(version, data, "")
    return data, warned


def test_wheel_with_the_library_is_for_every_python(tmp_path: Path) -> None:
    data, warned = hooked("standard", tmp_path)
    (target,) = data["force_include"].values()
    assert target == f"autotune/runtime/native/{build.library_name()}"
    assert (data["pure_python"], warned) == (False, [])
    assert data["tag"].startswith("py3-none-linux_")
    assert list(tmp_path.rglob("calls-*")) == []


def test_editable_install_has_the_library_in_place(tmp_path: Path) -> None:
    data, warned = hooked("editable", tmp_path)
    (path,) = tmp_path.rglob("calls-*")
    assert (path.name, path.parent.name) == (build.library_name(), "native")
    assert (data["force_include"], data["pure_python"], warned) == ({}, True, [])


@pytest.mark.parametrize("compiler", ["/bin/false", "/nowhere/cc"])
def test_wheel_without_a_compiler_is_pure_and_says_so(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    data, warned = hooked("standard", tmp_path)
    assert data == {"force_include": {}, "pure_python": True}
    (warning,) = warned
    assert "warm calls will run in Python" in warning


def test_build_can_leave_the_library_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NATIVE", "0")
    assert hooked("standard", tmp_path) == ({"force_include": {}, "pure_python": True}, [])
