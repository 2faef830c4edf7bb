"""Exports of user kernels: recorded calls, compiled: a C library, a header, machine code, JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError, UsageError, require_list
from autotune.export.document import head, launch_json, programs_json
from autotune.export.files import WrittenExport, write_export
from autotune.export.library import CompiledKernels, check_ptx, portable_ptx, ptx_file
from autotune.export.tables import kernel_indices, kernels
from autotune.export.text import check_name, comment, comment_text, filled, numbers, table
from autotune.families.config import Value
from autotune.families.plan import Argument, ArgumentType, Launch, LaunchPlan
from autotune.files.decoding import is_macro_name
from autotune.measure import targets
from autotune.measure.devices import DeviceLike
from autotune.measure.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.records.kernel_record import KernelEntry, argument_type, determined
from autotune.user_kernels.source import compiled, unpacked


@dataclass(frozen=True)
class ExportedKernel:
    """A recorded call of a user kernel on a device, compiled.

    Attributes:
        record: the record.
        entry: the exported configuration.
        plan: its launches.
        programs: their machine code.
    """

    record: KernelRecord
    entry: KernelEntry
    plan: LaunchPlan
    programs: tuple[Program, ...]

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch with its program, in their order."""
        return tuple(zip(self.plan.launches, self.programs, strict=True))

    @property
    def call(self) -> KernelCall:
        """The kernel's name and arguments."""
        return self.record.call

    @property
    def device(self) -> Device:
        """The device it was tuned on."""
        return self.record.device


@dataclass(frozen=True)
class KernelLibrary(CompiledKernels):
    """User kernels to export."""

    name: str
    devices: tuple[Device, ...]
    kernels: tuple[ExportedKernel, ...]
    ptx: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch with its program."""
        return tuple(launch for kernel in self.kernels for launch in kernel.launches)

    @property
    def calls(self) -> dict[KernelCall, tuple[ExportedKernel, ...]]:
        """The kernels of each call, one for each device."""
        calls = dict.fromkeys(kernel.call for kernel in self.kernels)
        return {
            call: tuple(kernel for kernel in self.kernels if kernel.call == call) for call in calls
        }

    @property
    def functions(self) -> dict[KernelCall, str]:
        """The function of each call: the library's name, with a number if there are several."""
        calls = self.calls
        if len(calls) == 1:
            return dict.fromkeys(calls, self.name)
        return {call: f"{self.name}_{number}" for number, call in enumerate(calls)}


def gather_kernels(
    name: str, records: Sequence[KernelRecord], objective: Objective = HOT, *, ptx: bool = False
) -> KernelLibrary:
    """Compiles the best configuration of each record for its device.

    Args:
        name: the name of the library.
        records: records to export.
        objective: objective that chooses a configuration.
        ptx: whether to add the PTX of the kernels, for later GPUs.

    Raises:
        NotFoundError: if a record does not have its source.
        AutotuneError: if a kernel does not compile.
    """
    kernels = sorted(
        (_compiled(record, objective) for record in records), key=lambda kernel: kernel.record.title
    )
    devices = tuple(dict.fromkeys(kernel.device for kernel in kernels))
    library = KernelLibrary(name, devices, tuple(kernels))
    if not ptx:
        return library
    sources = {
        program.key: kernel.entry.launchable().source
        for kernel in kernels
        for program in kernel.programs
    }

    def compile(program: Program) -> bytes | CompileFailure:
        with unpacked(sources[program.key]) as (folder, includes):
            return compiler.ptx(
                program.template,
                program.arch,
                sources=folder,
                includes=includes,
                symbol=program.symbol,
            )

    return replace(library, ptx=portable_ptx(library.programs.values(), compile))


def _compiled(record: KernelRecord, objective: Objective) -> ExportedKernel:
    entry = record.best_by(objective)
    assert isinstance(entry, KernelEntry)
    return ExportedKernel(record, entry, *compiled(entry, record.device.arch))


_WORD = re.compile(r"[\w:<>*& ]+")
"""A word that cannot call a function: the name of a type or of a value."""

UNCHOSEN = "define CALL as the number of a call below"

_C_TYPES: dict[ArgumentType, str] = {
    **{"pointer": "void *", "f32": "float ", "f64": "double "},
    **{"i8": "int8_t ", "i16": "int16_t ", "i32": "int32_t ", "i64": "int64_t "},
    **{"u8": "uint8_t ", "u16": "uint16_t ", "u32": "uint32_t ", "u64": "uint64_t "},
}


