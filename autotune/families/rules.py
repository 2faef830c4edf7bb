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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from inspect import signature
from operator import itemgetter
from typing import Any, TypeVar

from autotune.device import Device
from autotune.families.config import Value
from autotune.problem import Problem

Check = Callable[..., str | None]
T = TypeVar("T")


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

    @property
    def reads_device(self) -> bool:
        """Whether the check may find otherwise on another device."""
        return _reads(self.check, "device")

    @property
    def reads_problem(self) -> bool:
        """Whether the check may find otherwise for another problem."""
        return _reads(self.check, "problem")

    def bind(self, problem: Problem, device: Device, views: Views) -> BoundRule:
        """The rule for one problem on one device; `views` keeps the views it makes."""
        check = bind(self.check, {"problem": problem, "device": device}, views)
        return BoundRule(self.reason, self.needs, check, self.for_speed, self.for_shape)


@dataclass(frozen=True)
class BoundRule:
    """A rule for one problem on one device.

    Attributes:
        reason: the rule's short name.
        needs: the parameters that the check reads.
        check: takes the values of these parameters in their order.
        for_speed, for_shape: as in `Rule`.
    """

    reason: str
    needs: tuple[str, ...]
    check: Callable[[Sequence[Value]], str | None]
    for_speed: bool = False
    for_shape: bool = False


Views = dict[type[Any], dict[object, Any]]
"""Views by their values: one object for the same values, so that what it has computed is kept."""

_Reader = Callable[[Sequence[Value]], Any]


@dataclass(frozen=True)
class _Argument:
    """An argument of a function: a parameter, a view of several or the problem or the device."""

    name: str
    parameters: tuple[str, ...]
    view: type[Any] | None = None

    def picker(self, needs: Sequence[str]) -> _Reader | None:
        """Picks the argument's parameters from the values of `needs`; None if it has none."""
        return itemgetter(*map(needs.index, self.parameters)) if self.parameters else None


@cache
def needs_of(function: Callable[..., object]) -> tuple[str, ...]:
    """The parameters that a function of a rule's arguments reads."""
    read = (name for argument in _arguments(function) for name in argument.parameters)
    return tuple(dict.fromkeys(read))


def _reads(function: Callable[..., object], name: str) -> bool:
    return any(argument.name == name for argument in _arguments(function))


def bind(
    function: Callable[..., T], context: Mapping[str, object], views: Views
) -> Callable[[Sequence[Value]], T]:
    """A function of a rule's arguments that takes the values of `needs_of` in their order;
    `context` has the problem and the device, if it reads them."""
    readers = [_reader(argument, pick, context, views) for argument, pick in _pickers(function)]

    def bound(chosen: Sequence[Value]) -> T:
        return function(*[read(chosen) for read in readers])

    return bound


def _reader(
    argument: _Argument, pick: _Reader | None, context: Mapping[str, object], views: Views
) -> _Reader:
    """The function that makes an argument from the values that its function reads."""
    if pick is None:
        value = context[argument.name]
        return lambda _: value
    if argument.view is None:
        return pick
    view, single = argument.view, len(argument.parameters) == 1
    made = views.setdefault(view, {})

    def read(chosen: Sequence[Value]) -> Any:
        key = pick(chosen)
        kept = made.get(key)
        if kept is None:
            kept = made[key] = view(key) if single else view(*key)
        return kept

    return read


@cache
def _pickers(function: Callable[..., object]) -> tuple[tuple[_Argument, _Reader | None], ...]:
    """The arguments of a function, each with what picks its parameters."""
    needs = needs_of(function)
    return tuple((argument, argument.picker(needs)) for argument in _arguments(function))


@cache
def _arguments(check: Callable[..., object]) -> tuple[_Argument, ...]:
    """The arguments of a function, from its signature, which is read once."""
    arguments = []
    for name, kind in _annotations(check).items():
        if kind is Problem or kind is Device:
            arguments.append(_Argument("problem" if kind is Problem else "device", ()))
        elif is_dataclass(kind) and isinstance(kind, type):
            arguments.append(_Argument(name, tuple(field.name for field in fields(kind)), kind))
        else:
            arguments.append(_Argument(name, (name,)))
    return tuple(arguments)


def _annotations(check: Callable[..., object]) -> dict[str, object]:
    """The annotation of each argument of a function. A name is looked up: to evaluate the texts of
    a hundred rules takes as long as a choice."""
    space = getattr(check, "__globals__", {})
    return {
        name: space.get(parameter.annotation, parameter.annotation)
        for name, parameter in signature(check).parameters.items()
    }
