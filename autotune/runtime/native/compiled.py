"""`calls.c`, compiled once by the machine's C compiler, and which arrays it can read."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

from autotune import settings
from autotune.errors import CacheError

FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC")
COMPILER_SECONDS = 60.0

_CAPSULE = b"dlpack_exchange_api"
_MAJOR = 1


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


@lru_cache(maxsize=1)
def library() -> ctypes.PyDLL | None:
    """The compiled part, which keeps the interpreter's lock while it runs; None where it cannot be
    had."""
    compiler = settings.c_compiler()
    if compiler is None:
        return None
    source = resources.files(__package__).joinpath("calls.c").read_bytes()
    key = sha256(b"\0".join((source, *map(str.encode, FLAGS), os.fsencode(compiler)))).hexdigest()
    path = settings.cache_dir() / "native" / f"{key}.so"
    try:
        if not path.exists():
            _compile(compiler, source, path)
        return _declared(ctypes.PyDLL(str(path)))
    except (OSError, CacheError, subprocess.SubprocessError):
        return None


def _compile(compiler: Path, source: bytes, path: Path) -> None:
    settings.ensure(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [str(compiler), *FLAGS, "-x", "c", "-o", str(made), "-"]
        subprocess.run(
            command, input=source, capture_output=True, check=True, timeout=COMPILER_SECONDS
        )
        made.replace(path)


def _declared(found: ctypes.PyDLL) -> ctypes.PyDLL:
    pointer, integer, whole = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    arrays = (ctypes.py_object,) * 4
    found.autotune_table.restype, found.autotune_table.argtypes = pointer, (pointer,)
    found.autotune_free.argtypes = (pointer,)
    found.autotune_home.restype = None
    found.autotune_home.argtypes = (pointer, ctypes.c_ulonglong, ctypes.c_int32)
    found.autotune_keep.restype = integer
    found.autotune_keep.argtypes = (
        *(pointer, *arrays, whole, ctypes.c_int32),
        *(pointer, pointer, pointer),
    )
    found.autotune_call.restype, found.autotune_call.argtypes = integer, (pointer, *arrays, whole)
    return found
