"""Writes exports of user kernels: from their names to files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import NotFoundError, UsageError, require_list
from autotune.export.exported_kernels import KernelLibrary, gather_kernels
from autotune.export.files import replace_files
from autotune.export.kernel_project import (
    cubin_files,
    cubin_names,
    kernel_document,
    kernel_project,
    values_header,
)
from autotune.export.names import check_name
from autotune.export.portable import check_ptx
from autotune.families.plan import Template
from autotune.records import KernelRecord, Store
from autotune.runners.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.targets import targets
from autotune.targets.sources import DeviceLike
from autotune.user_kernels.sources import unpacked

USER_KERNEL_FORMATS = ("c", "h", "cubin", "json")


@dataclass(frozen=True)
class WrittenKernels:
    """An export of user kernels on disk.

    Attributes:
        library: the exported kernels.
        files: their paths.
    """

    library: KernelLibrary
    files: tuple[Path, ...]


def write_kernels(
    names: Sequence[str],
    directory: Path | str,
    name: str | None = None,
    *,
    devices: Sequence[DeviceLike] = (),
    format: str = "c",
    objective: ObjectiveText | Objective = HOT,
    ptx: bool = False,
) -> WrittenKernels:
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
        UsageError: for an unknown format or device, or a name that is no identifier.
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
    prefix = check_name(name or records[0].call.name.rpartition("::")[2])
    cache = settings.cache_dir()

    def build(
        template: Template, arch: str, folder: Path, folders: tuple[Path, ...]
    ) -> Program | CompileFailure:
        return compiler.compile(template, arch, cache=cache, sources=folder, includes=folders)

    def build_ptx(
        template: Template, arch: str, folder: Path, folders: tuple[Path, ...]
    ) -> bytes | CompileFailure:
        return compiler.ptx(template, arch, sources=folder, includes=folders)

    library = gather_kernels(prefix, records, build, unpacked, decides, build_ptx if ptx else None)
    return WrittenKernels(library, write_kernel_library(library, Path(directory), format))


def write_kernel_library(library: KernelLibrary, directory: Path, format: str) -> tuple[Path, ...]:
    """Writes user kernels to a directory, with the SHA-256 of every file in `NAME.json`.

    Raises:
        AutotuneError: as `write_kernels`.
    """
    files: dict[str, bytes] = {}
    if format == "c":
        files = kernel_project(library)
    elif format == "h":
        files = values_header(library)
    elif format == "cubin":
        files = cubin_files(library)
    data = kernel_document(library, cubin_names(library) if format == "cubin" else {})
    data["files"] = {file: sha256(content).hexdigest() for file, content in files.items()}
    manifest = f"{library.name}.json"
    text = json.dumps(data, indent=1, allow_nan=False).encode() + b"\n"
    return replace_files(directory, manifest, {**files, manifest: text})


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
