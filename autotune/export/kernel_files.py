"""Single kernels as files: machine code, PTX or a source of their own."""

from __future__ import annotations

from collections.abc import Callable

from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.export.library import ExportedLibrary
from autotune.export.portable import ptx_of
from autotune.export.source import specialised
from autotune.families.plan import Launch

Content = Callable[[Launch, Program, str], bytes]


def kernel_files(library: ExportedLibrary, format: str) -> dict[str, tuple[str, bytes]]:
    """The file name and content of each kernel of a library, by the key of its program.

    Raises:
        AutotuneError: if a kernel does not compile to PTX.
    """
    content = _CONTENT[format]
    files: dict[str, tuple[str, bytes]] = {}
    for gemm in library.gemms:
        title = f"{gemm.problem} on {gemm.device.name}"
        for launch, program in zip(gemm.plan.launches, gemm.programs, strict=True):
            if program.key not in files:
                stem = f"{library.name}-{program.template.kernel}-{len(files)}-{program.arch}"
                files[program.key] = f"{stem}.{format}", content(launch, program, title)
    return files


def _cubin(launch: Launch, program: Program, title: str) -> bytes:
    del launch, title
    return program.cubin


def _ptx(launch: Launch, program: Program, title: str) -> bytes:
    del launch, title
    return ptx_of(program, lambda program: compiler.ptx(program.template, program.arch))


def _cu(launch: Launch, program: Program, title: str) -> bytes:
    return specialised(launch, program, title).encode()


_CONTENT: dict[str, Content] = {"cubin": _cubin, "ptx": _ptx, "cu": _cu}
KERNEL_FORMATS = tuple(_CONTENT)
