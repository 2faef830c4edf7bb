"""`calls.c`, compiled once by the machine's C compiler, and which arrays it can read."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.errors import CacheError

FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC")
COMPILER_SECONDS = 60.0

_CAPSULE, _MAJOR = b"dlpack_exchange_api", 1
_METH_FASTCALL = 0x0080
# What it needs of the interpreter, all of Python's stable ABI.
_FUNCTIONS = (
    *("PyLong_AsVoidPtr", "PyLong_AsUnsignedLongLong", "PyLong_FromLong", "PyObject_Type"),
    *("Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread"),
)


class Api(ctypes.Structure):
    """DLPackExchangeAPI of dlpack.h 1.2, which begins with its version."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("work_stream", ctypes.c_void_p),
    )


def exchange_api(kind: type) -> Api | None:
    """The DLPack C exchange API of a type of arrays; None if it has none that can be used."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        found = Api.from_address(address(capsule, _CAPSULE))
    except ValueError:
        return None
    return found if found.major == _MAJOR and found.read and found.work_stream else None


class _Python(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in (*_FUNCTIONS, "launched", "unknown"))


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class NativeLibrary:
    """The compiled part, whose functions keep the interpreter's lock.

    Attributes:
        functions: by their names in `calls.c`.
        method: how Python calls `autotune_call`.
    """

    functions: ctypes.PyDLL
    method: _Method

    def caller(self, table: int) -> Callable[..., Any]:
        """`autotune_call` on the table at an address, as a function of Python's own: through
        `ctypes` a call takes longer than all that it does."""
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        made: Callable[..., Any] = new(ctypes.addressof(self.method), table, None)
        return made


@lru_cache(maxsize=1)
def library() -> NativeLibrary | None:
    """The compiled part; None where it cannot be had."""
    compiler = settings.c_compiler()
    if compiler is None or not _locked():
        return None
    source = resources.files(__package__).joinpath("calls.c").read_bytes()
    key = sha256(b"\0".join((source, *map(str.encode, FLAGS), os.fsencode(compiler)))).hexdigest()
    path = settings.cache_dir() / "native" / f"{key}.so"
    try:
        if not path.exists():
            _compile(compiler, source, path)
        return _loaded(path)
    except (OSError, CacheError, subprocess.SubprocessError):
        return None


def _locked() -> bool:
    """Whether this is a CPython with an interpreter's lock, under which the tables are."""
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and bool(enabled())


def _compile(compiler: Path, source: bytes, path: Path) -> None:
    settings.ensure(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [str(compiler), *FLAGS, "-x", "c", "-o", str(made), "-"]
        subprocess.run(
            command, input=source, capture_output=True, check=True, timeout=COMPILER_SECONDS
        )
        made.replace(path)


def _loaded(path: Path) -> NativeLibrary:
    found = ctypes.PyDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    arrays = (ctypes.py_object,) * 4
    found.autotune_table.restype, found.autotune_table.argtypes = pointer, (pointer,)
    found.autotune_free.argtypes = (pointer,)
    found.autotune_kind.restype, found.autotune_kind.argtypes = None, (pointer, ctypes.py_object)
    found.autotune_home.restype = None
    found.autotune_home.argtypes = (pointer, ctypes.c_ulonglong, number)
    found.autotune_keep.argtypes = (
        *(pointer, *arrays, ctypes.c_uint64, number),
        *(pointer, pointer, pointer),
    )
    functions = (_address(getattr(ctypes.pythonapi, name)) for name in _FUNCTIONS)
    # In CPython an object's id is its address.
    found.autotune_python(ctypes.byref(_Python(*functions, id(True), id(None))))
    method = _Method(b"call", _address(found.autotune_call), _METH_FASTCALL, None)
    return NativeLibrary(found, method)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
