"""Compilation by nvcc, for what only a host compiler reads: `main` beside the kernel, `<cstdio>`.

nvcc hands its arguments to a shell, within double quotes. So the source goes into a folder of its
own, under a fixed name, and an argument that the quotes do not contain is refused.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cuda.nvrtc import MEMORY, SECONDS, Output, cuda_headers, options_of, text_of
from autotune.cuda.program import symbol
from autotune.families.plan import Macros, Template
from autotune.files import temporary_folder

if TYPE_CHECKING:
    from subprocess import Popen

REMEDY = (
    "install a CUDA toolkit and a host compiler such as g++, or `pip install nvidia-cuda-nvcc "
    "nvidia-cuda-cccl`, or keep host code from NVRTC by `#ifndef __CUDACC_RTC__`"
)
"""The installations that compile host code."""

# A template is compiled only where it is used, and a function with internal linkage likewise.
_USE = '\n#line 1 "{name}"\nvoid* autotune_instance() {{ return (void*)({address}); }}\n'
_ADDRESS = 'extern "C" __device__ void* autotune_address = (void*)({address});\n'
_SYMBOL = re.compile(r"\bautotune_address = (?:generic\()?([\w$]+)")

NAME = "kernel name"
"""The file that errors in the kernel's name are reported in."""

_UNQUOTED = re.compile(r"[\"$`\\\n]")


@cache
def path() -> Path | None:
    """The nvcc of `PATH`, of a wheel or of `CUDA_HOME`; None without one."""
    place = shutil.which("nvcc")
    if place is None:
        with suppress(Exception):  # an old or no cuda.pathfinder
            from cuda.pathfinder import find_nvidia_binary_utility

            place = find_nvidia_binary_utility("nvcc")
    return Path(place) if place else None


@cache
def version() -> str | None:
    """The version, such as `nvcc 13.0.88`; None without nvcc."""
    if (nvcc := path()) is None:
        return None
    import subprocess

    with suppress(OSError, subprocess.SubprocessError):
        shown = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60)
        if match := re.search(r"\bV(\d+\.\d+\.\d+)", shown.stdout):
            return f"nvcc {match[1]}"
    return None


def build(template: Template, arch: str, sources: Path, includes: Sequence[Path]) -> Output:
    """The cubin of a template. Thread-safe."""
    kind = ["-cubin", f"-arch={arch}", "-Xptxas=-v"]
    return _output(template, arch, kind, sources, includes)


def ptx(template: Template, arch: str, sources: Path, includes: Sequence[Path]) -> Output:
    """The PTX of a template."""
    return _output(template, arch, _ptx_of(arch), sources, includes)


def stop(threads: Collection[int]) -> None:
    """Ends the compilations that threads wait for; `threads` are their identifiers."""
    for thread in threads:
        if process := _running.get(thread):
            _kill(process)


_running: dict[int, Popen[str]] = {}


def _ptx_of(arch: str) -> list[str]:
    return ["-ptx", f"-arch={arch.replace('sm_', 'compute_')}"]


def _unrolled(text: str, macros: Macros) -> str:
    """A text with the values of macros in `#pragma unroll`, where nvcc expands none."""
    values = dict(macros)

    def line(match: re.Match[str]) -> str:
        count = re.sub(r"[A-Za-z_]\w*", lambda word: values.get(word[0], word[0]), match[2])
        return match[1] + count

    return re.sub(r"(#\s*pragma\s+unroll\b)(.*)", line, text) if values else text


def _output(
    template: Template, arch: str, kind: Sequence[str], sources: Path, includes: Sequence[Path]
) -> Output:
    folders = dict.fromkeys(((sources / template.source).parent, *includes))
    # The toolkit's headers follow nvcc's: the two versions may differ.
    own = cuda_headers()
    searched = [f"-Xcompiler=-idirafter,{each}" if each in own else f"-I{each}" for each in folders]
    arguments = [*searched, *options_of(template)]
    if fault := next(filter(_UNQUOTED.search, arguments), None):
        return None, f"error: nvcc cannot take {fault!r}: it has a quote, '$', '`' or '\\'", ""
    text = _unrolled(text_of(template, sources), template.macros)
    text = f"{text}{_USE.format(name=NAME, address=template.address)}"
    with temporary_folder() as folder:
        (folder / "kernel.cu").write_text(text, encoding="utf-8")
        made, log = _run([*kind, *arguments], folder)
        name = symbol(log, template.kernel)
        if made is None or name or "-ptx" in kind:
            return made, log, name or ""
        # The log names several instances or overloads.
        text += _ADDRESS.format(address=template.address)
        (folder / "kernel.cu").write_text(text, encoding="utf-8")
        address, _ = _run([*_ptx_of(arch), *arguments], folder)
        match = _SYMBOL.search((address or b"").decode())
        return made, log, match[1] if match else ""


def _run(arguments: Sequence[str], folder: Path) -> tuple[bytes | None, str]:
    import subprocess

    nvcc = path()
    assert nvcc is not None, "nvcc is looked for before"
    process = subprocess.Popen(
        [nvcc, *arguments, "-o", "output", "kernel.cu"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    thread = threading.get_ident()
    _running[thread] = process
    try:
        with suppress(OSError):  # it has ended, or has lower limits already
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            # Of each of its processes, should this one die.
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
        log, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"error: nvcc took longer than {SECONDS:g} s and was stopped"
    finally:
        del _running[thread]
        _kill(process)
    if process.returncode:
        return None, log or f"error: nvcc ended with {process.returncode}"
    return (folder / "output").read_bytes(), log


def _kill(process: Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
