"""The files of exported user kernels: a C library, a header of values, machine code, JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from autotune.cuda.program import Program
from autotune.errors import AutotuneError
from autotune.export.c_text import comment, comment_text, numbers, table
from autotune.export.document import launch_json, ptx_json
from autotune.export.exported_kernels import ExportedKernel, KernelLibrary
from autotune.export.filling import filled
from autotune.export.kernel_tables import KernelTables
from autotune.export.manifest import MADE_BY
from autotune.export.portable import ptx_file
from autotune.families.config import Value
from autotune.families.plan import ArgumentType
from autotune.files.plain import is_macro_name
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import argument_type
from autotune.version import __version__

SCHEMA = 1
_WORD = re.compile(r"[\w:<>*& ]+")
"""A word that cannot call a function: the name of a type or of a value."""
UNCHOSEN = "define CALL as the number of a call below"

_C_TYPES: dict[ArgumentType, str] = {
    **{"pointer": "void *", "f32": "float ", "f64": "double "},
    **{"i8": "int8_t ", "i16": "int16_t ", "i32": "int32_t ", "i64": "int64_t "},
    **{"u8": "uint8_t ", "u16": "uint16_t ", "u32": "uint32_t ", "u64": "uint64_t "},
}


def kernel_project(library: KernelLibrary) -> dict[str, bytes]:
    """The header and the source of a C library, by their names."""
    functions = library.functions
    prototypes = [
        f"{_comment(call, kernels)}\n{_prototype(call, functions[call])};"
        for call, kernels in library.calls.items()
    ]
    bodies = [_body(number, call, functions[call]) for number, call in enumerate(library.calls)]
    tables = KernelTables(library.devices, library.launches, library.ptx)
    source = {
        "KERNELS": tables.text(),
        "TABLES": _launches(library, tables.indices),
        "FUNCTIONS": "\n\n".join(bodies),
    }
    return {
        f"{library.name}.h": _filled("kernel.h", library, FUNCTIONS="\n\n".join(prototypes)),
        f"{library.name}.c": _filled("kernel.c", library, **source),
    }


def values_header(library: KernelLibrary) -> dict[str, bytes]:
    """A header with the best values of the parameters as macros, to compile the kernel with.

    `TARGET_<device>` chooses among several devices; without it the values of the first hold. `CALL`
    is the number of one of several calls.
    """
    guard = f"{library.name.upper()}_VALUES_H"
    lines = [
        comment(f"The best values of {library.name}, by `autotune export`."),
        *(f"#ifndef {guard}", f"#define {guard}", ""),
    ]
    several = len(library.calls) > 1
    lines += ["#if !defined CALL", f'#error "{UNCHOSEN}"'] if several else []
    for number, (call, kernels) in enumerate(library.calls.items()):
        if several:
            lines += [f"#elif CALL == {number}"]
        lines += [_comment(call, kernels), *_choice(kernels)]
    lines += ["#endif"] if several else []
    lines += ["", f"#endif /* {guard} */", ""]
    return {f"{library.name}.h": "\n".join(lines).encode()}


def cubin_files(library: KernelLibrary) -> dict[str, bytes]:
    """The machine code of each program and its PTX, by their file names."""
    names = cubin_names(library)
    cubins = {name: library.programs[key].cubin for key, name in names.items()}
    return cubins | {ptx_file(names[key]): text for key, text in library.ptx.items()}


def cubin_names(library: KernelLibrary) -> dict[str, str]:
    """The file name of each program by its key."""
    return {
        key: f"{library.name}-{number}-{program.arch}.cubin"
        for number, (key, program) in enumerate(library.programs.items())
    }


def kernel_document(library: KernelLibrary, files: Mapping[str, str]) -> dict[str, object]:
    """The library as JSON, without its machine code; `files` are the files of programs by key."""
    return {
        "schema": SCHEMA,
        "made_by": f"{MADE_BY}{__version__}",
        "name": library.name,
        "kernels": [
            _program(program, files.get(program.key)) | ptx_json(program, library.ptx, files)
            for program in library.programs.values()
        ],
        "calls": [
            {
                "function": library.functions[kernel.call],
                "call": str(kernel.call),
                "arguments": list(kernel.call.arguments),
                "device": kernel.device.to_json(),
                "config": str(kernel.entry.config),
                "params": kernel.entry.config.values,
                "time_us": kernel.entry.measurement.time_us,
                "verified": kernel.record.verified,
                "launch": launch_json(kernel.launch, kernel.program),
            }
            for kernel in library.kernels
        ],
    }


def _program(program: Program, file: str | None) -> dict[str, object]:
    return {
        "key": program.key,
        "symbol": program.symbol,
        "arch": program.arch,
        "registers": program.registers,
        "shared": program.shared,
        "local": program.local,
        "compiler": program.compiler,
        "sha256": sha256(program.cubin).hexdigest(),
        **({} if file is None else {"file": file}),
    }


def _filled(template: str, library: KernelLibrary, **parts: str) -> bytes:
    title = ", ".join(dict.fromkeys(call.name for call in library.calls))
    return filled(template, library.name, TITLE=comment_text(title), **parts).encode()


def _launches(library: KernelLibrary, indices: Mapping[str, int]) -> str:
    """A table of launches for each call."""

    def row(kernel: ExportedKernel) -> str:
        launch, device = kernel.launch, library.devices.index(kernel.device)
        sizes = (
            f"{{{', '.join(f'{size}u' for size in sizes)}}}"
            for sizes in (launch.grid, launch.block)
        )
        first = numbers(device, indices[kernel.program.key])
        return f"{{{first}, {', '.join(sizes)}, {launch.shared}u}}"

    return "\n\n".join(
        table("Launch", f"LAUNCHES_{number}", map(row, kernels))
        for number, kernels in enumerate(library.calls.values())
    )


def _comment(call: KernelCall, kernels: Sequence[ExportedKernel]) -> str:
    times = (
        f"{kernel.device.name}: {kernel.entry.measurement.time_us:.4g} us, {kernel.entry.config}"
        for kernel in kernels
    )
    return comment(str(call), *times)


def _prototype(call: KernelCall, function: str) -> str:
    arguments = [
        f"{_C_TYPES[argument_type(text)]}argument{place}"
        for place, text in enumerate(call.arguments)
    ]
    return f"int {function}({', '.join((*arguments, 'CUstream stream'))})"


def _body(number: int, call: KernelCall, function: str) -> str:
    """The function that launches a call."""
    addresses = [f"&argument{place}" for place in range(len(call.arguments))] or ["NULL"]
    table = f"LAUNCHES_{number}"
    return (
        f"{_prototype(call, function)} {{\n"
        f"    void *arguments[] = {{{', '.join(addresses)}}};\n"
        f"    const int count = (int)(sizeof {table} / sizeof *{table});\n"
        f"    return launched({table}, count, arguments, stream);\n"
        "}"
    )


def _choice(kernels: Sequence[ExportedKernel]) -> list[str]:
    """The macros of a call, chosen by device if there are several."""
    if len(kernels) == 1:
        return _macros(kernels[0])
    first, *rest = kernels
    lines: list[str] = []
    for place, kernel in enumerate(rest):
        target = re.sub(r"\W", "_", kernel.device.slug).upper()
        lines += [f"{'#elif' if place else '#if'} defined TARGET_{target}", *_macros(kernel)]
    return [*lines, f"#else {comment(first.device.name)}", *_macros(first), "#endif"]


def _macros(kernel: ExportedKernel) -> list[str]:
    launch, name = kernel.launch, re.sub(r"\W", "_", kernel.entry.config.family).upper()
    sizes = {
        **{f"{name}_GRID_{axis}": size for axis, size in zip("XYZ", launch.grid, strict=True)},
        **{f"{name}_BLOCK_{axis}": size for axis, size in zip("XYZ", launch.block, strict=True)},
        f"{name}_SHARED": launch.shared,
    }
    values: Mapping[str, Value] = kernel.entry.config.values | sizes
    for macro, value in values.items():
        if not is_macro_name(macro) or (isinstance(value, str) and not _WORD.fullmatch(value)):
            raise AutotuneError(
                f"{macro}={value} of {kernel.entry.config} is no macro for other programs: format "
                "h takes numbers and the names of types; give c or cubin"
            )
    return [f"#define {macro} {value}" for macro, value in values.items()]
