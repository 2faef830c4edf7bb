"""Loads the library of `calls.c`, and finds the arrays that it can read."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.runtime.native.build import SOURCE, library_name

FOLDER = SOURCE.parent
"""The folder of the library, part of the package."""

_CAPSULE, _MAJOR = b"dlpack_exchange_api", 1
_METH_FASTCALL = 0x0080
# The functions of the interpreter that `calls.c` needs, all of them in Python's stable ABI.
_FUNCTIONS = (
    *("PyLong_AsVoidPtr", "PyLong_AsUnsignedLongLong", "PyLong_FromLong", "PyObject_Type"),
    *("Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyObject_CallFunctionObjArgs"),
    *("PyEval_SaveThread", "PyEval_RestoreThread"),
)


class ExchangeApi(ctypes.Structure):
    """DLPackExchangeAPI of dlpack.h 1.2, which starts with its version."""

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


def exchange_api(kind: type) -> ExchangeApi | None:
    """The DLPack C exchange API of a type of arrays; None without one that `calls.c` can use."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        api = ExchangeApi.from_address(address(capsule, _CAPSULE))
    except ValueError:
        return None
    return api if api.major == _MAJOR and api.read and api.work_stream else None


class _PythonFunctions(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in (*_FUNCTIONS, "launched", "unknown"))


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class NativeLibrary:
    """The compiled `calls.c`. Calling its functions keeps the interpreter's lock.

    Attributes:
        functions: named as in `calls.c`.
        method: the definition of `autotune_call` for Python.
    """

    functions: ctypes.PyDLL
    method: _MethodDefinition

    def caller(self, table: int) -> Callable[..., Any]:
        """`autotune_call` on the table at an address, as a built-in function of Python: `ctypes`
        would take longer to call it than it takes to run."""
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        function: Callable[..., Any] = new(ctypes.addressof(self.method), table, None)
        return function


@lru_cache(maxsize=1)
def library() -> NativeLibrary | None:
    """The compiled `calls.c`; None if the package was built without it, with `AUTOTUNE_NATIVE=0`,
    and without the GIL."""
    if not settings.native() or not _has_gil():
        return None
    try:
        return _load(library_path())
    except (OSError, AttributeError):  # no library, or none for this machine
        return None


def library_path() -> Path:
    """The file of the library, which may not exist."""
    return FOLDER / library_name()


def _has_gil() -> bool:
    """Whether this is a CPython with the global interpreter lock, which guards the tables."""
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and bool(enabled())


def _load(path: Path) -> NativeLibrary:
    library = ctypes.PyDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    library.autotune_table.restype, library.autotune_table.argtypes = pointer, (pointer,)
    library.autotune_free.argtypes = (pointer,)
    library.autotune_kind.restype, library.autotune_kind.argtypes = (
        None,
        (pointer, ctypes.py_object),
    )
    library.autotune_home.restype = None
    library.autotune_home.argtypes = (pointer, ctypes.c_ulonglong, number)
    library.autotune_keep.argtypes = (
        *(pointer, pointer, number, ctypes.c_uint64, number),
        *(pointer, pointer, pointer),
    )
    functions = (_address(getattr(ctypes.pythonapi, name)) for name in _FUNCTIONS)
    # In CPython an object's id is its address.
    library.autotune_python(ctypes.byref(_PythonFunctions(*functions, id(True), id(None))))
    method = _MethodDefinition(b"call", _address(library.autotune_call), _METH_FASTCALL, None)
    return NativeLibrary(library, method)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
