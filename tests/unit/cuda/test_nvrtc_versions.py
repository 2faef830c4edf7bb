"""The NVRTC that is loaded where the wheels of CUDA 12 and of CUDA 13 are both installed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.bindings
import pytest

from autotune import settings
from autotune.cuda import compiler, nvrtc
from autotune.errors import MissingError, UsageError
from autotune.report import doctor

FOLDERS = {12: "cuda_nvrtc/lib", 13: "cu13/lib"}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that are loaded, in order, out of wheels of both versions."""
    for major, folder in FOLDERS.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in (f"libnvrtc.so.{major}", f"libnvrtc-builtins.so.{major}.0"):
            (tmp_path / folder / name).touch()
    names: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path, _: names.append(Path(path).name))
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(nvrtc, "find_spec", lambda _: package)
    monkeypatch.delenv("AUTOTUNE_NVRTC", raising=False)
    nvrtc._load.cache_clear()
    return names


@pytest.mark.parametrize(("version", "major"), [("12.9.4", 12), ("13.0.0", 13)])
def test_nvrtc_is_that_of_the_bindings(
    version: str, major: int, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.bindings, "__version__", version)
    nvrtc._load(nvrtc._major())
    assert loaded == [f"libnvrtc-builtins.so.{major}.0", f"libnvrtc.so.{major}"]


@pytest.mark.parametrize("major", [12, 13])
def test_variable_chooses_the_nvrtc(
    major: int, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", f"{major}")
    nvrtc._load(nvrtc._major())
    assert loaded[-1] == f"libnvrtc.so.{major}"


def test_other_version_than_the_chosen_one_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cuda.bindings import nvrtc as bindings

    monkeypatch.setattr(bindings, "nvrtcVersion", lambda: (0, 13, 0))
    monkeypatch.setattr(nvrtc, "_load", lambda _: None)
    monkeypatch.setenv("AUTOTUNE_NVRTC", "12")
    assert nvrtc.version() is None
    ok, _, remedy = doctor._nvrtc()
    assert (ok, "tile-autotune[cu12]" in remedy) == (False, True)


def test_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", "11")
    with pytest.raises(UsageError, match="AUTOTUNE_NVRTC is 11; give 12 or 13"):
        settings.nvrtc()


@pytest.fixture
def only_the_wheel_of_13(
    loaded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A wheel of NVRTC 13 beside bindings of CUDA 12."""
    (tmp_path / FOLDERS[12] / "libnvrtc.so.12").unlink()
    monkeypatch.setattr(cuda.bindings, "__version__", "12.9.4")
    return loaded


WARNING = (
    "the installed wheel is NVRTC 13 and does not match cuda-bindings 12.9.4; run "
    "`pip install 'tile-autotune[cu12]'`"
)


@pytest.mark.usefixtures("only_the_wheel_of_13")
@pytest.mark.parametrize("version", ["NVRTC 12.9", None])
def test_doctor_names_a_wheel_that_does_not_match(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: version)
    _, detail, remedy = doctor._nvrtc()
    assert (version or "not installed") in detail
    assert remedy == WARNING


@pytest.mark.usefixtures("only_the_wheel_of_13")
def test_no_compiler_names_a_wheel_that_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: None)
    with pytest.raises(MissingError) as raised:
        compiler.compiler_version()
    assert str(raised.value).endswith(WARNING)


@pytest.mark.usefixtures("loaded")
def test_matching_wheel_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("12.9.4", "13.0.0"):
        monkeypatch.setattr(cuda.bindings, "__version__", version)
        assert nvrtc.mismatch() is None


@pytest.mark.usefixtures("only_the_wheel_of_13")
def test_chosen_nvrtc_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", "13")
    assert nvrtc.mismatch() is None


@pytest.mark.parametrize(("version", "known"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_option_against_the_cache_needs_the_version_with_one(
    version: tuple[int, int], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda.bindings import nvrtc as bindings

    monkeypatch.setattr(bindings, "nvrtcVersion", lambda: (0, *version))
    assert ("--no-cache" in nvrtc._options()) is known


SCRIPT = """
import sys
from pathlib import Path
from autotune.cuda import nvrtc
from autotune.families.plan import Template
template = Template("probe.cu", "probe", (("N", 1),))
cubin, log = nvrtc.build(template, "sm_90a", Path(sys.argv[1]), ())
print(cubin[:4] if cubin else log, nvrtc.version())
"""
PROBE = """
template <int N> __global__ void probe(int* x)
{
    asm volatile("wgmma.fence.sync.aligned;");
    x[threadIdx.x] = N;
}
"""


@pytest.mark.parametrize("major", [12, 13])
def test_either_nvrtc_compiles_for_hopper(major: int, tmp_path: Path) -> None:
    package = find_spec("nvidia")
    places: Any = package.submodule_search_locations if package else []
    if not any(Path(place, FOLDERS[major]).is_dir() for place in places):
        pytest.skip(f"no wheel of NVRTC {major}")
    (tmp_path / "probe.cu").write_text(PROBE)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "AUTOTUNE_NVRTC": f"{major}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.startswith(f"b'\\x7fELF' NVRTC {major}."), result.stdout + result.stderr
