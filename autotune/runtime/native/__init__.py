"""Warm calls in machine code, where the machine has what that takes.

`calls.c` takes arrays of libraries with the DLPack C exchange API, such as PyTorch since 2.10.
Where there is none, no C compiler, or `AUTOTUNE_NATIVE=0`, calls are found in Python: the same, a
few microseconds later.
"""

from __future__ import annotations

import ctypes

from autotune.runtime.driver import Driver
from autotune.runtime.frameworks import Framework
from autotune.runtime.native.calls import Calls
from autotune.runtime.native.compiled import exchange_api, library

__all__ = ["Calls", "Native"]


class Native:
    """The calls that machine code knows.

    Attributes:
        kinds: those with arrays of a type, for the types that `serve` was asked for; None where
            they have to be found in Python.
    """

    def __init__(self, driver: Driver) -> None:
        self.kinds: dict[type, Calls | None] = {}
        self._driver = driver
        self._apis: dict[int, Calls] = {}

    def serve(self, framework: Framework, kind: type) -> None:
        """Has calls with arrays of a new type known, if they can be."""
        api = exchange_api(kind) if framework.exports(kind) else None
        compiled = library() if api is not None else None
        found = None
        if api is not None and compiled is not None:
            address = ctypes.addressof(api)
            if address not in self._apis:
                self._apis[address] = Calls(compiled, api, framework, self._driver)
            found = self._apis[address]
            found.serve(kind)
        self.kinds[kind] = found

    def forget(self) -> None:
        """Knows no call any more."""
        for calls in self._apis.values():
            calls.forget()
