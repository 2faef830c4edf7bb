"""Other spellings of a problem's words, such as PyTorch's `float16` and BLAS's `NN`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotune.errors import ProblemError
from autotune.problem.element import ELEMENT_TYPES
from autotune.problem.precision import PRECISIONS

COMPUTE_ALIASES: Mapping[str, str] = {
    **{row.label: name for name, row in PRECISIONS.items() if row.label != name},
    **{row.dtype: row.compute for row in ELEMENT_TYPES.values() if row.compute is not None},
}
"""The names of precisions in tables, and of the dtypes in PyTorch and CuPy, as in `fp32` and
`float32` for `f32`."""

OUTPUT_ALIASES: Mapping[str, str] = {
    **{row.label: name for name, row in PRECISIONS.items()},
    **{row.dtype: name for name, row in ELEMENT_TYPES.items()},
}
"""The names of element types in tables, and of their dtypes."""

_ALIASES = {"compute": COMPUTE_ALIASES, "output": OUTPUT_ALIASES}


def canonical(field: str, word: object, words: Iterable[str]) -> str:
    """The word of a field in this package's spelling, whatever its case.

    Args:
        field: the field, such as `compute`.
        word: the word as the user wrote it.
        words: the legal words of the field.

    Raises:
        ProblemError: for any other word.
    """
    lower = word.lower() if isinstance(word, str) else word
    spelled = _ALIASES.get(field, {}).get(lower, lower) if isinstance(lower, str) else lower
    if isinstance(spelled, str) and spelled in words:
        return spelled
    raise ProblemError(f"unknown {field} {word!r}; give one of {', '.join(words)}")