def kernel_project(library: KernelLibrary) -> dict[str, bytes]:
    """The header and the source of a C library, by their names.

    Raises:
        UsageError: for an argument that the configuration determines, or other kernels on one
            device than on another.
    """
    for call, exported in library.calls.items():
        if places := determined(call.arguments):
            raise UsageError(
                f"format c cannot export {call}: {call.arguments[places[0]]} differs by "
                "configuration; give cubin or json, which state it, or tune with arrays and numbers"
            )
        if len({tuple(step.arguments for step in each.plan.launches) for each in exported}) > 1:
            raise UsageError(
                f"format c cannot export {call} with other kernels on some devices: give devices"
            )
    prototypes, bodies = [], []
    for number, (call, exported) in enumerate(library.calls.items()):
        function = library.functions[call]
        prototypes.append(f"{_comment(call, exported)}\n{_prototype(call, function)};")
        bodies.append(_body(number, exported[0], function))
    source = {
        "KERNELS": kernels(library),
        "TABLES": _launches(library),
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
    for number, (call, exported) in enumerate(library.calls.items()):
        if several:
            lines += [f"#elif CALL == {number}"]
        lines += [_comment(call, exported), *_choice(exported)]
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
    calls = [
        {
            "function": library.functions[kernel.call],
            "call": str(kernel.call),
            "arguments": list(kernel.call.arguments),
            **({"constants": list(kernel.call.constants)} if kernel.call.constants else {}),
            "device": kernel.device.to_json(),
            "config": str(kernel.entry.config),
            "params": kernel.entry.config.values,
            "time_us": kernel.entry.measurement.time_us,
            "verified": kernel.record.verified,
            **_launches_json(kernel),
        }
        for kernel in library.kernels
    ]
    return {**head(library), "kernels": programs_json(library, files), "calls": calls}


def _launches_json(kernel: ExportedKernel) -> dict[str, object]:
    """The single launch, or all in their order with the scratch memory that they share."""
    launches = [
        launch_json(launch, program) | ({"cooperative": True} if launch.cooperative else {})
        for launch, program in kernel.launches
    ]
    scratch = [piece._asdict() for piece in kernel.plan.pieces]
    return {
        **({"launch": launches[0]} if len(launches) == 1 else {"launches": launches}),
        **({"workspace": kernel.plan.workspace, "scratch": scratch} if scratch else {}),
    }


def _filled(template: str, library: KernelLibrary, **parts: str) -> bytes:
    title = ", ".join(dict.fromkeys(call.name for call in library.calls))
    return filled(template, library.name, TITLE=comment_text(title), **parts).encode()


def _launches(library: KernelLibrary) -> str:
    """A table for each call, with the launches of each device in their order."""
    indices = kernel_indices(library)

    def row(kernel: ExportedKernel, launch: Launch, program: Program) -> str:
        device = library.devices.index(kernel.device)
        sizes = (
            f"{{{', '.join(f'{size}u' for size in sizes)}}}"
            for sizes in (launch.grid, launch.block)
        )
        first = numbers(device, indices[program.key])
        return f"{{{first}, {', '.join(sizes)}, {launch.shared}u, {int(launch.cooperative)}}}"

    return "\n\n".join(
        table(
            "Launch",
            f"LAUNCHES_{number}",
            (row(kernel, *launch) for kernel in exported for launch in kernel.launches),
        )
        for number, exported in enumerate(library.calls.values())
    )


def _comment(call: KernelCall, kernels: Sequence[ExportedKernel]) -> str:
    times = (
        f"{kernel.device.name}: {kernel.entry.measurement.time_us:.4g} us, {kernel.entry.config}"
        for kernel in kernels
    )
    return comment(str(call), *times)


def _prototype(call: KernelCall, function: str) -> str:
    arguments = [f"{_c_type(text)}argument{place}" for place, text in enumerate(call.arguments)]
    return f"int {function}({', '.join((*arguments, 'CUstream stream'))})"


def _c_type(text: str) -> str:
    """The C type of an argument; a structure or complex number is a pointer to its bytes."""
    type = argument_type(text)
    return "const void *" if isinstance(type, int) else _C_TYPES[type]


def _body(number: int, kernel: ExportedKernel, function: str) -> str:
    """The function that launches a call; all devices have the same kernels in the same order."""
    table, count = f"LAUNCHES_{number}", len(kernel.plan.launches)
    arrays = ""
    for place, launch in enumerate(kernel.plan.launches):
        addresses = ", ".join(map(_address, launch.arguments)) or "NULL"
        arrays += f"    void *arguments{place}[] = {{{addresses}}};\n"
    names = ", ".join(f"arguments{place}" for place in range(count))
    return (
        f"{_prototype(kernel.call, function)} {{\n{arrays}"
        f"    void **arguments[] = {{{names}}};\n"
        f"    const int count = (int)(sizeof {table} / sizeof *{table});\n"
        f"    return launched({table}, count, {count}, arguments, stream);\n"
        "}"
    )


def _address(argument: Argument) -> str:
    """The address of an argument in C; a structure is passed by it."""
    word = str(argument.value).replace(" ", "")
    return f"(void *){word}" if isinstance(argument.type, int) else f"&{word}"


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
    sizes: dict[str, int] = {}
    for launch in kernel.plan.launches:
        name = re.sub(r"\W", "_", launch.template.kernel.rpartition("::")[2]).upper()
        if f"{name}_SHARED" in sizes:
            raise UsageError(
                f"format h has one launch a kernel, {kernel.call} has several of {name}"
            )
        for extent, along in (("GRID", launch.grid), ("BLOCK", launch.block)):
            names = (f"{name}_{extent}_{axis}" for axis in "XYZ")
            sizes |= zip(names, along, strict=True)
        sizes[f"{name}_SHARED"] = launch.shared
    values: Mapping[str, Value] = kernel.entry.config.values | sizes
    for macro, value in values.items():
        if not is_macro_name(macro) or (isinstance(value, str) and not _WORD.fullmatch(value)):
            raise AutotuneError(
                f"{macro}={value} of {kernel.entry.config} is not a macro for other programs: "
                "format h takes numbers and the names of types; give c or cubin"
            )
    return [f"#define {macro} {value}" for macro, value in values.items()]


USER_KERNEL_FORMATS = ("c", "h", "cubin", "json")


def write_kernels(
    names: Sequence[str],
    directory: Path | str,
    name: str | None = None,
    *,
    devices: Sequence[DeviceLike] = (),
    format: str = "c",
    objective: ObjectiveText | Objective = HOT,
    ptx: bool = False,
) -> WrittenExport[KernelLibrary]:
    """Exports what `tune_kernel` recorded of user kernels. Needs no GPU.

    Args:
        names: the kernels, by their names, calls or slugs, as `autotune cache list` shows them.
        directory: the folder of the files; created if it does not exist.
        name: a C identifier, for the functions and files; by default the first kernel's name.
        devices: the GPUs to export for; by default all that the kernels were tuned on.
        format: `c`, a library with a function for each call; `h`, a header with the best values of
            the parameters; `cubin`, a file for each kernel and `NAME.json`; `json`, that alone.
        objective: what chooses the configuration: the `hot` or `cold` time, or `energy`.
        ptx: whether to add the kernels' PTX to `c` or `cubin`, for GPUs newer than the devices.

    Raises:
        UsageError: for an unknown format or device, or a name that is not an identifier.
        NotFoundError: if a kernel is not recorded, or its record has no source.
        AutotuneError: if a kernel does not compile, or the folder cannot be written.
    """
    if format not in USER_KERNEL_FORMATS:
        raise UsageError(
            f"user kernels have no format {format!r}; give one of {', '.join(USER_KERNEL_FORMATS)}"
        )
    check_ptx(format, ptx)
    decides = objective_named(objective)
    require_list("names", names)
    require_list("devices", devices)
    records = _records(names, devices)
    for record in records:
        if format == "c" and record.call.constants:
            raise UsageError(
                f"{record.call} has constants, which format c cannot fill; give h, cubin or json, "
                "and fill them by cuModuleGetGlobal"
            )
    prefix = check_name(name or records[0].call.name.rpartition("::")[2])
    library = gather_kernels(prefix, records, decides, ptx=ptx)
    return WrittenExport(library, _write(library, Path(directory), format))


def _write(library: KernelLibrary, directory: Path, format: str) -> tuple[Path, ...]:
    files: dict[str, bytes] = {}
    if format == "c":
        files = kernel_project(library)
    elif format == "h":
        files = values_header(library)
    elif format == "cubin":
        files = cubin_files(library)
    data = kernel_document(library, cubin_names(library) if format == "cubin" else {})
    return write_export(directory, library.name, data, files)


def _records(names: Sequence[str], devices: Sequence[DeviceLike]) -> list[KernelRecord]:
    """The records of kernels, on some devices or on all."""
    store = Store(settings.cache_dir())
    slugs = {targets.resolve(device).slug for device in devices}
    records: dict[str, KernelRecord] = {}
    for name in names:
        named = [
            record for record in store.kernels(name) if not slugs or record.device.slug in slugs
        ]
        if not named:
            where = "" if not devices else f" on {', '.join(map(str, devices))}"
            raise NotFoundError(
                f"no kernel {name!r} is recorded{where} in {store.root}; see `autotune cache list`"
            )
        records |= {f"{record.device.slug} {record.title}": record for record in named}
    return list(records.values())
