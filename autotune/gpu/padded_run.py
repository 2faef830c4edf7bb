"""A library's run on copies of the operands."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.gpu.session import Run


@dataclass(frozen=True)
class PaddedRun:
    """A run of a library that refuses the operands as they are, on copies of them.

    Calling it computes the product from the copies; that is timed.

    Attributes:
        run: computes the product.
        before: copies the operands.
        after: puts the result into C.
    """

    run: Run
    before: Run
    after: Run

    def __call__(self) -> None:
        self.run()

    def whole(self) -> None:
        """Copies the operands, computes the product and puts it into C; that is verified."""
        self.before()
        self.run()
        self.after()
