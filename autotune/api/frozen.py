"""The frozen mode: products run what is recorded and compiled, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.runtime.process import switched
from autotune.settings import Mode


@contextmanager
def frozen(missing: str = "vendor") -> Iterator[None]:
    """Nothing is tuned, guessed, compiled or written within a `with` block, in any thread.

        with autotune.frozen():
            model(x)

    A product runs the kernel that is recorded for its shape, or for a tuned range around it, if
    the cache has it compiled. `AUTOTUNE_MODE=frozen` or `frozen:raise` does the same for a whole
    process. `autotune.kernel` and `warmup` raise an error for problems without a record.

    Args:
        missing: `vendor` gives other products to cuBLAS, through their library; `raise` raises a
            `FrozenError` for them, as does a call that cuBLAS cannot serve.

    Raises:
        UsageError: for another word.
    """
    with switched(Mode("frozen", missing)):
        yield
