"""Writes exports: the formats, and the way from shapes and devices to files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import UsageError, one_of, require_list
from autotune.export.document import document, readme
from autotune.export.files import WrittenExport, write_export
from autotune.export.library import (
    ExportedLibrary,
    check_ptx,
    fastest_algorithm,
    gather,
    ptx_file,
    ptx_of,
)
from autotune.export.tables import algorithms, given, kernels, shapes, tables, words
from autotune.export.text import check_name, filled, line_comments
from autotune.families.plan import Argument, Launch, Struct, TensorMap
from autotune.lookup import batch_invariant as invariant
from autotune.lookup.lookup import finder
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.problem import ProblemDefaults, ProblemLike, problems_of
from autotune.records import Records, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

KERNEL_FORMATS = ("cubin", "ptx", "cu")
FORMATS = ("c", *KERNEL_FORMATS, "json")


def write(
    shapes: Sequence[ProblemLike],
    directory: Path | str,
    name: str = "gemm",
    *,
    devices: Sequence[DeviceLike] = (DEFAULT,),
    format: str = "c",
    objective: ObjectiveText | Objective = HOT,
    batch_invariant: bool = False,
    ptx: bool = False,
    bench: bool = False,
    cublaslt: bool = False,
    **defaults: Unpack[ProblemDefaults],
) -> WrittenExport[ExportedLibrary]:
    """Exports the kernels that `lookup` finds for some shapes. The README and the JSON say which
    were tuned, taken from other shapes or predicted. Needs no GPU if the devices are named.

    Args:
        shapes: texts such as `512x512x64:bf16:batch=8`, problems or triples (m, n, k).
        directory: the folder of the files; created if it does not exist.
        name: a C identifier, for the library, its functions and its files.
        devices: the GPUs to export for, named as for `tune`.
        format: `c`, a library with all kernels in it and general ones for other shapes; `cubin`,
            `ptx` or `cu`, a file for each kernel and `NAME.json`; `json`, that file alone.
        objective: what chooses the kernels: `hot` or `cold`, those of `matmul(...)` or of
            `matmul` by the policy `cold=True`, or `energy`.
        batch_invariant: whether the kernels are those of batch-invariant ranges; the library then
            has no general ones, which add up in another order.
        ptx: whether to add the kernels' PTX to `c` or `cubin`, which the driver of a GPU newer than
            the devices compiles; kernels for one architecture alone, of `wgmma`, have none.
        bench: whether to add `bench.c` to `c`, a program that times every shape beside cuBLAS.
        cublaslt: whether a library calls cuBLASLt for the shapes that one of its algorithms was
            measured to be the fastest on, where the version that it was recorded with is installed.
        defaults: `compute`, `layout`, `batch`, `epilogue`, `output` and `accuracy` of shapes that
            do not state them.

    Raises:
        UsageError: for an invalid shape, device, format, objective or name.
        NotFoundError: if no kernel can run one of the shapes, or with `batch_invariant` no range
            serves it; a `FrozenError` in the frozen mode for what is not recorded or compiled.
        AutotuneError: if a kernel does not compile, the folder cannot be written, or it holds
            files of the same names that no export wrote or that changed since.
    """
    if not shapes or not devices:
        raise UsageError("an export without shapes or devices; give at least one of each")
    problems = problems_of(shapes, **defaults)
    check_name(name)
    one_of("format", format, FORMATS)
    check_ptx(format, ptx)
    if bench and format != "c":
        raise UsageError(f"format {format!r} takes no bench; give c")
    if cublaslt and (format != "c" or batch_invariant):
        raise UsageError("cuBLASLt is for format c, and not for batch-invariant kernels")
    resolved = _resolved(devices)
    find = invariant.required if batch_invariant else finder(settings.mode())
    decides, cache = objective_named(objective), settings.cache_dir()
    records = Records(Store(cache))
    library = gather(
        name,
        problems,
        resolved,
        lambda problem, device: find(problem, device, records, decides),
        partial(compiler.compile, cache=cache),
        algorithm=lambda problem, device: (
            None if batch_invariant else fastest_algorithm(records.load(device, problem), decides)
        ),
        fallback=format == "c" and not batch_invariant,
        ptx=compiled_ptx if ptx else None,
    )
    files = write_library(library, Path(directory), format, bench=bench, cublaslt=cublaslt)
    return WrittenExport(library, files)


def _resolved(devices: Sequence[DeviceLike]) -> list[Device]:
    require_list("devices", devices)
    resolved = [targets.resolve(device) for device in devices]
    for device in resolved:
        targets.check_compilable(device)
    return resolved


def write_library(
    library: ExportedLibrary,
    directory: Path,
    format: str,
    *,
    bench: bool = False,
    cublaslt: bool = False,
) -> tuple[Path, ...]:
    """Writes a library to a directory, with its plans and the SHA-256 of every file in `NAME.json`.

    Raises:
        AutotuneError: as `write`.
    """
    check_name(library.name)
    one_of("format", format, FORMATS)
    kernels = kernel_files(library, format) if format in KERNEL_FORMATS else {}
    names = {key: file for key, (file, _) in kernels.items()}
    files = dict(kernels.values())
    if format == "c":
        files = project(library, bench=bench, cublaslt=cublaslt)
    if format == "cubin":
        files |= {
            ptx_file(file): library.ptx[key] for key, file in names.items() if key in library.ptx
        }
    return write_export(directory, library.name, document(library, names), files)


_SHAPE = "const LtShape *shape = lt_shape(product, &given, plan, card, ordinal);"
_LIBRARY_CALLS = {
    "LIBRARY_SIZE": f"""{{
        {_SHAPE}
        if (shape) *bytes = lt_needed(shape, plan);
    }}""",
    "LIBRARY_RUN": f"""{{
        {_SHAPE}
        status = shape ? lt_launched(shape, product, plan, ordinal, workspace, bytes, stream) : -1;
        if (status >= 0) return status;
    }}""",
    "LIBRARY_CHOICE": f"""{{
        {_SHAPE}
        if (shape) {{
            choice->config = "cublaslt", choice->launches = 1;
            choice->workspace = lt_needed(shape, plan);
        }}
    }}""",
}
"""The code of `gemm.c` for shapes of cuBLASLt, by its marks."""


def project(
    library: ExportedLibrary, *, bench: bool = False, cublaslt: bool = False
) -> dict[str, bytes]:
    """The content of every file, by its name.

    Args:
        library: the library.
        bench: whether to add the program that times every problem.
        cublaslt: whether cuBLASLt computes the problems that one of its algorithms was fastest on.
    """
    name = library.name
    calls = dict.fromkeys(("LIBRARY", *_LIBRARY_CALLS), "")
    if cublaslt and any(gemm.calls_library for gemm in library.gemms):
        code = filled("cublaslt.c", name, ALGORITHMS=algorithms(library))
        calls = {"LIBRARY": code.rstrip("\n"), **_LIBRARY_CALLS}
    files = {
        f"{name}.h": filled("gemm.h", name),
        f"{name}.hpp": filled("gemm.hpp", name),
        f"{name}.c": filled(
            *("gemm.c", name),
            WORDS=words(),
            GIVEN=given(),
            KERNELS=kernels(library),
            TABLES=tables(library),
            **calls,
        ),
        "main.c": filled("main.c", name, SHAPES=shapes(library)),
        "CMakeLists.txt": filled("CMakeLists.txt", name),
        f"{name}.pc.in": filled("gemm.pc.in", name),
        "README.md": readme(library, cublaslt=cublaslt),
    }
    if bench:
        files["bench.c"] = filled("bench.c", name, SHAPES=shapes(library))
    return {path: text.encode() for path, text in files.items()}


_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^\s*#\s*pragma\s+once\s*$\n?", re.MULTILINE)
_BETWEEN = re.compile(r",(?![^<>]*>)")
"""A comma between parameters, not between the template arguments of a parameter's type."""
INDENT = "    "


def specialised(launch: Launch, program: Program, title: str) -> str:
    """The kernel's source with every header inlined where it is first included, followed by the
    explicit instance, with a member of `Params` for each template argument.

    It compiles to the same machine code as the template.

    Args:
        launch: the launch of the kernel, which a comment describes.
        program: the compiled instance.
        title: computation of the kernel, in one line.

    Raises:
        MissingError: if the installation has no CUDA sources.
        ValueError: if the source has no such kernel.
    """
    template, home = program.template, settings.source_dir()
    flat = _flat(home / template.source, home / "include", set())
    # The qualifiers, launch bounds and parameters that follow the template's own parameters.
    match = re.search(rf"__global__\s+void\b[^;{{}}]*?\b{template.kernel}\s*\(([^()]*)\)", flat)
    if match is None:
        raise ValueError(f"{template.source} has no kernel {template.kernel}")
    parameters = [" ".join(parameter.split()) for parameter in _BETWEEN.split(match[1])]
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
    assert not isinstance(value, bytes)  # which only user kernels take
    return [f"{indent}{name} = {value}"]


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
