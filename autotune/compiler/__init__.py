"""Kernel templates to cubins, through NVRTC and a content-addressed cache."""

from __future__ import annotations

from autotune.compiler.compilation import (
    compile,
    compiler_version,
    keys,
    named_keys,
    ptx,
    stop_compiling,
)
from autotune.compiler.program import CompileFailure, Program
from autotune.compiler.sources import source_hash, source_hashes

__all__ = [
    "CompileFailure",
    "Program",
    "compile",
    "compiler_version",
    "keys",
    "named_keys",
    "ptx",
    "source_hash",
    "source_hashes",
    "stop_compiling",
]
