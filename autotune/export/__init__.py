"""Recorded kernels for programs without Python: a C library, or single kernels with their plans.

    from autotune import export
    export.write(["4096x4096x4096:bf16"], "lib", "gemm", devices=["h100"])

The launch plans are those that the run time launches; `document` has them as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from autotune import compiler, settings
from autotune.errors import UsageError
from autotune.export.document import document
from autotune.export.library import ExportedGemm, Library, gather
from autotune.export.names import check_name
from autotune.export.names import write as write_files
from autotune.export.pieces import FORMS, pieces
from autotune.export.project import project
from autotune.lookup.lookup import lookup
from autotune.problem import Problem, compute_of
from autotune.records import Store
from autotune.targets import targets

__all__ = ["FORMATS", "Exported", "ExportedGemm", "Library", "gather", "write", "write_library"]

FORMATS = ("c", *FORMS, "json")


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        library: what it holds.
        files: where they are.
    """

    library: Library
    files: tuple[Path, ...]


def write(
    shapes: Sequence[str | Problem],
    directory: Path | str,
    name: str = "gemm",
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    devices: Sequence[str] = (targets.DEFAULT,),
    format: str = "c",
) -> Exported:
    """Exports products as `lookup` answers for them, and says in the README and the JSON which were
    tuned, taken from other shapes or predicted. Needs no GPU if the devices are named.

    Args:
        shapes: such as `4096x4096x4096` or `512x512x64:bf16:batch=8`; what a text leaves out is
            taken from the words after the name.
        directory: where the files go; it is made if it is not there.
        name: of the library, its functions and its files: a C identifier.
        compute, layout, batch, epilogue, output, accuracy: of shapes that do not say.
        devices: what the kernels are for, as `tune` takes them.
        format: `c`, a library with all kernels in it and general ones for other shapes; `cubin`,
            `ptx`, `cu`, a file for each kernel, with `NAME.json` beside it; `json`, that alone.

    Raises:
        UsageError: for a shape, device, format or name that is none.
        NotFoundError: if no kernel can run one of the products.
        AutotuneError: if a kernel does not compile, the folder holds files of the same names that
            an export did not leave so, or it cannot be written.
    """
    if not shapes or not devices:
        raise UsageError("an export without shapes or devices; give at least one of each")
    words = compute_of(compute, accuracy), layout, batch, epilogue, output
    problems = [one if isinstance(one, Problem) else _parsed(one, *words) for one in shapes]
    check_name(name)
    check_format(format)
    places = [targets.resolve(one) for one in devices]
    for place in places:
        targets.check_compilable(place)
    cache = settings.cache_dir()
    library = gather(
        name,
        problems,
        places,
        partial(lookup, store=Store(cache)),
        partial(compiler.compile, cache=cache),
        fallback=format == "c",
    )
    return Exported(library, write_library(library, Path(directory), format))


def _parsed(
    text: str, compute: str, layout: str, batch: int, epilogue: str, output: str
) -> Problem:
    return Problem.parse(
        text, compute=compute, layout=layout, batch=batch, epilogue=epilogue, output=output
    )


def check_format(format: str) -> None:
    """Refuses what is none of `FORMATS`.

    Raises:
        UsageError: with those that there are.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; give one of {', '.join(FORMATS)}")


def write_library(library: Library, directory: Path, format: str) -> tuple[Path, ...]:
    """Writes a library into a directory; `NAME.json` has its plans and the SHA-256 of all files.

    Raises:
        AutotuneError: as `write`.
    """
    check_name(library.name)
    check_format(format)
    parts = pieces(library, format) if format in FORMS else {}
    files = project(library) if format == "c" else dict(parts.values())
    data = document(library, {key: file for key, (file, _) in parts.items()})
    data["files"] = {file: sha256(content).hexdigest() for file, content in files.items()}
    manifest = f"{library.name}.json"
    text = json.dumps(data, indent=1, allow_nan=False).encode() + b"\n"
    return write_files(directory, manifest, {**files, manifest: text})
