"""Single kernels as files: machine code, PTX, or a source that needs no header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.export.library import ExportedLibrary, ptx_of
from autotune.export.text import line_comments
from autotune.families.plan import Argument, Launch, Struct, TensorMap

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^\s*#\s*pragma\s+once\s*$\n?", re.MULTILINE)
INDENT = "    "


def specialised(launch: Launch, program: Program, title: str) -> str:
    """The kernel's source with every header inlined where it is first included, followed by the
    explicit instance, with a member of `Params` for each template argument.

    It compiles to the same machine code as the template.

    Args:
        launch: the launch of the kernel, which a comment describes.
        program: the compiled instance.
        title: what the kernel computes, in one line.

    Raises:
        MissingError: if the installation has no CUDA sources.
        ValueError: if the source has no such kernel.
    """
    template, home = program.template, settings.source_dir()
    flat = _flat(home / template.source, home / "include", set())
    # The qualifiers, launch bounds and parameters that follow the template's own parameters.
    match = re.search(rf"__global__\s+void\b[^;{{}}]*?\b{template.kernel}\s*\(", flat)
    if match is None:
        raise ValueError(f"{template.source} has no kernel {template.kernel}")
    start = match.end() - 1
    parameters = [
        " ".join(parameter.split())
        for parameter in _parameters(flat[start + 1 : _closing(flat, start)])
    ]
    separator = f",\n{INDENT}"
    return (
        f"{line_comments(title, '')}\n{_how(launch, program, parameters)}\n\n{flat.rstrip()}\n\n"
        f"// The instance.\n{template.declaration}\n"
        f"template __global__ void {template.expression}(\n"
        f"{INDENT}{separator.join(parameters)});\n"
    )


def _flat(path: Path, folder: Path, seen: set[str]) -> str:
    """A file with its headers inlined, each once, as `#pragma once` demands."""
    text = _ONCE.sub("", path.read_text(encoding="utf-8"))

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        inner = _flat(folder / name, folder, seen).strip()
        return f"// ---- {name} ----\n{inner}\n// ---- end of {name} ----"

    return _INCLUDE.sub(put, text)


def _closing(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("a bracket is not closed")


def _parameters(text: str) -> list[str]:
    """The parameters of a list, which commas within `<>` do not separate."""
    parts, depth = [""], 0
    for sign in text:
        depth += {"<": 1, ">": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _how(launch: Launch, program: Program, parameters: Sequence[str]) -> str:
    """The comment on how to compile and launch a kernel."""
    grid, block = (" x ".join(map(str, size)) for size in (launch.grid, launch.block))
    lines = [
        f"Compile for {program.arch} (nvcc -std=c++17 -arch={program.arch}); its symbol is",
        f"{program.symbol}",
        f"Launch {grid} blocks of {block} threads with {launch.shared} bytes of dynamic shared",
        f"memory; it takes {program.registers} registers a thread. Arguments, in order:",
    ]
    for parameter, argument in zip(parameters, launch.arguments, strict=True):
        lines += _value(parameter.rpartition(" ")[2], argument)
    return line_comments(*lines)


def _value(name: str, argument: Argument, indent: str = INDENT) -> list[str]:
    """The lines on an argument. The lines on a struct's members follow, indented."""
    value = argument.value
    if isinstance(value, Struct):
        deeper = indent + INDENT
        members = [_value(member, inner, deeper) for member, inner in value.members]
        return [
            f"{indent}{name} is a {value.name}:",
            *(line for lines in members for line in lines),
        ]
    if isinstance(value, TensorMap):
        value = f"tensor map of {value.base}, as the launch plan says"
    return [f"{indent}{name} = {value}"]


KERNEL_FORMATS = ("cubin", "ptx", "cu")


def kernel_files(library: ExportedLibrary, format: str) -> dict[str, tuple[str, bytes]]:
    """The file name and content of each kernel of a library, by the key of its program.

    Raises:
        AutotuneError: if a kernel does not compile to PTX.
    """
    files: dict[str, tuple[str, bytes]] = {}
    for gemm in library.gemms:
        title = f"{gemm.problem} on {gemm.device.name}"
        for launch, program in zip(gemm.plan.launches, gemm.programs, strict=True):
            if program.key in files:
                continue
            if format == "cu":
                content = specialised(launch, program, title).encode()
            else:
                content = program.cubin if format == "cubin" else ptx_of(program, compiled_ptx)
            stem = f"{library.name}-{program.template.kernel}-{len(files)}-{program.arch}"
            files[program.key] = f"{stem}.{format}", content
    return files


def compiled_ptx(program: Program) -> bytes | CompileFailure:
    """The PTX of a program of a gemm, compiled."""
    return compiler.ptx(program.template, program.arch)
