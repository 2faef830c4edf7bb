"""Checks everything that the package depends on, and says what to install if it is missing."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from autotune import files, settings
from autotune.cuda import compiler, nvrtc
from autotune.cuda.program import CompileFailure
from autotune.errors import AutotuneError, CacheError, FrozenError, UsageError
from autotune.families.plan import Template
from autotune.report import surroundings
from autotune.report.driver_state import driver_version, gpus, session_library
from autotune.runners import recording
from autotune.runtime.native.compiled import library as native_library
from autotune.runtime.native.compiled import library_path

if TYPE_CHECKING:
    from rich.console import RenderableType

_INSTALL_NVRTC = "pip install 'tile-autotune[cu13]'"
_INSTALL_DRIVER = "install NVIDIA's driver, 580 or newer (nvidia.com/drivers)"
_INSTALL_CUDA_12 = "or pip install 'tile-autotune[cu12]'"
_EXAMPLE = "autotune tune 1024x1024x1024 --device replay:h100"
_WITHOUT_GPU = f"`{_EXAMPLE}` searches recorded times"
_INSTALL_PYCUDA = "pip install 'tile-autotune[gpu]' (PyCUDA; it builds against a CUDA toolkit)"
_REBUILD = "install a wheel of this platform, or build one where there is a C compiler"
_REINSTALL = "pip install --force-reinstall tile-autotune"

HARDWARE = {"driver", "GPU", "tuning session"}
"""Checks that count only on a machine with a GPU."""

_PROBE = "template <int N> __global__ void probe(float* x) { x[threadIdx.x] *= N; }\n"


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: what was checked.
        ok: whether it works; None if it is absent but not needed.
        detail: what was found, in a line.
        remedy: what to do about it; empty if nothing.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def checks() -> tuple[Check, ...]:
    """Runs all checks. Never raises: an error in a check is its result."""
    return tuple(_checked(name, check) for name, check in _CHECKS)


def broken(checks: Sequence[Check]) -> list[Check]:
    """The checks that fail and that this machine needs."""
    gpu = _has_gpu(checks)
    return [check for check in checks if check.ok is False and (gpu or check.name not in HARDWARE)]


def verdict(checks: Sequence[Check]) -> str:
    """The state of this machine, in one line that ends with a command to try."""
    if failed := broken(checks):
        names = ", ".join(check.name for check in failed)
        return f"{len(failed)} of {len(checks)} checks fail: {names}"
    if _has_gpu(checks):
        return "ready: `autotune tune 4096x4096x4096` measures here"
    return f"ready, without a GPU: {_WITHOUT_GPU}"


def render(checks: Sequence[Check]) -> RenderableType:
    """A row for each check, with its remedy below, then the verdict; grey what is not needed."""
    from rich.console import Group
    from rich.text import Text

    from autotune.report.tables import FittedTable

    failed = broken(checks)
    marks = {True: Text("ok", "green"), False: Text("fails", "red"), None: Text("-")}
    table = FittedTable(show_header=False)
    for _ in ("mark", "name", "detail"):
        table.add("", "prose", worth=math.inf)
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
    return Group(table, Text(verdict(checks), "red" if failed else "green"))


def _has_gpu(checks: Sequence[Check]) -> bool:
    return any(check.name == "GPU" and check.ok for check in checks)


_Result = tuple[bool | None, str, str]


def _checked(name: str, check: Callable[[], _Result]) -> Check:
    try:
        return Check(name, *check())
    except CacheError as error:
        return Check(name, False, str(error), surroundings.SET_CACHE)
    except UsageError as error:  # only variables of the environment are used
        return Check(name, False, str(error), surroundings.CORRECT)
    except Exception as error:
        return Check(name, False, f"{type(error).__name__}: {error}", "report this as a bug")


def _python() -> _Result:
    return True, f"{platform.python_version()} at {sys.executable}", ""


def _kernels() -> _Result:
    from autotune.cuda import cache

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
    return False, "not installed", mismatch or _INSTALL_NVRTC


def _compilation() -> _Result:
    with files.temporary_folder() as scratch:
        (scratch / "probe.cu").write_text(_PROBE)
        try:
            arch = gpus()[0][1]
        except (ImportError, RuntimeError):
            arch = "sm_80"
        start = time.perf_counter()
        try:
            result = compiler.compile(
                Template("probe.cu", "probe", (("N", 2),)), arch, cache=None, sources=scratch
            )
        except FrozenError:
            return None, "not tried: the mode is frozen", ""
        except AutotuneError as error:
            return False, str(error), _INSTALL_NVRTC
    if isinstance(result, CompileFailure):
        remedy = nvrtc.mismatch() or f"{_INSTALL_NVRTC} --upgrade"
        return False, f"{arch}: {result.reason}", remedy
    return True, f"a kernel for {arch} in {time.perf_counter() - start:.2f} s", ""


def _driver() -> _Result:
    try:
        version = driver_version()
    except ImportError as error:
        return False, f"cannot be asked: {error}", _INSTALL_NVRTC
    except RuntimeError as error:
        return False, str(error), _INSTALL_DRIVER
    name = f"CUDA {version // 1000}.{version % 1000 // 10}"
    major = (nvrtc.version() or "NVRTC 13").split()[1].partition(".")[0]
    if version < 1000 * int(major):
        remedy = f"{_INSTALL_DRIVER}, {_INSTALL_CUDA_12}"
        return False, f"{name}, which is too old for CUDA {major} kernels", remedy
    return True, name, ""


def _gpu() -> _Result:
    try:
        present = gpus()
    except (ImportError, RuntimeError):
        return False, "none that the driver can start", _WITHOUT_GPU
    return True, ", ".join(f"{name} ({arch})" for name, arch in present), ""


def _session() -> _Result:
    try:
        name, reason = session_library()
    except AutotuneError as error:
        return False, str(error), "unset AUTOTUNE_SESSION"
    if name is None:
        return False, reason, _INSTALL_PYCUDA if "PyCUDA" in reason else _INSTALL_NVRTC
    return True, f"{name}; {reason}" if reason else name, ""


def _baseline() -> _Result:
    libraries = [
        title for title, name in (("PyTorch", "torch"), ("CuPy", "cupy")) if find_spec(name)
    ]
    if libraries:
        return True, " and ".join(libraries), ""
    return None, "neither PyTorch nor CuPy; times are not compared with cuBLAS", "pip install torch"


def _optuna() -> _Result:
    return _dependency("optuna")


def _scipy() -> _Result:
    return _dependency("scipy")


def _dependency(package: str) -> _Result:
    try:
        return True, metadata.version(package), ""
    except metadata.PackageNotFoundError:
        return False, "not installed", f"pip install {package}"


def _compiled_calls() -> _Result:
    if not settings.native():
        return None, "switched off by AUTOTUNE_NATIVE=0; warm calls run in Python", ""
    if native_library() is None:
        return None, "not in this installation; warm calls of PyTorch run in Python", _REBUILD
    return True, str(library_path()), ""


def _report() -> _Result:
    return _extra("plotly", "report", "`autotune report` writes no pages")


def _energy() -> _Result:
    return _extra("nvidia-ml-py", "energy", "`--objective energy` does not run")


def _extra(package: str, extra: str, without: str) -> _Result:
    try:
        return True, f"{package} {metadata.version(package)}", ""
    except metadata.PackageNotFoundError:
        return None, f"no {package}; {without}", f"pip install 'tile-autotune[{extra}]'"


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


_CHECKS: tuple[tuple[str, Callable[[], _Result]], ...] = (
    ("Python", _python),
    ("CUDA sources", _sources),
    ("NVRTC", _nvrtc),
    ("compilation", _compilation),
    ("compiled kernels", _kernels),
    ("driver", _driver),
    ("GPU", _gpu),
    ("tuning session", _session),
    ("cuBLAS baseline", _baseline),
    ("Optuna", _optuna),
    ("SciPy", _scipy),
    ("report extra", _report),
    ("energy extra", _energy),
    ("compiled calls", _compiled_calls),
    ("cache", surroundings.cache),
    ("temporary files", surroundings.temporary_files),
    ("environment", surroundings.environment),
    ("recordings", _recordings),
)
