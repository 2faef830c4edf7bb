"""The content of the wheel and of the sdist, and the files that say what a release is."""

from __future__ import annotations

import ast
import json
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
from autotune.version import RELEASE, __version__


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


def written(wheel: zipfile.ZipFile, name: str) -> str:
    """A file of the wheel's metadata."""
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


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
    ["*.py", "*.json", "*.json.gz", "py.typed", "templates/*", "*.css", "*.js", "*.html", "*.c"],
)
def test_wheel_carries_the_package_and_its_data(wheel: zipfile.ZipFile, pattern: str) -> None:
    wanted = {f"autotune/{name}" for name in files("autotune", pattern)}
    assert wanted - set(wheel.namelist()) == set()


def test_wheel_carries_the_glossary(wheel: zipfile.ZipFile) -> None:
    shipped = wheel.read("autotune/report/pages/glossary.md")
    assert shipped == (ROOT / "docs/glossary.md").read_bytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_wheel_carries_the_compiled_calls(wheel: zipfile.ZipFile) -> None:
    assert f"autotune/runtime/native/{library_name()}" in wheel.namelist()
    tag = written(wheel, "WHEEL")
    assert "Tag: py3-none-linux_" in tag


def test_wheel_carries_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    (rest,) = tops - {"autotune"}
    assert re.fullmatch(rf"tile_autotune-{RELEASE}(\+.*)?\.dist-info", rest)


def test_command_is_autotune(wheel: zipfile.ZipFile) -> None:
    assert "autotune = autotune.__main__:main" in written(wheel, "entry_points.txt")


def test_wheel_needs_no_framework_and_no_pycuda(wheel: zipfile.ZipFile) -> None:
    text = written(wheel, "METADATA")
    needed = [line for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needed if "torch" in line or "cupy" in line] == []
    assert all("extra == 'gpu'" in line for line in needed if "pycuda" in line)


def test_wheel_needs_packages_of_nvidia_on_linux_alone(wheel: zipfile.ZipFile) -> None:
    text = written(wheel, "METADATA")
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
    text = written(wheel, "METADATA")
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
        ".github/workflows/check.yml",
        "CITATION.cff",
        "Makefile",
        "SECURITY.md",
        "hatch_build.py",
        "scripts/fit/programs.py",
        "LICENSE",
        "README.md",
    ],
)
def test_sdist_carries_what_builds_and_tests_it(sdist: tarfile.TarFile, name: str) -> None:
    assert name in {path.partition("/")[2] for path in sdist.getnames()}


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("pyproject.toml", r'^fallback-version = "(.*)"$'),
        ("CITATION.cff", r"^version: (.*)$"),
        ("CHANGELOG.md", r"^## (\S+) - \d{4}-\d\d-\d\d$"),
        ("conda/recipe.yaml", r'^  version: "(.*)"$'),
    ],
)
def test_files_name_the_same_release(name: str, pattern: str) -> None:
    found = re.search(pattern, text_of(name), re.MULTILINE)
    assert found
    assert found[1] == RELEASE


def test_installed_version_is_of_the_release() -> None:
    assert re.fullmatch(rf"{re.escape(RELEASE)}(rc\d+)?(\+.*)?", __version__)


def test_tree_that_is_not_installed_has_the_release() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]; import autotune; print(autotune.__version__)"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
    assert subprocess.check_output(command, text=True).strip() == RELEASE


def test_release_has_at_most_60_lines_of_changes() -> None:
    releases = re.split(r"(?m)^(?=## )", text_of("CHANGELOG.md"))[1:]
    assert releases
    assert [each.split()[1] for each in releases if len(each.splitlines()) > 60] == []


def test_workflow_checks_every_supported_python() -> None:
    classified = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", text_of("pyproject.toml")
    )
    (matrix,) = re.findall(r"^ +python: (\[.*\])$", text_of(".github/workflows/check.yml"), re.M)
    assert json.loads(matrix) == classified


def test_actions_are_pinned_to_commits() -> None:
    workflows = [path.read_text("utf-8") for path in (ROOT / ".github/workflows").iterdir()]
    uses = re.findall(r"^.*\buses: (?!\./)(.*)$", "\n".join(workflows), re.M)
    assert uses
    assert [each for each in uses if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", each)] == []


CONDA = {"nvidia-cuda-nvrtc": "cuda-nvrtc"}
"""Packages that conda-forge names otherwise."""


def test_conda_recipe_needs_what_the_wheel_needs(wheel: zipfile.ZipFile) -> None:
    lines = re.findall(r"^Requires-Dist: ([\w-]+)([^;\n]*)(.*)$", written(wheel, "METADATA"), re.M)
    needed = {
        CONDA.get(name, name): {*limits.split(",")}
        for name, limits, when in lines
        if "extra" not in when
    }
    run = text_of("conda/recipe.yaml").partition("\n  run:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    - (\S+) (.*)$", run, re.M)
    assert needed == {name: {*limits.split(",")} for name, limits in entries if name != "python"}
