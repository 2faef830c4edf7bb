"""Compilation by NVRTC through `cuda.bindings`, without a toolkit or a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.families.plan import Template

OPTIONS = (
    "--ptxas-options=-v",
    # Search only the folders named, so that no header of the working directory slips in.
    "--no-source-include",
    # The kernels do not use the runtime API; leaving it out saves a tenth of the time.
    "--minimal",
    # With a driver, NVRTC keeps its own cache, and a cached program comes without the log that
    # registers and spills are read from.
    "--no-cache",
)

CACHING = [12, 9]
"""The first version with a cache of its own, and an option against it."""


@dataclass(frozen=True)
class Request:
    """A program to compile.

    Attributes:
        text: the CUDA source.
        name: its file's name, for messages.
        expression: the kernel's instance.
        options: those of the compiler.
        kind: `CUBIN` or `PTX`.
    """

    text: str
    name: str
    expression: str
    options: tuple[str, ...]
    kind: str


Output = tuple[bytes | None, str]
"""The compiled program, None after an error, and the compiler's log."""

# Where the wheels of each major version have their libraries. Bindings of either version work with
# both, and `cuda.pathfinder` would take the newer one, or whatever PyTorch has loaded before.
_WHEELS = {12: "cuda_nvrtc/lib", 13: "cu13/lib"}


def version() -> str | None:
    """The version, such as `NVRTC 13.0`; None if NVRTC or its bindings are not installed, or not of
    the major version that `AUTOTUNE_NVRTC` asks for."""
    try:
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


def mismatch() -> str | None:
    """The installed wheels of NVRTC, if none matches the bindings, and the command that installs
    one; None if one matches, none is installed, or `AUTOTUNE_NVRTC` chooses."""
    try:
        import cuda.bindings
    except ImportError:
        return None
    majors = [major for major in _WHEELS if _library(major)]
    if not majors or _major() in majors or settings.nvrtc():
        return None
    return (
        f"the installed wheel is NVRTC {majors[0]} and does not match cuda-bindings "
        f"{cuda.bindings.__version__}; run `pip install 'tile-autotune[cu{_major()}]'`"
    )


@cache
def _load(major: int) -> None:
    """Loads NVRTC of a major version from its wheel, if installed, before others find another."""
    if library := _library(major):
        # NVRTC 13.0 does not find its part beside itself.
        for path in (*sorted(library.parent.glob("libnvrtc-builtins.so.*")), library):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _library(major: int) -> Path | None:
    """NVRTC of a major version in its wheel; None if that is not installed."""
    package = find_spec("nvidia")
    places = package.submodule_search_locations if package else None
    libraries = (Path(place, _WHEELS[major], f"libnvrtc.so.{major}") for place in places or ())
    return next(filter(Path.is_file, libraries), None)


def build(
    template: Template, arch: str, sources: Path, includes: Sequence[Path], *, here: bool = False
) -> Output:
    """The cubin (None after an error) and the compiler's log. Thread-safe.

    It runs in a helper process, or with `here` in this one unless that is compiling already.
    """
    from autotune.compiler.helpers import SHARED

    options = (f"--gpu-architecture={arch}", *_options(), *_folders(includes))
    return SHARED.output(_request(template, sources, options, "CUBIN"), here=here)


def ptx(template: Template, arch: str, sources: Path, includes: Sequence[Path]) -> Output:
    """The PTX (None after an error) and the compiler's log, from a helper process."""
    from autotune.compiler.helpers import SHARED

    target = f"--gpu-architecture={arch.replace('sm_', 'compute_')}"
    options = (target, "--minimal", *_folders(includes))
    text, log = SHARED.output(_request(template, sources, options, "PTX"))
    return text and text.rstrip(b"\0"), log


def compiled(request: Request) -> Output:
    """Compiles in this process; returns the program and the log."""
    nvrtc = _bindings()
    _, program = nvrtc.nvrtcCreateProgram(request.text.encode(), request.name.encode(), 0, [], [])
    try:
        nvrtc.nvrtcAddNameExpression(program, request.expression.encode())
        flags = [option.encode() for option in request.options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        logged = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = logged.decode(errors="replace").rstrip("\0")
        if status:
            return None, log or nvrtc.nvrtcGetErrorString(status)[1].decode()
        kind = request.kind
        size, read = getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}")
        return _read(program, size, read), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _request(template: Template, sources: Path, options: Sequence[str], kind: str) -> Request:
    """The request to compile a template: its macros, its source and the class of its arguments,
    with its own options after the others."""
    text = (sources / template.source).read_text(encoding="utf-8")
    text = f"{template.preamble}{text}\n{template.declaration}"
    every = *options, *_own_options(template)
    return Request(text, template.source, template.expression, every, kind)


def _own_options(template: Template) -> list[str]:
    """The options of a template, and C++17 if they name no other standard."""
    named = any(option.lstrip("-").startswith("std") for option in template.options)
    return [*([] if named else ["--std=c++17"]), *template.options]


def _options() -> list[str]:
    """The options that the loaded NVRTC knows."""
    _, *version = _bindings().nvrtcVersion()
    return [option for option in OPTIONS if option != "--no-cache" or version >= CACHING]


def _folders(includes: Sequence[Path]) -> list[str]:
    return [f"--include-path={folder}" for folder in includes]


def _read(program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    """Output of NVRTC for a program, with the zero that terminates a text."""
    _, size = size_of(program)
    memory = bytearray(size)
    read(program, memory)
    return bytes(memory)
