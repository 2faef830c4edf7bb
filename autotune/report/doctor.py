"""Checks everything that the package depends on, and says what to install if it is missing."""

from __future__ import annotations

import math
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec

from rich.console import Group, RenderableType
from rich.text import Text

from autotune import files, settings
from autotune.cuda import bindings, cache, compiler, cublaslt, nvcc, nvrtc
from autotune.cuda.program import CompileFailure
from autotune.device import Device
from autotune.errors import (
    AutotuneError,
    CacheError,
    DeviceError,
    FrozenError,
    MissingError,
    UsageError,
)
from autotune.families.plan import Template
from autotune.measure import devices, recording
from autotune.report.tables import FittedTable
from autotune.runtime.native.calls import library as native_library
from autotune.runtime.native.calls import library_path

_INSTALL_DRIVER = "install NVIDIA's driver, 580 or newer (nvidia.com/drivers)"
_INSTALL_CUDA_12 = "or pip install 'tile-autotune[cu12]'"
_EXAMPLE = "autotune tune 1024x1024x1024 --device replay:h100"
_WITHOUT_GPU = f"`{_EXAMPLE}` searches recorded times"
_INSTALL_PYCUDA = "pip install 'tile-autotune[gpu]' (PyCUDA; it builds against a CUDA toolkit)"
_REBUILD = "install a wheel of this platform, or build it on a machine with a C compiler"
_REINSTALL = "pip install --force-reinstall tile-autotune"

SET_CACHE = "set AUTOTUNE_CACHE_DIR to a directory that you can write to"
CORRECT = "correct the variable or unset it; docs/environment.md lists all"

HARDWARE = {"driver", "GPU", "tuning session"}
"""Checks that count only on a machine with a GPU."""
if sys.platform != "linux":  # NVIDIA has no compiler for it
    HARDWARE |= {"NVRTC", "compilation"}

_PROBE = "template <int N> __global__ void probe(float* x) { x[threadIdx.x] *= N; }\n"


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: name of the check.
        ok: whether it works; None if it is absent but not needed.
        detail: finding, in a line.
        remedy: remedy; empty if none is needed.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def checks() -> tuple[Check, ...]:
    """Runs all checks, one for each environment variable. Never raises: an error in a check is its
    result."""
    results = [_checked(name, check) for name, check in _CHECKS.items()]
    results += [_checked(name, partial(_variable, name)) for name in settings.VARIABLES]
    results += [Check("variables", False, line, CORRECT) for line in settings.misspelt()]
    return tuple(results)


def broken(checks: Sequence[Check]) -> list[Check]:
    """The checks that fail and that this machine needs."""
    gpu = _has_gpu(checks)
    return [check for check in checks if check.ok is False and (gpu or check.name not in HARDWARE)]


def summary(checks: Sequence[Check]) -> str:
    """The state of this machine, in one line that ends with a command to try."""
    if failed := broken(checks):
        names = ", ".join(check.name for check in failed)
        return f"{len(failed)} of {len(checks)} checks fail: {names}"
    if _has_gpu(checks):
        return "ready: `autotune tune 4096x4096x4096` measures here"
    return f"ready, without a GPU: {_WITHOUT_GPU}"


def render(checks: Sequence[Check]) -> RenderableType:
    """A row for each check, with its remedy below, then the summary; grey what is not needed."""
    failed = broken(checks)
    marks = {True: Text("ok", "green"), False: Text("fails", "red"), None: Text("-")}
    table = FittedTable(show_header=False)
    table.add("", "", "", kind="prose", worth=math.inf)
    for check in checks:
        needed = check.ok or check in failed
        detail = Text(check.detail)
        if check.remedy:
            detail.append(f"\n{check.remedy}", "yellow" if needed else "")
        table.add_row(
            marks[check.ok if needed else None],
            Text(check.name),
            detail,
            style=None if needed else "dim",
        )
    return Group(table, Text(summary(checks), "red" if failed else "green"))


