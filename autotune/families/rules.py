"""Rules: the reasons why a combination of parameters is illegal.

A rule is a function that returns None or says what is wrong. Its arguments say what it reads:

- a parameter, by its name: `def fault(split_k: int) -> str | None`;
- a view, by its annotation: a frozen dataclass of some of the parameters, with what follows from
  them: `def fault(tile: Tile, stages: int) -> str | None`;
- the problem and the device, by the annotations `Problem` and `Device`.

The enumeration checks a rule as soon as all parameters that it needs are chosen; a rule may rely on
the rules before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache, partial
from inspect import signature, unwrap
from operator import itemgetter
from typing import Any, TypeVar

from autotune.device import Device
from autotune.families.config import Value
from autotune.problem import Problem

Check = Callable[..., str | None]
T = TypeVar("T")

VIEWS = 1024
"""Views of a type that are kept."""


@dataclass(frozen=True)
class Rule:
    """One reason to reject a candidate before it is compiled.

    Attributes:
        reason: a short name that rejections are counted under, such as `shared memory`.
        check: returns None if the values are fine, else what is wrong with its numbers, such as
            `needs 294912 bytes a block, H100 allows 232448`.
        for_speed: whether the kernel runs all the same, only not fast or accurate as a rule.
            Recorded configurations may break it: a measurement overrules it.
        for_shape: whether it only weighs how K is shared or how large tiles are against M and N. A
            prescribed order of summation, which has to serve every M, overrules it.
    """

    reason: str
    check: Check
    for_speed: bool = False
    for_shape: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters that the check reads."""
        return needs_of(self.check)


@cache
def needs_of(function: Callable[..., object]) -> tuple[str, ...]:
    """The parameters that a function of a rule's arguments reads."""
    read = (name for argument in _arguments(function) for name in argument.parameters)
    return tuple(dict.fromkeys(read))


@cache
def context_of(function: Callable[..., object]) -> frozenset[str]:
    """Which of `problem` and `device` a function of a rule's arguments reads."""
    return frozenset(argument.name for argument in _arguments(function) if argument.is_context)


def bind(
    function: Callable[..., T], problem: Problem | None, device: Device | None
) -> Callable[[Sequence[Value]], T]:
    """A function of a rule's arguments, for a problem on a device where it reads them, that takes
    the values of `needs_of` in their order."""
    context = {"problem": problem, "device": device}
    readers = [
        partial(_constant, context[reader]) if isinstance(reader, str) else reader
        for reader in _readers(function)
    ]

    def bound(chosen: Sequence[Value]) -> T:
        return function(*[read(chosen) for read in readers])

    return bound


_Reader = Callable[[Sequence[Value]], Any]


@dataclass(frozen=True)
class _Argument:
    """An argument of a function: a parameter, a view of several, or the problem or the device."""

    name: str
    parameters: tuple[str, ...]
    view: Callable[..., Any] | None = None

    @property
    def is_context(self) -> bool:
        return not self.parameters

    def reader(self, needs: Sequence[str]) -> _Reader | str:
        """What makes the argument from the values of `needs`; its name if it is the context's."""
        if self.is_context:
            return self.name
        pick = itemgetter(*map(needs.index, self.parameters))
        if self.view is None:
            return pick
        made = _kept_views(self.view)
        if len(self.parameters) == 1:
            return lambda chosen: made(pick(chosen))
        return lambda chosen: made(*pick(chosen))


def _constant(value: object, _: Sequence[Value]) -> object:
    return value


@cache
def _kept_views(view: Callable[..., Any]) -> Callable[..., Any]:
    """The constructor of a view, one object for the same values: what it has computed is kept."""
    return lru_cache(maxsize=VIEWS)(view)


@cache
def _readers(function: Callable[..., object]) -> tuple[_Reader | str, ...]:
    """What makes each argument of a function; see `_Argument.reader`."""
    return tuple(argument.reader(needs_of(function)) for argument in _arguments(function))


@cache
def _arguments(function: Callable[..., object]) -> tuple[_Argument, ...]:
    """The arguments of a function, from its signature, which is read once."""
    arguments = []
    for name, kind in _annotations(function).items():
        if kind is Problem or kind is Device:
            arguments.append(_Argument("problem" if kind is Problem else "device", ()))
        elif is_dataclass(kind) and isinstance(kind, type):
            arguments.append(_Argument(name, tuple(field.name for field in fields(kind)), kind))
        else:
            arguments.append(_Argument(name, (name,)))
    return tuple(arguments)


def _annotations(function: Callable[..., object]) -> dict[str, object]:
    """The annotation of each argument of a function. A name is looked up: to evaluate the texts of
    a hundred rules takes as long as a choice."""
    space = getattr(unwrap(function), "__globals__", {})
    return {
        name: space.get(parameter.annotation, parameter.annotation)
        for name, parameter in signature(function).parameters.items()
    }
