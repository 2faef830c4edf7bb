"""Words: texts with attributes, and the spellings of a problem's words that are understood.

PyTorch's and NumPy's dtypes, `float16` and BLAS's `NN` are such spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar

from autotune.errors import ProblemError
from autotune.problem.precision import ELEMENT_TYPES, PRECISIONS, Precision

Given = TypeVar("Given")
Held = TypeVar("Held")


class FrozenWord(str):
    """A text whose attributes cannot be set. A subclass names them in `__slots__`, keeps a value
    for each word, and finds it again in `__reduce__`."""

    __slots__ = ()

    def _hold(self, attributes: Mapping[str, object]) -> None:
        """Sets the attributes of a new value."""
        for name, attribute in attributes.items():
            object.__setattr__(self, name, attribute)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} {self} is frozen: cannot set {name}")


if TYPE_CHECKING:

    class WordField(Generic[Given, Held]):
        """The type of a dataclass field that takes a `Given` and holds a `Held`."""

        def __get__(self, instance: object, owner: Any) -> Held: ...
        def __set__(self, instance: object, value: Given) -> None: ...


DtypeLike: TypeAlias = Any
"""A precision or an element type: a word such as `bf16`, `bfloat16` or `torch.bfloat16`, or a dtype
of PyTorch, NumPy or CuPy."""

_SPOKEN = {"half": "f16", "float": "f32", "single": "f32"}
_FP8 = {"e4m3fn": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"}

COMPUTE_ALIASES: Mapping[str, str] = {
    **{row.label: name for name, row in PRECISIONS.items() if row.label != name},
    **{row.dtype: row.compute for row in ELEMENT_TYPES.values() if row.compute is not None},
    **_SPOKEN,
    **{"e4m3": "f8", "e5m2": "f8e5"},
    **{word: {"e4m3": "f8", "e5m2": "f8e5"}[element] for word, element in _FP8.items()},
}
"""The names of precisions in tables, and of the dtypes in PyTorch and CuPy, as in `fp32` and
`float32` for `f32`."""

OUTPUT_ALIASES: Mapping[str, str] = {
    **{row.label: name for name, row in PRECISIONS.items()},
    **{row.dtype: name for name, row in ELEMENT_TYPES.items()},
    **_SPOKEN,
    **_FP8,
}
"""The names of element types in tables, and of their dtypes."""

_ALIASES = {"compute": COMPUTE_ALIASES, "output": OUTPUT_ALIASES}


def dtype_word(dtype: object) -> object:
    """The name of a dtype of any library, such as `bfloat16` for `torch.bfloat16`; a text without
    the prefix of a library, and any other value as it is."""
    name = dtype.__name__ if isinstance(dtype, type) else getattr(dtype, "name", dtype)
    if not isinstance(name, str) and str(dtype).startswith("torch."):
        name = str(dtype)
    return name.rpartition(".")[2] if isinstance(name, str) else dtype


def spelled(field: str, word: object) -> object:
    """The word of a field in this package's spelling, whatever its case; an unknown one as it is.

    Args:
        field: the field, such as `compute`.
        word: the word as the user wrote it, or a dtype for a field that is one.
    """
    aliases = _ALIASES.get(field)
    name = word if aliases is None else dtype_word(word)
    if not isinstance(name, str):
        return word
    lower = name.lower()
    return lower if aliases is None else aliases.get(lower, lower)


def canonical(field: str, word: object, words: Iterable[str]) -> str:
    """The word of a field in this package's spelling.

    Args:
        field: the field, such as `compute`.
        word: the word as the user wrote it, or a dtype for a field that is one.
        words: the legal words of the field.

    Raises:
        ProblemError: for any other word.
    """
    spelling = spelled(field, word)
    if isinstance(spelling, str) and spelling in words:
        return spelling
    shown = word if isinstance(word, str) or field not in _ALIASES else dtype_word(word)
    raise ProblemError(f"unknown {field} {shown!r}; give one of {', '.join(words)}")


def precision_of(compute: DtypeLike) -> Precision:
    """The row of a precision.

    Raises:
        ProblemError: for any other word.
    """
    row = PRECISIONS.get(compute) if isinstance(compute, str) else None
    return row or PRECISIONS[canonical("compute", compute, PRECISIONS)]
