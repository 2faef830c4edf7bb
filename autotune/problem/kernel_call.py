"""Calls of user kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, order=True)
class KernelCall:
    """A user kernel and its arguments, as far as they distinguish one tuning from another.

    Attributes:
        name: the kernel's name in C++, such as `transpose` or `filters::blur`.
        arguments: type and shape of each array, `float32[4096,4096]`; type and value of each
            number, `int32=4096`.
    """

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"

    @property
    def slug(self) -> str:
        """The call as part of a file name: the kernel's name and a hash of the whole call."""
        name = re.sub(r"\W+", "-", self.name)
        return f"{name}-{sha256(str(self).encode()).hexdigest()[:16]}"
