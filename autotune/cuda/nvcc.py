"""Compilation by nvcc, for machines with a CUDA toolkit and a host compiler but no NVRTC."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from autotune import files, settings
from autotune.cuda import nvrtc
from autotune.cuda.nvrtc import Output
from autotune.families.plan import Template

OPTIONS = ("-cubin", "-std=c++17", "-Xptxas=-v")


def version() -> str | None:
    """The version, such as `nvcc 13.0.88`; None if nvcc is not installed or does not run."""
    path = settings.nvcc()
    return _version(path) if path else None


def build(
    template: Template, arch: str, sources: Path, includes: Sequence[Path], *, here: bool = False
) -> Output:
    """The cubin (None after an error) and the compiler's log. `here` makes no difference: nvcc is
    always a process of its own."""
    del here
    number = arch.removeprefix("sm_")
    target = (f"-gencode=arch=compute_{number},code=sm_{number}",)
    return _compiled(template, (*OPTIONS, *target), sources, includes)


def ptx(template: Template, arch: str, sources: Path, includes: Sequence[Path]) -> Output:
    """The PTX (None after an error) and the compiler's log."""
    target = f"-arch={arch.replace('sm_', 'compute_')}"
    return _compiled(template, ("-ptx", "-std=c++17", target), sources, includes)


def _compiled(
    template: Template, options: Sequence[str], sources: Path, includes: Sequence[Path]
) -> Output:
    """The output of nvcc for a template with these options (None after an error), and its log."""
    with files.temporary_folder() as scratch:
        unit, output = scratch / "unit.cu", scratch / "unit.out"
        # Taking its address instantiates the template; a host variable leaves the cubin clean.
        unit.write_text(
            f"{template.preamble}"
            f'#include "{sources.resolve() / template.source}"\n'
            f"{template.declaration}"
            f"auto autotune_entry = &{template.expression};\n",
            encoding="utf-8",
        )
        folders = [f"-I{folder.resolve()}" for folder in includes]
        status, log = _run([*options, *template.options, *folders, "-o", str(output), str(unit)])
        return (output.read_bytes() if status == 0 and output.is_file() else None), log


def _run(arguments: list[str]) -> tuple[int, str]:
    """Exit status of nvcc, nonzero after a timeout, and its combined output."""
    process = subprocess.Popen(
        [str(settings.nvcc()), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    nvrtc.restrict(process.pid)
    try:
        log, _ = process.communicate(timeout=nvrtc.SECONDS)
    except subprocess.TimeoutExpired:
        # nvcc's children keep the pipe open: kill the whole process group.
        os.killpg(process.pid, signal.SIGKILL)
        log, _ = process.communicate()
        return 1, f"{nvrtc.too_long('nvcc')}\n{log}"
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, log


@cache
def _version(path: Path) -> str | None:
    try:
        text = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bV(\d+[\d.]*)", text)
    return f"nvcc {match[1]}" if match else None
