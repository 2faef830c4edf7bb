"""Compilation by NVRTC through `cuda.bindings`, without a toolkit or a GPU.

A compilation cannot be interrupted, may take all memory and may crash, so it runs in a helper
process, which has limits and can be killed. Helpers wait for further requests: NVRTC lets only one
thread of a process parse, so on 16 cores threads compile 9 programs a second, and processes 21.

A helper takes 0.2 s to start, twice what a small kernel takes to compile. Where a first product
waits for one of the package's own kernels, which neither hang nor grow, the first of several
compilations at once therefore runs in this process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
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

USER_OPTIONS = "--ptxas-options=-v", "--no-cache"
"""The options for user kernels: many headers of CUDA need the runtime API, or their neighbours."""

FOLDER = "/autotune-source"
"""The folder of a user's file, as NVRTC is told, which searches it for headers. It does not exist,
so that no header of the working directory slips in; the folder of the source is among those named.
"""

CACHING = [12, 9]
"""The first version with a cache of its own, and an option against it."""

SECONDS = 300.0
"""Longest time. The package's slowest kernel takes 15 s, large ones of CUTLASS a few minutes."""

MEMORY = 8 << 30
"""Most bytes of private memory; kernels that include CUTLASS take 2 to 4 GiB."""


@dataclass(frozen=True)
class Request:
    """A program to compile.

    Attributes:
        text: the CUDA source.
        name: its file's name, for messages.
        expression: the address of the kernel's instance.
        options: options of the compiler.
        kind: `CUBIN` or `PTX`.
    """

    text: str
    name: str
    expression: str
    options: tuple[str, ...]
    kind: str


Output = tuple[bytes | None, str, str]
"""The compiled program, None after an error; the compiler's log; and the kernel's mangled name,
empty if unknown."""

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


@cache
def cuda_headers() -> tuple[Path, ...]:
    """The folders of CUDA's own headers, such as `cuda_fp16.h` and `cub/cub.cuh`: those of a
    toolkit, or of the wheels of the extra `kernels`; none without either."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    libraries = "cudart", "cccl", "curand", "cublas"
    places = map(find_nvidia_header_directory, libraries)
    return tuple(dict.fromkeys(Path(place) for place in places if place))


def build(
    template: Template, arch: str, sources: Path, includes: Sequence[Path], *, here: bool = False
) -> Output:
    """The cubin of a template. Thread-safe.

    It runs in a helper process, or with `here` in this one unless that is compiling already.
    """
    common = _known(OPTIONS if template.compiler is None else USER_OPTIONS)
    options = f"--gpu-architecture={arch}", *common
    return SHARED.output(_request(template, sources, includes, options, "CUBIN"), here=here)


def ptx(template: Template, arch: str, sources: Path, includes: Sequence[Path]) -> Output:
    """The PTX of a template, from a helper process."""
    target = f"--gpu-architecture={arch.replace('sm_', 'compute_')}"
    options = (target, "--minimal") if template.compiler is None else (target,)
    text, log, symbol = SHARED.output(_request(template, sources, includes, options, "PTX"))
    return text and text.rstrip(b"\0"), log, symbol


def compiled(request: Request) -> Output:
    """Compiles in this process."""
    nvrtc = _bindings()
    _, program = nvrtc.nvrtcCreateProgram(request.text.encode(), request.name.encode(), 0, [], [])
    try:
        expression = request.expression.encode()
        nvrtc.nvrtcAddNameExpression(program, expression)
        flags = [option.encode() for option in request.options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        logged = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = logged.decode(errors="replace").replace("\0", "")
        if status:
            return None, log or nvrtc.nvrtcGetErrorString(status)[1].decode(), ""
        kind = request.kind
        size, read = getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}")
        _, symbol = nvrtc.nvrtcGetLoweredName(program, expression)
        return _read(program, size, read), log, symbol.decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _request(
    template: Template, sources: Path, includes: Sequence[Path], options: Sequence[str], kind: str
) -> Request:
    name = template.source if template.compiler is None else f"{FOLDER}/{template.source}"
    folders = (f"--include-path={folder}" for folder in includes)
    every = *options, *folders, *options_of(template)
    return Request(text_of(template, sources), name, template.address, every, kind)


def text_of(template: Template, sources: Path) -> str:
    """The text to compile: the macros, the source, and what follows it."""
    text = (sources / template.source).read_text(encoding="utf-8")
    return f"{template.preamble}{text}\n{template.declaration}"


def options_of(template: Template) -> list[str]:
    """The options of a template, and C++17 if they name no other standard."""
    named = any(option.lstrip("-").startswith("std") for option in template.options)
    return [*([] if named else ["--std=c++17"]), *template.options]


def _known(options: Sequence[str]) -> list[str]:
    """The options without any that the loaded NVRTC does not know."""
    _, *version = _bindings().nvrtcVersion()
    return [option for option in options if option != "--no-cache" or version >= CACHING]


def _read(program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    """Output of NVRTC for a program, with the zero that terminates a text."""
    _, size = size_of(program)
    memory = bytearray(size)
    read(program, memory)
    return bytes(memory)


IDLE_S = 60.0
"""A helper ends after these seconds without a request."""
PARENT_S = 0.5
"""Seconds between two looks whether its parent is alive."""


class HelperGoneError(Exception):
    """A helper ended without an answer, through no fault of the request."""


class Helper:
    """A process that compiles one program at a time, within limits.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(self) -> None:
        from autotune import child_process  # starts processes, which a cached program need not

        self._connection, self._process = child_process.start("autotune.cuda.nvrtc", "serve")
        self._ready = False

    def output(self, request: Request) -> Output:
        """The compiled program; None and a line if NVRTC crashes or takes too long.

        Raises:
            HelperGoneError: if the process has ended for another reason.
            OSError: if it never began to serve.
        """
        try:
            if not self._ready:
                self._connection.recv()
                with suppress(OSError):  # it has ended, or has lower limits already
                    memory = MEMORY, MEMORY
                    resource.prlimit(self._process.pid, resource.RLIMIT_DATA, memory)
                self._ready = True
            self._connection.send(request)
            if not self._connection.poll(SECONDS):
                self.stop()
                return None, f"error: NVRTC took longer than {SECONDS:g} s and was stopped", ""
            output: Output = self._connection.recv()
            return output
        except (EOFError, OSError) as error:
            code = self._process.wait()
            if not self._ready:
                raise OSError(f"a helper ended with {code} before it began to serve") from error
            if code >= 0 or code == -signal.SIGKILL:
                raise HelperGoneError from error
            return None, f"NVRTC was killed by {signal.Signals(-code).name}", ""

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the process, so that the thread that waits for its output goes on."""
        self._process.kill()

    def stop(self) -> None:
        """Kills the process and waits for its end."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


