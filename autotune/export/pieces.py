"""Single kernels as files: machine code, PTX or a source, with the launch plans in JSON beside."""

from __future__ import annotations

from collections.abc import Callable

from autotune import compiler
from autotune.compiler import Program
from autotune.errors import AutotuneError
from autotune.export.library import Library
from autotune.export.source import specialised
from autotune.families.plan import Launch

Made = Callable[[Launch, Program, str], bytes]


def pieces(library: Library, form: str) -> dict[str, tuple[str, bytes]]:
    """The name and the content of a file for each kernel of a library, by the program's key.

    Raises:
        AutotuneError: if a kernel cannot be made into PTX.
    """
    made = _MAKERS[form]
    found: dict[str, tuple[str, bytes]] = {}
    for product in library.products:
        title = f"{product.problem} on {product.device.name}"
        for launch, program in zip(product.plan.launches, product.programs, strict=True):
            if program.key not in found:
                file = f"{library.name}-{program.template.kernel}-{len(found)}-{program.arch}"
                found[program.key] = f"{file}.{form}", made(launch, program, title)
    return found


def _cubin(launch: Launch, program: Program, title: str) -> bytes:
    del launch, title
    return program.cubin


def _ptx(launch: Launch, program: Program, title: str) -> bytes:
    del launch, title
    text = compiler.ptx(program.template, program.arch)
    if isinstance(text, compiler.CompileFailure):
        raise AutotuneError(
            f"{program.template.expression} gives no PTX for {program.arch}: {text.reason}"
        )
    return text


def _cu(launch: Launch, program: Program, title: str) -> bytes:
    return specialised(launch, program, title).encode()


_MAKERS: dict[str, Made] = {"cubin": _cubin, "ptx": _ptx, "cu": _cu}
FORMS = tuple(_MAKERS)