def pycuda_fault() -> str | None:
    """Why PyCUDA cannot be used; None if it can."""
    if find_spec("pycuda") is None:
        return "PyCUDA is not installed"
    # In a separate process: a broken build may take its importer down.
    command = [sys.executable, "-c", "import pycuda.driver"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"PyCUDA does not import: {lines[-1]}"


def _has_gpu(checks: Sequence[Check]) -> bool:
    return any(check.name == "GPU" and check.ok for check in checks)


_Result = tuple[bool | None, str, str]


def _checked(name: str, check: Callable[[], _Result]) -> Check:
    try:
        return Check(name, *check())
    except CacheError as error:
        return Check(name, False, str(error), SET_CACHE)
    except UsageError as error:  # only variables of the environment are used
        return Check(name, False, str(error), CORRECT)
    except Exception as error:
        return Check(name, False, f"{type(error).__name__}: {error}", "report this as a bug")


def _kernels() -> _Result:
    archives = sorted(settings.programs_dir().glob(f"*{cache.SUFFIX}"))
    counts = ((path.stem, cache.installed_count(path.stem)) for path in archives)
    listed = ", ".join(f"{count} programs for {arch}" for arch, count in counts)
    return True, listed or "none: the first product of a shape compiles its kernel", ""


def _sources() -> _Result:
    try:
        return True, str(settings.source_dir()), ""
    except AutotuneError as error:
        return False, str(error), _REINSTALL


def _nvrtc() -> _Result:
    mismatch = nvrtc.mismatch()
    if version := nvrtc.version():
        return True, version, mismatch or ""
    if wanted := settings.nvrtc():
        extra = f"pip install 'tile-autotune[cu{wanted}]', or unset AUTOTUNE_NVRTC"
        return False, f"not installed in version {wanted}, for which AUTOTUNE_NVRTC asks", extra
    return False, "not installed", mismatch or bindings.INSTALL


def _nvcc() -> _Result:
    if version := nvcc.version():
        return True, f"{version} at {nvcc.path()}", ""
    return None, "none; user kernels with host code in their file do not compile", nvcc.REMEDY


def _headers() -> _Result:
    """CUDA's own headers, which user kernels may include; one of each wheel."""
    folders = nvrtc.cuda_headers()
    lacking = [
        header
        for header in ("cuda_fp16.h", "crt/mma.h", "cub/cub.cuh")
        if not any((folder / header).is_file() for folder in folders)
    ]
    if not lacking:
        return True, ", ".join(map(str, folders)), ""
    remedy = "pip install 'tile-autotune[kernels]'"
    return None, f"no {', '.join(lacking)}; user kernels cannot include them through NVRTC", remedy


def _compilation() -> _Result:
    with files.temporary_folder() as scratch:
        (scratch / "probe.cu").write_text(_PROBE)
        arch = next((gpu.arch for gpu in _gpus()), "sm_80")
        start = time.perf_counter()
        try:
            result = compiler.compile(
                Template("probe.cu", "probe", (("N", 2),)), arch, cache=None, sources=scratch
            )
        except FrozenError:
            return None, "not tried: the mode is frozen", ""
        except AutotuneError as error:
            return False, str(error), bindings.INSTALL
    if isinstance(result, CompileFailure):
        remedy = nvrtc.mismatch() or "run `pip install --upgrade 'tile-autotune[cu13]'`"
        return False, f"{arch}: {result.reason}", remedy
    return True, f"a kernel for {arch} in {time.perf_counter() - start:.2f} s", ""


def _driver() -> _Result:
    if not (version := devices.driver_version()):
        try:
            bindings.initialised()
        except MissingError as error:
            missing, _, remedy = str(error).rpartition("; ")
            return False, missing, remedy
        return False, "it states no version", _INSTALL_DRIVER
    major = (nvrtc.version() or "NVRTC 13").split()[1].partition(".")[0]
    if float(version) < int(major):
        remedy = f"{_INSTALL_DRIVER}, {_INSTALL_CUDA_12}"
        return False, f"CUDA {version}, which is too old for CUDA {major} kernels", remedy
    return True, f"CUDA {version}", ""


def _gpu() -> _Result:
    if not (present := _gpus()):
        return False, "none that the driver can start", _WITHOUT_GPU
    return True, ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in present), ""


