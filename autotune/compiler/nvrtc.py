"""NVRTC through `cuda.core`: compiles in this process, with neither a toolkit nor a GPU."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune.families.plan import Template

OPTIONS = (
    ("std", "c++17"),
    ("ptxas_options", "-v"),
    # Only `includes` are searched, so that no header of the caller's directory slips in.
    ("no_source_include", True),
    # The kernels use nothing of the runtime API; leaving it out saves a tenth of the time.
    ("minimal", True),
    # Where there is a driver NVRTC keeps a cache of its own (CUDA 12.9 and later), and what comes
    # from there has no log to read registers and spills from.
    ("no_cache", True),
)

# cuda-core 1.2 replaces its `__spec__` while it is being imported, so that a second thread does not
# wait for the first and finds half of it.
_IMPORT = threading.Lock()


def version() -> str | None:
    """Such as `NVRTC 13.0`; None if NVRTC or `cuda.core` is not installed."""
    try:
        if find_spec("cuda.core") is None:
            return None
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # RuntimeError: the bindings are there, the library not
        return None
    return f"NVRTC {major}.{minor}"


def build(
    template: Template, arch: str, sources: Path, includes: Sequence[Path]
) -> tuple[bytes | None, str]:
    """The cubin, None if there was an error, and the compiler's log."""
    with _IMPORT:
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError:  # where it was before cuda-core 0.5
            from cuda.core.experimental import Program, ProgramOptions
    log = io.StringIO()
    try:
        options = ProgramOptions(
            name=template.source, arch=arch, include_path=list(map(str, includes)), **dict(OPTIONS)
        )
        text = (sources / template.source).read_text(encoding="utf-8")
        program = Program(text, "c++", options)
        code = program.compile("cubin", name_expressions=(template.expression,), logs=log).code
    except Exception as error:  # its class is private, and its text holds the log
        return None, str(error)
    return bytes(code), log.getvalue().replace("\0", "")


def ptx(
    template: Template, arch: str, sources: Path, includes: Sequence[Path]
) -> tuple[bytes | None, str]:
    """The PTX, None if there was an error, and the compiler's log.

    NVRTC's own functions, as `cuda.core` asks the driver first which PTX it takes.
    """
    from cuda.bindings import nvrtc

    options = [
        f"--gpu-architecture={arch.replace('sm_', 'compute_')}",
        *("--std=c++17", "--minimal"),
        *(f"--include-path={folder}" for folder in includes),
    ]
    text = (sources / template.source).read_text(encoding="utf-8")
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), template.source.encode(), 0, [], [])
    try:
        nvrtc.nvrtcAddNameExpression(program, template.expression.encode())
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if status:
            return None, log.decode(errors="replace")
        return _read(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX), log.decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    """What NVRTC holds of a program, without the zero at its end."""
    _, size = size_of(program)
    memory = bytearray(size)
    read(program, memory)
    return bytes(memory).rstrip(b"\0")
