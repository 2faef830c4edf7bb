"""Writes exports: the formats, and the way from shapes and devices to files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import settings
from autotune.cuda import compiler
from autotune.device import Device
from autotune.errors import UsageError, require_list
from autotune.export.document import document, readme
from autotune.export.files import WrittenExport, write_export
from autotune.export.library import ExportedLibrary, check_ptx, gather, ptx_file
from autotune.export.source import KERNEL_FORMATS, compiled_ptx, kernel_files
from autotune.export.tables import given, kernels, shapes, tables, vendor_shapes, words
from autotune.export.text import check_name, filled, fragment
from autotune.lookup import batch_invariant as invariant
from autotune.lookup.lookup import finder
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.problem import ProblemDefaults, ProblemLike, problems_of
from autotune.records import Records, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        cublaslt: whether a library calls cuBLASLt, where it is installed, for the shapes that
            cuBLAS was measured to be faster on.
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
    _check_format(format)
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


def _check_format(format: str) -> None:
    """Refuses a format that is not one of `FORMATS`.

    Raises:
        UsageError: with the formats that exist.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; give one of {', '.join(FORMATS)}")


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
    _check_format(format)
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


_VENDOR_OF = "vendor_of({}, &given, plan, card, ordinal)"
_VENDOR_BYTES = "counter_bytes() + vendor_workspace(plan)"
_VENDOR_CALLS = {
    "VENDOR_SIZE": f"if ({_VENDOR_OF.format('product')}) *bytes = {_VENDOR_BYTES};",
    "VENDOR_RUN": f"""{{
        const Vendor *shape = {_VENDOR_OF.format("product")};
        status = shape ? vendor_launched(shape, product, ordinal, workspace, bytes, stream) : -1;
        if (status >= 0) return status;
    }}""",
    "VENDOR_CHOICE": f"""if ({_VENDOR_OF.format("product")}) {{
        choice->config = "cublaslt", choice->launches = 1;
        choice->workspace = {_VENDOR_BYTES};
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
        cublaslt: whether cuBLASLt computes the problems that it was faster on.
    """
    name = library.name
    vendor = dict.fromkeys(("VENDOR", *_VENDOR_CALLS), "")
    if cublaslt and any(gemm.vendor for gemm in library.gemms):
        code = f"{vendor_shapes(library)}\n\n{fragment('cublaslt.c', name)}"
        vendor = {"VENDOR": code, **_VENDOR_CALLS}
    files = {
        f"{name}.h": filled("gemm.h", name),
        f"{name}.hpp": filled("gemm.hpp", name),
        f"{name}.c": filled(
            *("gemm.c", name),
            WORDS=words(),
            GIVEN=given(),
            KERNELS=kernels(library),
            TABLES=tables(library),
            **vendor,
        ),
        "main.c": filled("main.c", name, SHAPES=shapes(library)),
        "CMakeLists.txt": filled("CMakeLists.txt", name),
        f"{name}.pc.in": filled("gemm.pc.in", name),
        "README.md": readme(library, cublaslt=cublaslt),
    }
    if bench:
        files["bench.c"] = filled("bench.c", name, SHAPES=shapes(library))
    return {path: text.encode() for path, text in files.items()}
