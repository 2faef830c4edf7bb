"""The files of a C library: the template library `gemm`, renamed and filled with tables."""

from __future__ import annotations

from autotune.export.filling import filled
from autotune.export.library import ExportedLibrary
from autotune.export.readme import readme
from autotune.export.tables import kernels, shapes, tables


def project(library: ExportedLibrary, *, bench: bool = False) -> dict[str, bytes]:
    """The content of every file, by its name; with `bench`, of the program that times them too."""
    name = library.name
    files = {
        f"{name}.h": filled("gemm.h", name),
        f"{name}.hpp": filled("gemm.hpp", name),
        f"{name}.c": filled(
            "gemm.c", name, KERNELS=kernels(library).text(), TABLES=tables(library)
        ),
        "main.c": filled("main.c", name, SHAPES=shapes(library)),
        "CMakeLists.txt": filled("CMakeLists.txt", name),
        f"{name}.pc.in": filled("gemm.pc.in", name),
        "README.md": readme(library),
    }
    if bench:
        files["bench.c"] = filled("bench.c", name, SHAPES=shapes(library))
    return {path: text.encode() for path, text in files.items()}
