"""The calls that `calls.c` knows, and what Python has to keep for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from autotune.runtime.driver import Driver, configuration
from autotune.runtime.executable import Direct, Placed
from autotune.runtime.native.compiled import Api

_LAUNCHED, _UNKNOWN, _UNREADABLE, _REFUSED = -1, -2, -3, -1000
"""As in `calls.c`."""


class _Functions(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("read", "work_stream", "context_id", "launch", "release", "take")
    )


# A kernel of NULL is one that Python enqueues.
_BY_PYTHON = Direct(configuration((1, 1, 1), (1, 1, 1), 0, 0), None, None, None)


class _Table(NamedTuple):
    """A table of `calls.c`, what its entries launch, by their numbers, and its tags."""

    address: int
    placed: dict[int, Placed]
    tags: dict[Any, int]


class Calls:
    """Calls with arrays of one exchange API.

    Args:
        library: `native.library()`.
        api: of the arrays.
        driver: launches them.
    """

    def __init__(self, library: ctypes.PyDLL, api: Api, driver: Driver) -> None:
        self._library, self._driver = library, driver
        self._call: Callable[..., int] = library.autotune_call
        python = ctypes.pythonapi
        self._functions = _Functions(
            *(api.read, api.work_stream, *driver.entry_points),
            *(_address(python.PyEval_SaveThread), _address(python.PyEval_RestoreThread)),
        )
        self._retired: list[_Table] = []
        self._table = self._new()

    def made(self, a: Any, b: Any, out: Any, bias: Any, rest: tuple[Any, ...]) -> Placed | bool:
        """Makes a call again if it is known.

        Args:
            a: array.
            b: array.
            out: array.
            bias: array or None.
            rest: all else that tells one call from another.

        Returns:
            True if it was enqueued, False if it is unknown; what is known but has to be enqueued
            by the caller.

        Raises:
            RunnerError: if the driver refuses the launch.
        """
        table = self._table
        tag = table.tags.get((rest, bias is None))
        if tag is None:
            return False
        try:
            found = self._call(table.address, a, b, out, bias, tag)
        except Exception:  # the library's; whoever reads the arrays in Python says what is wrong
            return False
        if found >= 0:
            return table.placed[found]
        if found <= _REFUSED:
            raise self._driver.failed("cuLaunchKernelEx", _REFUSED - found)
        return found == _LAUNCHED

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
        free = self._library.autotune_free
        # In one that stays a launch is under way, whose arguments have to stay, too.
        self._retired = [table for table in self._retired if not free(table.address)]

    def _kept(
        self, a: Any, b: Any, out: Any, bias: Any, rest: tuple[Any, ...], placed: Placed
    ) -> int:
        """The number of the call's entry, or why it has none."""
        table, direct = self._table, placed.direct
        # The lowest bit says whether there is a bias.
        tag = 2 * len(table.tags) + (bias is not None)
        tag = table.tags.setdefault((rest, bias is None), tag)
        context = self._driver.context_on(placed.ordinal)
        if context is not None:
            self._library.autotune_home(table.address, context, placed.ordinal)
        launched = direct if direct is not None else _BY_PYTHON
        try:
            number: int = self._library.autotune_keep(
                *(table.address, a, b, out, bias, tag, placed.ordinal),
                *(launched.configuration, launched.kernel, launched.parameters),
            )
        except Exception:  # the library's, which does not export such an array
            return _UNREADABLE
        if number >= 0:
            table.placed[number] = placed
        return number

    def _new(self) -> _Table:
        return _Table(self._library.autotune_table(ctypes.byref(self._functions)), {}, {})


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
