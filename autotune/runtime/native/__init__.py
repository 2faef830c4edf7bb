"""Warm calls in machine code, where the machine has what that takes.

`calls.c` takes arrays of libraries with the DLPack C exchange API, such as PyTorch since 2.10.
Where there is none, no C compiler, or `AUTOTUNE_NATIVE=0`, calls are found in Python: the same, a
few microseconds later.
"""

from __future__ import annotations

import ctypes
from typing import Any

from autotune.runtime.driver import Driver
from autotune.runtime.frameworks import Framework
from autotune.runtime.native.calls import Calls
from autotune.runtime.native.compiled import exchange_api, library

__all__ = ["Calls", "Native"]


class Native:
    """The calls that machine code knows, by the type of their arrays."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kinds: dict[type, Calls | None] = {}
        self._apis: dict[int, Calls] = {}

    def of(self, framework: Framework, a: Any, b: Any, out: Any, bias: Any) -> Calls | None:
        """Those with arrays like these; None where they have to be found in Python."""
        kinds = self._kinds
        try:
            found = kinds[type(a)]
            if (
                found is None
                or kinds[type(b)] is not found
                or kinds[type(out)] is not found
                or (bias is not None and kinds[type(bias)] is not found)
                or framework.records(a, b, out, bias)
            ):
                return None
        except KeyError as unknown:
            (kind,) = unknown.args
            kinds[kind] = self._made(framework, kind)
            return self.of(framework, a, b, out, bias)
        return found

    def forget(self) -> None:
        """Knows no call any more."""
        for calls in self._apis.values():
            calls.forget()

    def _made(self, framework: Framework, kind: type) -> Calls | None:
        api = exchange_api(kind) if framework.exports(kind) else None
        compiled = library() if api is not None else None
        if api is None or compiled is None:
            return None
        address = ctypes.addressof(api)
        if address not in self._apis:
            self._apis[address] = Calls(compiled, api, self._driver)
        return self._apis[address]
