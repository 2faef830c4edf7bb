"""Exported libraries with real kernels, built and called through ctypes."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from support import exported_library
from support.paths import ROOT

from autotune.cuda import compiler
from autotune.device import Device
from autotune.export import ExportedLibrary, gather, write_library
from autotune.families.config import Config
from autotune.lookup.answer import Answer
from autotune.problem import COMPUTES, EPILOGUES, LAYOUTS, OUTPUTS, SCALES, Problem
from autotune.problem.fields import ACCUMULATES, E5M2_OPERANDS

_HEADER = ROOT / "autotune" / "export" / "templates" / "gemm.h"
_TYPES = {"int64_t": ctypes.c_int64, "int": ctypes.c_int, "float": ctypes.c_float}


def _fields(struct: str) -> Iterator[tuple[str, Any]]:
    """The fields of a struct of the header."""
    text = re.sub(r"/\*.*?\*/", "", _HEADER.read_text("utf-8"), flags=re.DOTALL)
    _, _, rest = text.partition(f"typedef struct {struct} {{")
    body, _, _ = rest.partition(f"}} {struct};")
    for type, names in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
        for name in names.split(","):
            pointer = "*" in name
            yield name.strip(" *"), ctypes.c_void_p if pointer else _TYPES[type]


class Product(ctypes.Structure):
    """`gemm_product` of the header."""

    _fields_ = (*_fields("gemm_product"),)


def gemm_call(problem: Problem, **arguments: Any) -> Product:
    """A call with its pointers, and with strides and factors if they are passed."""
    codes = (
        COMPUTES.index(problem.compute),
        LAYOUTS.index(problem.layout),
        EPILOGUES.index(problem.epilogue),
        OUTPUTS.index(problem.output),
    )
    call = Product(problem.m, problem.n, problem.k, problem.batch, *codes)
    call.scale = SCALES.index(problem.scale)
    call.accumulate = ACCUMULATES.index(problem.accumulate)
    call.e5m2 = E5M2_OPERANDS.index(problem.e5m2)
    for name, value in ({"alpha": 1.0} | arguments).items():
        setattr(call, name, value)
    return call


@dataclass(frozen=True)
class Built:
    """A library as a shared object.

    Attributes:
        folder: the folder of its files.
        shared: its functions.
        library: its contents.
    """

    folder: Path
    shared: Any
    library: ExportedLibrary

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function, which must succeed."""
        status = getattr(self.shared, f"lib_{function}")(*arguments)
        self.shared.lib_message.restype = ctypes.c_char_p
        message = self.shared.lib_message(status).decode()
        assert status == 0, f"{function}: {message} ({self.shared.lib_driver_error()})"

    def workspace(self, gemm: Product) -> int:
        """Bytes of workspace that a call needs."""
        size = ctypes.c_size_t()
        self.call("workspace_size", ctypes.byref(gemm), ctypes.byref(size))
        return size.value

    def matmul(self, gemm: Product, workspace: int, size: int, stream: int) -> None:
        """Enqueues a call."""
        places = ctypes.c_void_p(workspace), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        self.call("matmul", ctypes.byref(gemm), *places)

    def prepare(self, workspace: int, size: int, stream: int) -> None:
        """Enqueues the zeroing of a workspace's counters."""
        places = ctypes.c_void_p(workspace), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        self.call("prepare_workspace", *places)


def exported(
    folder: Path, configs: Mapping[Problem, Config], device: Device, programs: Path
) -> Built:
    """Exports problems with their configurations for a device and builds the library."""

    def find(problem: Problem, device: Device) -> Answer:
        return exported_library.answer_of(problem, device, configs[problem])

    build = partial(compiler.compile, cache=programs)
    return compiled(folder, gather("lib", list(configs), [device], find, build))


def compiled(folder: Path, library: ExportedLibrary, *, cublaslt: bool = False) -> Built:
    """Writes a library and builds it."""
    write_library(library, folder, "c", cublaslt=cublaslt)
    shared = folder / "lib.so"
    flags = "-std=c11", "-O2", "-shared", "-fPIC"
    command: list[str | Path] = ["gcc", *flags, "-o", shared, folder / "lib.c"]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return Built(folder, ctypes.CDLL(str(shared)), library)


def driver_path() -> Path:
    """The CUDA driver of this process."""
    maps = Path("/proc/self/maps").read_text()
    match = re.search(r"(/\S*/libcuda\.so\S*)", maps)
    assert match, "this process has loaded no libcuda.so"
    return Path(match[1])