def _gpus() -> list[Device]:
    try:
        return [devices.probe(number) for number in range(devices.count())]
    except (MissingError, DeviceError):
        return []


def _session() -> _Result:
    """The library that tuning calls the driver through, and why it is not PyCUDA."""
    try:
        wanted = settings.session()
    except AutotuneError as error:
        return False, str(error), "unset AUTOTUNE_SESSION"
    fault = "AUTOTUNE_SESSION asks for it" if wanted == "bindings" else pycuda_fault()
    if not fault:
        return True, f"PyCUDA {metadata.version('pycuda')}", ""
    if wanted == "pycuda":
        return False, f"{fault}, and AUTOTUNE_SESSION asks for it", _INSTALL_PYCUDA
    try:
        return True, f"cuda.bindings {metadata.version('cuda-bindings')}; {fault}", ""
    except metadata.PackageNotFoundError:
        return False, "cuda.bindings is not installed", bindings.INSTALL


def _baseline() -> _Result:
    if find_spec("torch"):
        return True, "PyTorch", ""
    if version := cublaslt.version():
        return True, f"cuBLAS {version}; without PyTorch it computes plain products only", ""
    return None, "no cuBLAS; times are not compared with it", "pip install torch"


def _package(package: str, extra: str = "", without: str = "") -> _Result:
    """A dependency, or the package of an extra, `without` which something does not work."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        if not extra:
            return False, "not installed", f"pip install {package}"
        return None, f"no {package}; {without}", f"pip install 'tile-autotune[{extra}]'"
    return True, f"{package} {version}" if extra else version, ""


def _compiled_calls() -> _Result:
    if not settings.native():
        return None, "switched off by AUTOTUNE_NATIVE=0; warm calls run in Python", ""
    if native_library() is None:
        return None, "not in this installation; warm calls of PyTorch run in Python", _REBUILD
    return True, str(library_path()), ""


def _recordings() -> _Result:
    try:
        rows = {
            name: sum(len(recording.find(name, problem).rows) for problem in problems)
            for name, problems in recording.names().items()
        }
    except AutotuneError as error:
        return False, str(error), _REINSTALL
    if not rows:
        return None, "none shipped", ""
    return True, ", ".join(f"{name} ({count} configurations)" for name, count in rows.items()), ""


def _cache() -> _Result:
    directory = files.ensure(settings.cache_dir())
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise settings.unusable(directory, "write to", error) from error
    return True, f"{directory}, {shutil.disk_usage(directory).free / 1e9:.1f} GB free", ""


def _variable(name: str) -> _Result:
    if fault := settings.fault(name):
        return False, fault, CORRECT
    value = settings.value(name)
    return (None, "not set", "") if value is None else (True, value or "empty", "")


_CHECKS: Mapping[str, Callable[[], _Result]] = {
    "Python": lambda: (True, f"{platform.python_version()} at {sys.executable}", ""),
    "CUDA sources": _sources,
    "NVRTC": _nvrtc,
    "compilation": _compilation,
    "nvcc": _nvcc,
    "CUDA headers": _headers,
    "compiled kernels": _kernels,
    "driver": _driver,
    "GPU": _gpu,
    "tuning session": _session,
    "cuBLAS baseline": _baseline,
    "Optuna": partial(_package, "optuna"),
    "SciPy": partial(_package, "scipy"),
    "report extra": partial(_package, "plotly", "report", "`autotune report` writes no pages"),
    "energy extra": partial(
        _package, "nvidia-ml-py", "energy", "`--objective energy` does not run"
    ),
    "compiled calls": _compiled_calls,
    "cache": _cache,
    "temporary files": lambda: (True, str(files.temporary_dir()), ""),
    "recordings": _recordings,
}
