"""Parameters of a kernel family: a frozen dataclass whose fields carry their possible values.

    @dataclass(frozen=True)
    class TiledParams:
        tile_width: int = field(metadata=values(8, 16, 32))
        workers: int = field(metadata=values_from(worker_counts))

The order of the fields is the order in which values are chosen and the order of a `Config`. A class
may inherit from views, which hold some of its parameters and what follows from them; it then
declares every parameter again, so that its own order counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from autotune.device import Device
from autotune.families.config import Value
from autotune.problem import Problem

Values = tuple[Value, ...]
ValuesFrom = Callable[[Problem, Device], Values]

_DOMAIN, _FOR_SPEED = "domain", "for_speed"


def values(*allowed: Value) -> Mapping[str, Values]:
    """Field metadata: the values of a parameter, in the order in which they are tried."""
    return {_DOMAIN: allowed}


def values_from(function: ValuesFrom, *, for_speed: bool = False) -> Mapping[str, object]:
    """Field metadata: a function of the problem and the device that returns the values.

    With `for_speed` the kernel takes others too, within the family's rules.
    """
    return {_DOMAIN: function, _FOR_SPEED: for_speed}


def names(params: type[Any]) -> tuple[str, ...]:
    """The parameters of a class, in the order in which it declares them itself."""
    return tuple(params.__annotations__)


def chosen_for_speed(params: type[Any]) -> frozenset[str]:
    """The parameters whose domain leaves out values that the kernel takes."""
    return frozenset(field.name for field in fields(params) if field.metadata.get(_FOR_SPEED))


def domain(params: type[Any], problem: Problem, device: Device) -> dict[str, Values]:
    """The values of each parameter for a problem on a device, in the order of the parameters."""
    declared = {field.name: field.metadata[_DOMAIN] for field in fields(params)}
    return {
        name: declared[name](problem, device) if callable(declared[name]) else declared[name]
        for name in names(params)
    }
