"""Recorded kernels for programs without Python: a C library, or single kernels with their plans.

    from autotune import export
    export.write(["4096x4096x4096:bf16"], "lib", "gemm", devices=["h100"])
    export.write_kernels(["transpose"], "lib")    # kernels that `tune_kernel` recorded

An export launches exactly what `autotune.matmul` launches; `document` states its plans as JSON.
"""

from autotune.export.files import WrittenExport
from autotune.export.library import ExportedGemm, ExportedLibrary, gather
from autotune.export.user_kernels import write_kernels
from autotune.export.writer import FORMATS, write, write_library

__all__ = [
    "FORMATS",
    "ExportedGemm",
    "ExportedLibrary",
    "WrittenExport",
    "gather",
    "write",
    "write_kernels",
    "write_library",
]
