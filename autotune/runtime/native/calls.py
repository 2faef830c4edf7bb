"""The calls that `calls.c` knows, and what Python has to keep for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from autotune.runtime.driver import Driver, configuration
from autotune.runtime.executable import Direct, Placed
from autotune.runtime.frameworks import Framework
from autotune.runtime.native.compiled import Api, NativeLibrary

_UNKNOWN = -1
"""What keeping a call in a full table gives, as in `calls.c`."""

# A kernel of NULL is one that Python enqueues.
_BY_PYTHON = Direct(configuration((1, 1, 1), (1, 1, 1), 0, 0), None, None, None)


class _Functions(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("read", "work_stream", "context_id", "launch")
    )


class _Table(NamedTuple):
    """A table of `calls.c`: what calls it, what its entries launch, by their numbers, and the tags
    of all that is no array."""

    address: int
    call: Callable[..., Any]
    placed: dict[int, Placed]
    tags: dict[Any, int]


class Calls:
    """Calls with arrays of one exchange API.

    Args:
        library: the compiled part.
        api: of the arrays.
        framework: the arrays'.
        driver: launches them.

    Attributes:
        records: the framework's.
    """

    def __init__(
        self, library: NativeLibrary, api: Api, framework: Framework, driver: Driver
    ) -> None:
        self._library, self._driver = library, driver
        self.records = framework.records
        self._functions = _Functions(api.read, api.work_stream, *driver.entry_points)
        self._kinds: list[type] = []
        self._retired: list[_Table] = []
        self._table = self._new()

    def serve(self, kind: type) -> None:
        """Has arrays of a type read."""
        self._kinds.append(kind)
        self._library.functions.autotune_kind(self._table.address, kind)

    def made(self, a: Any, b: Any, out: Any, bias: Any, rest: tuple[Any, ...]) -> Placed | bool:
        """Makes a call again if it is known.

        Args:
            a: array.
            b: array.
            out: array.
            bias: array or None.
            rest: all else that tells one call from another, whether there is a bias among it.

        Returns:
            True if it was enqueued, False if it is unknown; what is known but has to be enqueued
            by the caller.

        Raises:
            RunnerError: if the driver refuses the launch.
        """
        _, call, placed, tags = self._table
        tag = tags.get(rest)
        if tag is None:
            return False
        found = call(a, b, out, bias, tag)
        if found is True:
            return True
        if found is None:
            return False
        if found < 0:
            raise self._driver.failed("cuLaunchKernelEx", -found)
        return placed[found]

    def keep(
        self, a: Any, b: Any, out: Any, bias: Any, rest: tuple[Any, ...], placed: Placed
    ) -> None:
        """Has a call known from now on."""
        if self._kept(a, b, out, bias, rest, placed) == _UNKNOWN:  # the table is full
            self.forget()
            self._kept(a, b, out, bias, rest, placed)

    def forget(self) -> None:
        """Knows no call any more."""
        self._retired.append(self._table)
        self._table = self._new()
        free = self._library.functions.autotune_free
        # In one that stays a launch is under way, whose arguments have to stay, too.
        self._retired = [table for table in self._retired if not free(table.address)]

    def _kept(
        self, a: Any, b: Any, out: Any, bias: Any, rest: tuple[Any, ...], placed: Placed
    ) -> int:
        """The number of the call's entry, or why it has none."""
        table, functions = self._table, self._library.functions
        # The lowest bit says whether there is a bias.
        tag = table.tags.setdefault(rest, 2 * len(table.tags) + (bias is not None))
        context = self._driver.context_on(placed.ordinal)
        if context is not None:
            functions.autotune_home(table.address, context, placed.ordinal)
        launched = placed.direct or _BY_PYTHON
        number: int = functions.autotune_keep(
            *(table.address, a, b, out, bias, tag, placed.ordinal),
            *(launched.configuration, launched.kernel, launched.parameters),
        )
        if number >= 0:
            table.placed[number] = placed
        return number

    def _new(self) -> _Table:
        functions = self._library.functions
        address = functions.autotune_table(ctypes.byref(self._functions))
        for kind in self._kinds:
            functions.autotune_kind(address, kind)
        return _Table(address, self._library.caller(address), {}, {})
