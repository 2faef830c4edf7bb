"""The build of a wheel: kernels are compiled if asked for, and left out without a compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from hatch_build import PORTFOLIO, BuildHook


class App:
    """Keeps the warnings of a build."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def built(version: str = "standard") -> tuple[dict[str, str], list[str]]:
    """Files that a build adds, by their place in the wheel, and its warnings."""
    app = App()
    data: dict[str, Any] = {"force_include": {}}
    hook: Any = BuildHook
    made = hook(str(ROOT), {}, None, None, str(ROOT), "wheel", app)
    made.initialize(version, data)
    made.finalize(version, data, "")
    return {place: Path(path).name for path, place in data["force_include"].items()}, app.warnings


@pytest.fixture(autouse=True)
def compilers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that compiled a portfolio; each writes an archive for its architectures."""
    commands: list[list[str]] = []

    def run(command: list[str], **__: object) -> None:
        commands.append(command)
        folder, first = command[-2:]
        if first == "sm_1":
            raise subprocess.CalledProcessError(1, command)
        (Path(folder) / f"{first}.programs").write_bytes(b"{}\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("AUTOTUNE_NATIVE", "0")
    return commands


def test_portfolio_is_compiled_for_the_named_architectures(
    compilers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORTFOLIO, "sm_90")
    added, warnings = built()
    assert added == {"autotune/data/programs/sm_90.programs": "sm_90.programs"}
    assert warnings == []
    ((_, script, *_),) = compilers
    assert (ROOT / script).is_file()


def test_compiling_finds_what_an_isolated_build_has_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def run(_: list[str], *, env: dict[str, str], **__: object) -> None:
        seen.append(env["PYTHONPATH"])

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv(PORTFOLIO, "sm_90")
    monkeypatch.setenv("PYTHONPATH", "/isolated")
    built()
    assert seen == [f"{ROOT}{os.pathsep}/isolated"]


def test_wheel_without_a_compiler_has_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTFOLIO, "sm_1")
    added, (warning,) = built()
    assert added == {}
    assert "the wheel has no compiled kernels" in warning


@pytest.mark.parametrize(("version", "archs"), [("editable", "sm_90"), ("standard", "")])
def test_nothing_is_compiled_unasked_or_for_an_editable_install(
    version: str, archs: str, compilers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORTFOLIO, archs)
    assert built(version) == ({}, [])
    assert compilers == []
