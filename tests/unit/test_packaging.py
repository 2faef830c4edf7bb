"""The content of the wheel and of the sdist."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from autotune.runtime.native.build import library_name
from autotune.version import __version__

NAME = f"tile_autotune-{__version__}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built("wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tarfile.TarFile]:
    with tarfile.open(built("sdist", tmp_path_factory.mktemp("sdist"))) as archive:
        yield archive


def built(target: str, directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = directory.iterdir()
    return archive


def files(directory: str, pattern: str) -> set[str]:
    """Files of the checkout below a directory, relative to it."""
    paths = (ROOT / directory).rglob(pattern)
    return {str(path.relative_to(ROOT / directory)) for path in paths}


@pytest.mark.parametrize("pattern", ["*.cu", "*.cuh"])
def test_wheel_carries_every_cuda_source(wheel: zipfile.ZipFile, pattern: str) -> None:
    wanted = {f"autotune/_cuda_src/{name}" for name in files("cuda_src", pattern)}
    assert wanted - set(wheel.namelist()) == set()


@pytest.mark.parametrize(
    "pattern",
    ["*.py", "*.json", "*.json.gz", "py.typed", "templates/*", "page.css", "page.js", "calls.c"],
)
def test_wheel_carries_the_package_and_its_data(wheel: zipfile.ZipFile, pattern: str) -> None:
    wanted = {f"autotune/{name}" for name in files("autotune", pattern)}
    assert wanted - set(wheel.namelist()) == set()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_wheel_carries_the_compiled_calls(wheel: zipfile.ZipFile) -> None:
    assert f"autotune/runtime/native/{library_name()}" in wheel.namelist()
    tag = wheel.read(f"{NAME}.dist-info/WHEEL").decode()
    assert "Tag: py3-none-linux_" in tag


def test_wheel_carries_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"autotune", f"{NAME}.dist-info"}


def test_command_is_autotune(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert "autotune = autotune.__main__:main" in text


def test_wheel_needs_no_framework_and_no_pycuda(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    needed = [line for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needed if "torch" in line or "cupy" in line] == []
    assert all("extra == 'gpu'" in line for line in needed if "pycuda" in line)


def test_wheel_needs_packages_of_nvidia_on_linux_alone(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: (?:cuda|nvidia)-\S+( .*)?$", text, re.MULTILINE)
    assert [marker for marker in needed if "extra ==" not in marker] == [
        " sys_platform == 'linux'"
    ] * 3


def test_macos_builds_no_compiled_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = object.__new__(runpy.run_path(str(ROOT / "hatch_build.py"))["BuildHook"])
    monkeypatch.setattr(sys, "platform", "darwin")
    data: dict[str, Any] = {}
    hook._add_compiled_calls(False, data)
    assert data == {}


OPTIONAL = {"IPython", "cupy", "grpc", "pytest", "torch", "typing_extensions"}
"""Modules of the caller, which the package imports only where they are there."""
DISTRIBUTIONS = {"cuda": "cuda-bindings", "pynvml": "nvidia-ml-py"}


def test_wheel_declares_what_the_package_imports(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    declared = set(re.findall(r"^Requires-Dist: ([\w-]+)", text, re.MULTILINE))
    nodes = [
        node
        for path in (ROOT / "autotune").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    needed = {DISTRIBUTIONS.get(top, top) for top in tops - OPTIONAL - {"", "autotune"}}
    assert needed - declared == set()


@pytest.mark.parametrize(
    "name",
    [
        "cuda_src/simt.cu",
        "tests/unit/test_packaging.py",
        "Makefile",
        "hatch_build.py",
        "scripts/fit/programs.py",
        "LICENSE",
        "README.md",
    ],
)
def test_sdist_carries_what_builds_and_tests_it(sdist: tarfile.TarFile, name: str) -> None:
    assert f"{NAME}/{name}" in sdist.getnames()
