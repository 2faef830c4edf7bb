"""Compilation by NVRTC through `cuda.core`: in this process, without a toolkit or a GPU."""

from __future__ import annotations

import ctypes
import io
import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.families.plan import Template

OPTIONS = (
    ("std", "c++17"),
    ("ptxas_options", "-v"),
    # Search only `includes`, so that no header of the working directory slips in.
    ("no_source_include", True),
    # The kernels do not use the runtime API; leaving it out saves a tenth of the time.
    ("minimal", True),
    # With a driver, NVRTC keeps its own cache, and a cached program comes without the log that
    # registers and spills are read from.
    ("no_cache", True),
)

CACHING = [12, 9]
"""The first version with a cache of its own, and an option against it."""

# cuda-core 1.2 replaces its `__spec__` while it is being imported, so that a second thread does not
# wait for the first and sees a half-initialised module.
_IMPORT = threading.Lock()


# Where the wheels of each major version have their libraries. Bindings of either version work with
# both, and `cuda.pathfinder` would take the newer one, or whatever PyTorch has loaded before.
_WHEELS = {12: "cuda_nvrtc/lib", 13: "cu13/lib"}


def version() -> str | None:
    """The version, such as `NVRTC 13.0`; None if NVRTC or `cuda.core` is not installed, or not of
    the major version that `AUTOTUNE_NVRTC` asks for."""
    try:
        if find_spec("cuda.core") is None:
            return None
        _, major, minor = _bindings().nvrtcVersion()
    except (ImportError, RuntimeError):  # RuntimeError: bindings without the library
        return None
    return f"NVRTC {major}.{minor}" if settings.nvrtc() in (None, major) else None


def _bindings() -> Any:
    """`cuda.bindings.nvrtc` with the NVRTC to use."""
    _load(_major())
    from cuda.bindings import nvrtc

    return nvrtc


def _major() -> int:
    """The major version to load: that of `AUTOTUNE_NVRTC`, else of `cuda.bindings`."""
    import cuda.bindings

    return settings.nvrtc() or int(cuda.bindings.__version__.partition(".")[0])


@cache
def _load(major: int) -> None:
    """Loads NVRTC of a major version from its wheel, if installed, before others find another."""
    package = find_spec("nvidia")
    places = package.submodule_search_locations if package else None
    for place in places or ():
        folder = Path(place) / _WHEELS[major]
        library = folder / f"libnvrtc.so.{major}"
        if library.is_file():
            # NVRTC 13.0 does not find its part beside itself.
            for path in (*sorted(folder.glob("libnvrtc-builtins.so.*")), library):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
            return


def build(
    template: Template, arch: str, sources: Path, includes: Sequence[Path]
) -> tuple[bytes | None, str]:
    """The cubin (None after an error) and the compiler's log."""
    if template.options:
        return _built(template, arch, sources, includes)
    with _IMPORT:
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError:  # before cuda-core 0.5
            from cuda.core.experimental import Program, ProgramOptions
    log = io.StringIO()
    try:
        options = ProgramOptions(
            name=template.source, arch=arch, include_path=list(map(str, includes)), **_options()
        )
        program = Program(_text(template, sources), "c++", options)
        code = program.compile("cubin", name_expressions=(template.expression,), logs=log).code
    except Exception as error:  # its class is private; its text holds the log
        return None, str(error)
    return bytes(code), log.getvalue().replace("\0", "")


def ptx(
    template: Template, arch: str, sources: Path, includes: Sequence[Path]
) -> tuple[bytes | None, str]:
    """The PTX (None after an error) and the compiler's log.

    `cuda.core` would first ask the driver which PTX it accepts.
    """
    target = f"--gpu-architecture={arch.replace('sm_', 'compute_')}"
    options = (target, "--minimal", *_folders(includes), *_own_options(template))
    text, log = _compiled(template, sources, options, "PTX")
    return text and text.rstrip(b"\0"), log


def _built(
    template: Template, arch: str, sources: Path, includes: Sequence[Path]
) -> tuple[bytes | None, str]:
    """As `build`, with the options of the template, which `cuda.core` does not take as text."""
    own = [
        f"--gpu-architecture={arch}",
        "--ptxas-options=-v",
        "--no-source-include",
    ]
    if "no_cache" in _options():
        own.append("--no-cache")
    options = (*own, "--minimal", *_folders(includes), *_own_options(template))
    return _compiled(template, sources, options, "CUBIN")


def _own_options(template: Template) -> list[str]:
    """The options of a template, and C++17 if they name no other standard."""
    named = any(option.lstrip("-").startswith("std") for option in template.options)
    return [*([] if named else ["--std=c++17"]), *template.options]


def _options() -> dict[str, object]:
    """The options that the loaded NVRTC knows."""
    _, *version = _bindings().nvrtcVersion()
    return {name: value for name, value in OPTIONS if name != "no_cache" or version >= CACHING}


def _folders(includes: Sequence[Path]) -> list[str]:
    return [f"--include-path={folder}" for folder in includes]


def _compiled(
    template: Template, sources: Path, options: Sequence[str], kind: str
) -> tuple[bytes | None, str]:
    """Output of NVRTC called directly, `CUBIN` or `PTX` (None after an error), and its log."""
    nvrtc = _bindings()
    text = _text(template, sources).encode()
    _, program = nvrtc.nvrtcCreateProgram(text, template.source.encode(), 0, [], [])
    try:
        nvrtc.nvrtcAddNameExpression(program, template.expression.encode())
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        logged = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = logged.decode(errors="replace").rstrip("\0")
        if status:
            return None, log or nvrtc.nvrtcGetErrorString(status)[1].decode()
        size, read = getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}")
        return _read(program, size, read), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(template: Template, sources: Path) -> str:
    """The source after its macros, followed by the class of its template arguments."""
    text = (sources / template.source).read_text(encoding="utf-8")
    return f"{template.preamble}{text}\n{template.declaration}"


def _read(program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    """Output of NVRTC for a program, with the zero that terminates a text."""
    _, size = size_of(program)
    memory = bytearray(size)
    read(program, memory)
    return bytes(memory)
