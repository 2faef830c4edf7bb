"""The warm calls that machine code recognises, by the type of their arrays."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from autotune import settings
from autotune.runtime.frameworks import Framework
from autotune.runtime.launcher import BoundGemm, Driver, SingleLaunch, configuration
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

_TABLE_FULL = -1
"""Returned by `autotune_keep` of `calls.c` for a full table: its `UNKNOWN`."""

# In `calls.c`, a NULL kernel marks a call that Python enqueues.
_BY_PYTHON = SingleLaunch(configuration((1, 1, 1), (1, 1, 1), 0, 0), None, None, None)


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


class NativeLibrary:
    """The compiled `calls.c`. Calling its functions keeps the interpreter's lock.

    Attributes:
        functions: named as in `calls.c`.

    Raises:
        OSError, AttributeError: if there is no library, or none for this machine.
    """

    def __init__(self, path: Path) -> None:
        self.functions = library = ctypes.PyDLL(str(path))
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        library.autotune_table.restype, library.autotune_table.argtypes = pointer, (pointer,)
        library.autotune_free.argtypes = (pointer,)
        library.autotune_kind.restype = None
        library.autotune_kind.argtypes = (pointer, ctypes.py_object)
        library.autotune_home.restype = None
        library.autotune_home.argtypes = (pointer, ctypes.c_ulonglong, number)
        library.autotune_keep.argtypes = (
            *(pointer, pointer, number, ctypes.c_uint64, number),
            *(pointer, pointer, pointer),
        )
        functions = (_address(getattr(ctypes.pythonapi, name)) for name in _FUNCTIONS)
        # In CPython an object's id is its address.
        library.autotune_python(ctypes.byref(_PythonFunctions(*functions, id(True), id(None))))
        call = _address(library.autotune_call)
        self._method = _MethodDefinition(b"call", call, _METH_FASTCALL, None)

    def caller(self, table: int) -> Callable[..., Any]:
        """`autotune_call` on the table at an address, as a built-in function of Python: `ctypes`
        would take longer to call it than it takes to run."""
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        function: Callable[..., Any] = new(ctypes.addressof(self._method), table, None)
        return function


@lru_cache(maxsize=1)
def library() -> NativeLibrary | None:
    """The compiled `calls.c`; None if the package was built without it, with `AUTOTUNE_NATIVE=0`,
    and without the GIL."""
    if not settings.native() or not _has_gil():
        return None
    try:
        return NativeLibrary(library_path())
    except (OSError, AttributeError):  # no library, or none for this machine
        return None


def library_path() -> Path:
    """The file of the library, which may not exist."""
    return FOLDER / library_name()


def _has_gil() -> bool:
    """Whether this is a CPython with the global interpreter lock, which guards the tables."""
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and bool(enabled())


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


class _TableFunctions(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("read", "work_stream", "context_id", "launch")),
        ("negated", ctypes.py_object),
    )


class _CallTable(NamedTuple):
    """A table of `calls.c`: its address, the function that looks a call up in it, the bound gemm of
    each entry by its number, and a tag for each combination of arguments that are not arrays."""

    address: int
    call: Callable[..., Any]
    bound: dict[int, BoundGemm]
    tags: dict[Any, int]


class CallCache:
    """The calls with arrays of one exchange API.

    Args:
        library: the compiled `calls.c`.
        api: the exchange API of the arrays.
        framework: the library of the arrays.
        driver: launches the calls.
    """

    def __init__(
        self, library: NativeLibrary, api: ExchangeApi, framework: Framework, driver: Driver
    ) -> None:
        self._library, self._driver = library, driver
        self._records_gradient = framework.records_gradient
        functions = api.read, api.work_stream, *driver.entry_points
        negated = framework.negated
        self._functions = _TableFunctions(*functions, *([] if negated is None else [negated]))
        self._kinds: list[type] = []
        self._retired: list[_CallTable] = []
        self._table = self._new_table()

    def serve(self, kind: type) -> None:
        """Reads arrays of a type from now on."""
        self._kinds.append(kind)
        self._library.functions.autotune_kind(self._table.address, kind)

    def repeat(self, arrays: tuple[Any, ...], key: Hashable) -> BoundGemm | bool:
        """Enqueues a call again if it is in the table.

        Args:
            arrays: A, B, C and the operands besides.
            key: all other arguments that tell one call from another, and what the arrays are.

        Returns:
            True if the call was enqueued, False if it is unknown or records a gradient; its bound
            gemm if it is known but the caller has to enqueue it.

        Raises:
            RunnerError: if the driver refuses the launch.
        """
        if self._records_gradient(*arrays):
            return False
        _, call, bound, tags = self._table
        tag = tags.get(key)
        if tag is None:
            return False
        result = call(*arrays, tag)
        if result is True:
            return True
        if result is None:
            return False
        if result < 0:
            raise self._driver.failed("cuLaunchKernelEx", -result)
        return bound[result]

    def keep(self, arrays: tuple[Any, ...], key: Hashable, bound: BoundGemm) -> None:
        """Recognises a call from now on."""
        if self._try_keep(arrays, key, bound) == _TABLE_FULL:
            self.forget()
            self._try_keep(arrays, key, bound)

    def forget(self) -> None:
        """Forgets all calls."""
        self._retired.append(self._table)
        self._table = self._new_table()
        free = self._library.functions.autotune_free
        # A table that is not freed has a launch in flight, which still reads its arguments.
        self._retired = [table for table in self._retired if not free(table.address)]

    def _try_keep(self, arrays: tuple[Any, ...], key: Hashable, bound: BoundGemm) -> int:
        """The number of the call's entry, or a negative reason why it has none."""
        table, functions = self._table, self._library.functions
        tag = table.tags.setdefault(key, len(table.tags))
        context = self._driver.context_on(bound.ordinal)
        if context is not None:
            functions.autotune_home(table.address, context, bound.ordinal)
        launch, count = bound.single or _BY_PYTHON, len(arrays)
        number: int = functions.autotune_keep(
            *(table.address, (ctypes.py_object * count)(*arrays), count, tag, bound.ordinal),
            *(launch.configuration, launch.kernel, launch.parameters),
        )
        if number >= 0:
            table.bound[number] = bound
        return number

    def _new_table(self) -> _CallTable:
        functions = self._library.functions
        address = functions.autotune_table(ctypes.byref(self._functions))
        for kind in self._kinds:
            functions.autotune_kind(address, kind)
        return _CallTable(address, self._library.caller(address), {}, {})


class NativeCalls:
    """The calls that machine code recognises.

    Attributes:
        by_type: the calls with arrays of a type, for each type passed to `serve`; None where
            machine code cannot read the arrays, so that Python has to find the call.
    """

    def __init__(self, driver: Driver) -> None:
        self.by_type: dict[type, CallCache | None] = {}
        self._driver = driver
        self._caches: dict[int, CallCache] = {}

    def serve(self, framework: Framework, kind: type) -> None:
        """Recognises calls with arrays of a new type from now on, if machine code can read them."""
        api = exchange_api(kind) if framework.exports(kind) else None
        compiled = library() if api is not None else None
        cache = None
        if api is not None and compiled is not None:
            address = ctypes.addressof(api)
            if address not in self._caches:
                self._caches[address] = CallCache(compiled, api, framework, self._driver)
            cache = self._caches[address]
            cache.serve(kind)
        self.by_type[kind] = cache

    def forget(self) -> None:
        """Forgets all calls."""
        for cache in self._caches.values():
            cache.forget()
