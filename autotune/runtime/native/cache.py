"""The calls that `calls.c` recognises, and the objects that Python has to keep alive for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from autotune.runtime.driver import Driver, configuration
from autotune.runtime.executable import BoundGemm, SingleLaunch
from autotune.runtime.frameworks import Framework
from autotune.runtime.native.compiled import ExchangeApi, NativeLibrary

_TABLE_FULL = -1
"""Returned by `autotune_keep` of `calls.c` for a full table: its `UNKNOWN`."""

# In `calls.c`, a NULL kernel marks a call that Python enqueues.
_BY_PYTHON = SingleLaunch(configuration((1, 1, 1), (1, 1, 1), 0, 0), None, None, None)


class _TableFunctions(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("read", "work_stream", "context_id", "launch")),
        ("negated", ctypes.py_object),
    )


class _CallTable(NamedTuple):
    """A table of `calls.c`: its address, the function that looks a call up in it, the bound gemm of
    each entry by its number, and a tag for each combination of arguments that are no arrays."""

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
