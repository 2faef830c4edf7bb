"""The files of a C library: the template library `gemm`, renamed and filled with tables."""

from __future__ import annotations

import re
from importlib import resources

from autotune.export.library import ExportedLibrary
from autotune.export.readme import readme
from autotune.export.tables import shapes, tables
from autotune.version import __version__

_TEMPLATE_NAME = "gemm"


def project(library: ExportedLibrary) -> dict[str, bytes]:
    """The content of every file, by its name."""
    name = library.name
    files = {
        f"{name}.h": _filled("gemm.h", name),
        f"{name}.c": _filled("gemm.c", name).replace("/* @TABLES@ */", tables(library)),
        "main.c": _filled("main.c", name).replace("/* @SHAPES@ */", shapes(library)),
        "CMakeLists.txt": _filled("CMakeLists.txt", name),
        f"{name}.pc.in": _filled("gemm.pc.in", name),
        "README.md": readme(library),
    }
    return {path: text.encode() for path, text in files.items()}


def _filled(template: str, name: str) -> str:
    """A template with `gemm` replaced by the library's name wherever a word is it or starts with
    it and an underscore."""
    source = resources.files("autotune.export") / "templates" / template
    text = source.read_text(encoding="utf-8")
    text = text.replace("@VERSION@", __version__).replace("@NAME@", name)
    for own, new in ((_TEMPLATE_NAME, name), (_TEMPLATE_NAME.upper(), name.upper())):
        text = re.sub(rf"(?<![A-Za-z0-9_]){own}(?=_|(?![A-Za-z0-9_]))", new, text)
    return text
