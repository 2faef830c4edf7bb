"""What a kernel of the user's is called with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, order=True)
class Call:
    """The name of a kernel and its arguments, as far as they tell one use of it from another.

    Attributes:
        name: as C++ has it, such as `transpose` or `filters::blur`.
        arguments: of an array type and shape, `float32[4096,4096]`; of a number type and value,
            `int32=4096`.
    """

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"

    @property
    def slug(self) -> str:
        """The call as part of a file name: the kernel's name, and a hash of all of it."""
        name = re.sub(r"\W+", "-", self.name)
        return f"{name}-{sha256(str(self).encode()).hexdigest()[:16]}"
