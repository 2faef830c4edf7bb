"""Texts with attributes, such as epilogues and objectives, and dataclass fields that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

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

        @overload
        def __get__(self, instance: None, owner: Any) -> Held: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> Held: ...
        def __get__(self, instance: object, owner: Any) -> Held: ...
        def __set__(self, instance: object, value: Given) -> None: ...
