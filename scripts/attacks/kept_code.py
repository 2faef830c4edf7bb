"""Samples and readers of compiled programs and export manifests."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from support.fake_runner import program

from autotune.cuda import cache as programs
from autotune.cuda.program import Program
from autotune.errors import AutotuneError
from autotune.export.files import MADE_BY, replace_files
from autotune.families.plan import Template
from autotune.records.inventory import scan

TEMPLATE = Template("tiled.cu", "tiled", (("TILE_WIDTH", 16),))
KEY = sha256(b"sample").hexdigest()
CUBIN = bytes(range(256)) * 8


def sample_program(cubin: bytes) -> Program:
    """A program with made-up machine code."""
    return replace(program(TEMPLATE, "sm_90"), cubin=cubin, key=KEY)


def program_file() -> bytes:
    """The file of the sample program."""
    with tempfile.TemporaryDirectory() as folder:
        programs.cached(Path(folder), KEY, TEMPLATE, "sm_90", lambda: sample_program(CUBIN))
        (path,) = programs.paths(Path(folder))
        return path.read_bytes()


def read_program(folder: Path) -> list[str]:
    """Takes the program from the cache, or compiles it again."""
    built = sample_program(b"built again")
    result = programs.cached(folder, KEY, TEMPLATE, "sm_90", lambda: built)
    intact = sample_program(CUBIN)
    _ = [*scan(folder, thorough=True)]
    return [] if result in (built, intact) else ["a changed program was accepted"]


EXPORTED = {"gemm.c": b"int gemm;\n", "gemm.h": b"extern int gemm;\n"}


def manifest() -> bytes:
    """The manifest of the sample export."""
    digests = {name: sha256(content).hexdigest() for name, content in EXPORTED.items()}
    return json.dumps({"made_by": f"{MADE_BY}0", "files": digests}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> list[str]:
    """Exports again into the same folder."""
    foreign = folder / "gemm.c"
    foreign.write_bytes(b"edited by the user\n")
    new = {"gemm.c": b"int newer;\n", "gemm.h": b"extern int newer;\n", "gemm.json": manifest()}
    with suppress(AutotuneError):
        replace_files(folder, "gemm.json", new)
    kept = foreign.read_bytes() == b"edited by the user\n"
    return [] if kept else ["an edited file was overwritten"]
