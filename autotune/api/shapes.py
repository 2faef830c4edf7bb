"""Shapes with their counts, such as those of a model, and their file.

{"schema": 1, "shapes": {"16x4096x4096:bf16:nt:bias": 32, "16x16384x4096:bf16:nt": 32}}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from autotune import files
from autotune.errors import ProblemError, UsageError
from autotune.files import limits, output
from autotune.files.decoding import convert, parse, require_schema
from autotune.problem import Problem, ProblemDefaults, ProblemLike, problems_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

SCHEMA = 1

LIST = output.OutputKind("list of shapes", (b'{\n  "schema": 1,\n  "shapes": {',))

_Shapes = dict[str, Annotated[int, Meta(ge=1)]]

ShapesLike = Mapping[ProblemLike, int] | Iterable[ProblemLike]
"""Shapes with their counts, or a list in which each counts as often as it stands there."""


class Shapes(Counter[Problem]):
    """How often each GEMM runs; a `collections.Counter` of problems with a file."""

    @classmethod
    def of(cls, shapes: ShapesLike, **fields: Unpack[ProblemDefaults]) -> Shapes:
        """The shapes of a list or mapping. The keywords are for shapes that do not state a field.

        Raises:
            ProblemError: for an impossible shape.
            UsageError: for a count below 1, or a range.
        """
        counted = cls()
        pairs = shapes.items() if isinstance(shapes, Mapping) else ((shape, 1) for shape in shapes)
        for shape, count in pairs:
            if not isinstance(count, int) or count < 1:
                raise UsageError(f"{shape} counts {count!r}; give a whole number of at least 1")
            if isinstance(shape, str) and ".." in shape:
                raise UsageError(f"{shape} is a range, which is tuned alone; give its sizes, or it")
            if not isinstance(shape, (Problem, Sequence)):
                raise ProblemError(f"shape is {shape!r}; give a text, a Problem or (m, n, k)")
            (problem,) = problems_of((shape,), **fields)
            counted[problem] += count
        return counted

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Shapes:
        """The shapes in a file that `save` wrote, or in a text with a line for each.

        Raises:
            UsageError: if it cannot be read or is no such file.
        """
        try:
            data = files.read(Path(path), limits.DOCUMENT)
            if not data.lstrip().startswith(b"{"):
                return cls._of_lines(data.decode("utf-8-sig"))
            fields = require_schema(parse(data), "list of shapes", SCHEMA)
            counts = convert(fields.get("shapes"), _Shapes, "shapes")
            return cls({Problem.parse(text): count for text, count in counts.items()})
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}; give another") from error
        except ValueError as error:
            raise UsageError(f"{path}: no list of shapes: {error}") from error

    @classmethod
    def _of_lines(cls, text: str) -> Shapes:
        """The shapes of a text, each in a line; blank lines and those with # do not count.

        Raises:
            ValueError: for another line, with the form that is read.
        """
        lines = (line.strip() for line in text.splitlines())
        try:
            return cls.of(line for line in lines if line and not line.startswith("#"))
        except UsageError as error:
            form = "a line holds a shape, such as 16x4096x4096:bf16:nt"
            raise ValueError(f"{error}; {form}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file, or leaves it unchanged; the most frequent shapes come first.

        Raises:
            AutotuneError: if it cannot be written, or something else than such a list is there.
        """
        counts = {str(problem): count for problem, count in self.most_common()}
        data = json.dumps({"schema": SCHEMA, "shapes": counts}, indent=2).encode() + b"\n"
        output.write(Path(path), data, LIST)

    def __str__(self) -> str:
        return "\n".join(f"{count:6} x {problem}" for problem, count in self.most_common())
