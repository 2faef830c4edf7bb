"""The warm calls that machine code recognises, by the type of their arrays."""

from __future__ import annotations

import ctypes

from autotune.runtime.driver import Driver
from autotune.runtime.frameworks import Framework
from autotune.runtime.native.cache import CallCache
from autotune.runtime.native.compiled import exchange_api, library


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


def native_calls(driver: Driver) -> NativeCalls:
    """An empty set of calls, which a driver launches."""
    return NativeCalls(driver)
