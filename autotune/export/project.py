"""The files of a C library: the template library `gemm`, renamed and filled with tables."""

from __future__ import annotations

from autotune.export.filling import filled, fragment
from autotune.export.library import ExportedLibrary
from autotune.export.readme import readme
from autotune.export.tables import given, kernels, shapes, tables, vendor_shapes, words

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
            KERNELS=kernels(library).text(),
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
