"""The doctor: what works, what does not, and what to install."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console
from support.native_library import library_in

from autotune import settings
from autotune.cuda import nvcc, nvrtc
from autotune.errors import AutotuneError
from autotune.measure import recording
from autotune.problem import Problem
from autotune.report import doctor


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))


def check(name: str) -> doctor.Check:
    return doctor._checked(name, doctor._CHECKS[name])


def put(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)


@pytest.mark.parametrize(
    "name", ["Python", "CUDA sources", "NVRTC", "compilation", "Optuna", "SciPy", "cache"]
)
def test_checks_that_need_no_gpu_pass_here(name: str) -> None:
    assert check(name).ok is True


def test_every_failed_check_says_what_to_do() -> None:
    assert [result for result in doctor.checks() if result.ok is False and not result.remedy] == []


def test_no_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: None)
    result = check("NVRTC")
    assert result.ok is False
    assert result.remedy == "run `pip install 'tile-autotune[cu13]'`"


def test_no_compiler_at_all_fails_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: None)
    assert "tile-autotune[cu13]" in check("compilation").detail


def test_kernel_that_does_not_compile_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "build", lambda *_, **__: (None, "catastrophic error: internal", ""))
    result = check("compilation")
    assert result.ok is False
    assert "catastrophic error: internal" in result.detail


def test_nvcc_and_headers_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "version", lambda: None)
    monkeypatch.setattr(nvrtc, "cuda_headers", lambda: ())
    compiler, headers = check("nvcc"), check("CUDA headers")
    assert (compiler.ok, headers.ok) == (None, None)
    assert "host code" in compiler.detail
    assert compiler.remedy.startswith("install a CUDA toolkit")
    assert headers.detail.startswith("no cuda_fp16.h, crt/mma.h, cub/cub.cuh; ")
    assert headers.remedy == "pip install 'tile-autotune[kernels]'"


def test_headers_of_all_wheels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda_fp16.h", "crt/mma.h", "cccl/cub/cub.cuh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(nvrtc, "cuda_headers", lambda: (tmp_path, tmp_path / "cccl"))
    assert (check("CUDA headers").ok, check("CUDA headers").remedy) == (True, "")


def test_no_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    def absent(*_: object) -> None:
        raise RuntimeError("libcuda.so.1 not found")

    for function in ("cuDriverGetVersion", "cuInit"):
        monkeypatch.setattr(driver, function, absent)
    result = check("driver")
    assert (result.ok, result.detail) == (False, "no CUDA driver: libcuda.so.1 was not found")
    assert result.remedy == "install NVIDIA's driver (580 or newer)"


def test_old_driver_gives_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (0, 12_080))
    result = check("driver")
    assert result.ok is False
    assert result.detail.startswith("CUDA 12.8")


def test_driver_of_cuda_12_suffices_for_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (0, 12_080))
    assert "tile-autotune[cu12]" in check("driver").remedy
    monkeypatch.setattr(nvrtc, "version", lambda: "NVRTC 12.9")
    assert check("driver").ok is True


def test_no_gpu_points_to_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuInit", lambda _: (driver.CUresult.CUDA_ERROR_NO_DEVICE,))
    result = check("GPU")
    assert result.ok is False
    assert "--device replay:h100" in result.remedy


def test_no_cuda_bindings_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert check("driver").remedy == "run `pip install 'tile-autotune[cu13]'`"


def test_session_without_pycuda_goes_through_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    result = check("tuning session")
    version = metadata.version("cuda-bindings")
    assert (result.ok, result.detail) == (True, f"cuda.bindings {version}; PyCUDA is not installed")


def test_session_through_pycuda_names_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "pycuda_fault", lambda: None)
    monkeypatch.setattr(metadata, "version", {"pycuda": "2026.1"}.__getitem__)
    result = check("tuning session")
    assert (result.ok, result.detail) == (True, "PyCUDA 2026.1")


def test_chosen_bindings_are_said_to_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SESSION", "bindings")
    result = check("tuning session")
    assert (result.ok, "AUTOTUNE_SESSION asks for it" in result.detail) == (True, True)


def test_chosen_pycuda_that_is_absent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    monkeypatch.setenv("AUTOTUNE_SESSION", "pycuda")
    result = check("tuning session")
    assert result.ok is False
    assert "pip install 'tile-autotune[gpu]'" in result.remedy


def test_unknown_session_fails_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SESSION", "cupy")
    result = check("tuning session")
    assert (result.ok, "AUTOTUNE_SESSION is cupy" in result.detail) == (False, True)


def test_broken_pycuda_gives_the_last_line_of_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pycuda").mkdir()
    put(tmp_path / "pycuda", "__init__.py", "")
    put(tmp_path / "pycuda", "driver.py", "raise ImportError('libcuda.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert doctor.pycuda_fault() == "PyCUDA does not import: ImportError: libcuda.so.1: cannot open"


def test_full_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    result = check("cache")
    assert result.ok is False
    assert f"{settings.cache_dir()}: No space left on device" in result.detail


def test_cache_that_is_a_file_is_named() -> None:
    settings.cache_dir().touch()
    result = check("cache")
    assert (result.ok, "not a directory" in result.detail) == (False, True)


def test_broken_recording_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AutotuneError("64x64x64-f32-nn.json.gz: not a recording")

    monkeypatch.setattr(recording, "names", lambda: {"h100": (Problem(64, 64, 64),)})
    monkeypatch.setattr(recording, "find", broken)
    result = check("recordings")
    assert (result.ok, result.detail) == (False, "64x64x64-f32-nn.json.gz: not a recording")


def test_check_that_raises_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Path:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(settings, "source_dir", broken)
    result = check("CUDA sources")
    assert (result.ok, result.detail) == (False, "ZeroDivisionError: surprise")


def test_table_shows_the_remedy_with_its_brackets() -> None:
    console = Console(width=100)
    table = doctor.render(
        [doctor.Check("NVRTC", False, "gone", "pip install 'tile-autotune[cu13]'")]
    )
    with console.capture() as shown:
        console.print(table)
    assert "pip install 'tile-autotune[cu13]'" in shown.get()


def painted(*checks: doctor.Check) -> str:
    console = Console(width=100, force_terminal=True, _environ={})
    with console.capture() as shown:
        console.print(doctor.render(checks))
    return shown.get()


GPU = doctor.Check("GPU", True, "NVIDIA H100 (sm_90)")

NO_GPU = doctor.Check("GPU", False, "none", "use a recording")

NO_SESSION = doctor.Check("tuning session", False, "not installed", "install it")

RED = "\x1b[31m"


def test_narrow_terminal_cuts_nothing_off() -> None:
    console = Console(width=40)
    path = "/a/very/long/path/of/a/cache/that/does/not/fit"
    with console.capture() as shown:
        console.print(doctor.render([doctor.Check("cache", True, path)]), crop=False)
    assert path in shown.get()


def test_what_is_not_needed_is_grey() -> None:
    assert RED not in painted(NO_GPU, NO_SESSION)
    assert RED in painted(GPU, NO_SESSION)
    assert "\x1b[2m" in painted(NO_GPU)


@pytest.mark.parametrize(
    ("checks", "line"),
    [
        ((GPU,), "ready: `autotune tune 4096x4096x4096` measures here"),
        (
            (NO_GPU, NO_SESSION),
            "ready, without a GPU: `autotune tune 1024x1024x1024 --device replay:h100` searches "
            "recorded times",
        ),
        ((GPU, NO_SESSION), "1 of 2 checks fail: tuning session"),
    ],
)
def test_last_line_says_what_works(checks: tuple[doctor.Check, ...], line: str) -> None:
    assert doctor.summary(checks) == line
    assert line in " ".join(painted(*checks).split("\n")[-2:])


def test_example_of_the_summary_works_here() -> None:
    example = doctor.summary([NO_GPU]).split("`")[1].split()
    name = example[-1].removeprefix("replay:")
    assert example[:2] == ["autotune", "tune"]
    assert Problem.parse(example[2]) in recording.names()[name]


def test_compiled_calls_come_with_the_installation(tmp_path: Path) -> None:
    with library_in(tmp_path):
        result = check("compiled calls")
    assert (result.ok, "not in this installation" in result.detail) == (None, True)
    assert "install a wheel" in result.remedy


def test_compiled_calls_may_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NATIVE", "0")
    with library_in(Path()):
        result = check("compiled calls")
    assert (result.ok, result.detail.split(";")[0]) == (None, "switched off by AUTOTUNE_NATIVE=0")


@pytest.mark.parametrize(("name", "package"), [("report", "plotly"), ("energy", "nvidia-ml-py")])
def test_missing_extra_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(wanted: str) -> str:
        if wanted == package:
            raise metadata.PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    result = check(f"{name} extra")
    assert (result.ok, result.remedy) == (None, f"pip install 'tile-autotune[{name}]'")


def test_every_variable_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SITE_DIR", raising=False)
    monkeypatch.setenv("AUTOTUNE_NVRTC", "11")
    monkeypatch.setenv("AUTOTUNE_CACHEDIR", "/x")
    monkeypatch.setattr(doctor, "_CHECKS", {})
    rows = {row.name: row for row in doctor.checks()}
    assert [*rows] == [*settings.VARIABLES, "variables"]
    cache = os.environ["AUTOTUNE_CACHE_DIR"]
    assert rows["AUTOTUNE_CACHE_DIR"] == doctor.Check("AUTOTUNE_CACHE_DIR", True, cache)
    assert rows["AUTOTUNE_SITE_DIR"] == doctor.Check("AUTOTUNE_SITE_DIR", None, "not set")
    wrong = rows["AUTOTUNE_NVRTC"], rows["variables"]
    assert [row.detail for row in wrong] == [
        "AUTOTUNE_NVRTC is 11; give 12 or 13, or unset it",
        "AUTOTUNE_CACHEDIR is not a variable of autotune; did you mean AUTOTUNE_CACHE_DIR?",
    ]
    assert doctor.broken([*rows.values()]) == [*wrong]