class Helpers:
    """The helpers of this process, started as they are needed. Thread-safe."""

    def __init__(self) -> None:
        self._here = threading.Lock()  # held while this process compiles itself
        self._idle: list[Helper] = []
        self._busy: dict[int, Helper | None] = {}  # by the thread that waits; None was stopped

    def output(self, request: Request, *, here: bool = False) -> Output:
        """The compiled program.

        Args:
            request: kernel to compile.
            here: whether this process compiles it, unless it is compiling already.
        """
        if not (here and self._here.acquire(blocking=False)):
            with suppress(OSError):  # without an interpreter
                return self._beside(request)
            self._here.acquire()
        try:
            return compiled(request)
        finally:
            self._here.release()

    def stop(self, threads: Collection[int]) -> None:
        """Ends the compilations that threads wait for; `threads` are their identifiers."""
        for thread in threads:
            if helper := self._busy.get(thread):
                self._busy[thread] = None
                helper.kill()

    def forget(self) -> None:
        """Drops all helpers. A forked process calls it, as they serve its parent."""
        self._here, self._idle, self._busy = threading.Lock(), [], {}

    def close(self) -> None:
        """Stops the idle helpers."""
        while self._idle:
            self._idle.pop().stop()

    def _beside(self, request: Request) -> Output:
        with suppress(HelperGoneError):
            return self._asked(self._waiting() or Helper(), request)
        # One that had waited too long, or was killed when memory ran out. A new one may do.
        with suppress(HelperGoneError):
            return self._asked(Helper(), request)
        return None, "error: the compiler's process ended without a message, twice", ""

    def _asked(self, helper: Helper, request: Request) -> Output:
        thread = threading.get_ident()
        self._busy[thread] = helper
        try:
            output = helper.output(request)
        except BaseException as error:
            helper.stop()
            if isinstance(error, HelperGoneError | OSError) and self._busy[thread] is None:
                return None, "error: the compilation was stopped", ""
            raise
        finally:
            del self._busy[thread]
        if helper.ended:
            helper.stop()
        else:
            self._idle.append(helper)
        return output

    def _waiting(self) -> Helper | None:
        with suppress(IndexError):
            while (helper := self._idle.pop()).ended:
                helper.stop()
            return helper
        return None


def serve(descriptor: int) -> None:
    """Answers requests on an inherited socket, until its other end closes or none comes."""
    from multiprocessing.connection import Connection

    from autotune.child_process import ignore_signals

    ignore_signals()
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send(True)
        while connection.poll(IDLE_S):
            connection.send(_within_memory(connection.recv()))
    os._exit(0)


def _within_memory(request: Request) -> Output:
    try:
        return compiled(request)
    except MemoryError:
        limit = f"{MEMORY >> 30} GiB of memory that it may take"
        return None, f"error: NVRTC needs more than the {limit}", ""


def _end_with(parent: int) -> None:
    """Ends this process with its parent, also amid a compilation, which reads no socket."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(0)


SHARED = Helpers()
"""The helpers of this process."""
os.register_at_fork(after_in_child=SHARED.forget)
atexit.register(SHARED.close)
