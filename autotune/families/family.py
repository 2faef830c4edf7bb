"""A kernel family: its parameters, its rules, its cost and the launches it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, lru_cache, partial
from inspect import signature, unwrap
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.summation import Summation, SummationOrder
from autotune.problem import Problem

P = TypeVar("P")


class Between(NamedTuple):
    """A trait between two that have factors: its own is interpolated.

    Attributes:
        lower, upper: the names of the two.
        share: the share of the upper one, from 0 to 1.
    """

    lower: str
    upper: str
    share: float

    def terms(self, factors: Mapping[str, float]) -> dict[str, float]:
        """The two terms that the interpolated factor is the sum of, by name."""
        lower, upper = (factors.get(name, 1.0) for name in self[:2])
        return {self.lower: (1 - self.share) * lower, self.upper: self.share * upper}


class Work(NamedTuple):
    """The work of the blocks of a configuration: the input of the cost model.

    A k-iteration is one round of a block's main loop, from a barrier to the next.

    Attributes:
        blocks: blocks of the main launch, over the whole batch.
        rows, columns: the tile of C that a block computes at a time.
        warps: warps a block.
        iterations: k-iterations a block.
        starts: how often a block starts a tile with empty buffers.
        issue: instructions that the warps of a block issue in an iteration, without `copies`.
        copies: instructions of an iteration that copy operands to shared memory.
        shared: cycles of an iteration in which a block keeps the path to shared memory busy.
        waits: how often in an iteration a warp waits for a load from shared memory.
        bytes: bytes that a block reads from L2 in an iteration.
        ahead: iterations between the copy of operands and their use.
        end: cycles after the main loop in which a block adds up and stores its tile.
        group: rows of tiles that blocks take together.
        gathers: loads that a thread of the last block of a tile waits for, one after the other,
            while it adds up the partial sums of other blocks.
        passes: launches besides the main one.
        moved: bytes that those launches read, and bytes written for them or by them.
        tensor: fused multiply-adds of a block's iteration on tensor cores, counting each product of
            `tf32x3`: BM x BN x BK x `Problem.products`. The device's rate turns them into cycles.
        traits: what else the time of an instruction depends on: names with a fitted factor each,
            and points between two names.
        cluster: blocks of a cluster, which have to be resident in one GPC.
    """

    blocks: int
    rows: int
    columns: int
    warps: int
    iterations: float
    issue: float
    shared: float
    bytes: float
    starts: float = 1
    copies: float = 0
    waits: float = 0
    ahead: int = 0
    end: float = 0
    group: int = 1
    gathers: float = 0
    passes: int = 0
    moved: float = 0
    tensor: float = 0
    traits: tuple[str | Between, ...] = ()
    cluster: int = 1

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that a block computes at a time."""
        return self.rows, self.columns


@dataclass(frozen=True)
class Family(Generic[P]):
    """A kernel family: what it declares, and functions of its typed parameters.

    A configuration that breaks no rule has a plan for every alignment.

    Attributes:
        name: the word before the colon of a configuration's text.
        params: the frozen dataclass of its parameters (see `parameters`).
        sources: the files of `cuda_src/` that its launches are compiled from.
        precisions: the values of `Problem.compute` that it serves.
        order: its place among the families, from the plainest to the fastest.
        rules: the reasons to reject a combination of parameters, cheapest first.
        resources: estimates what a configuration takes of an SM before it is compiled: registers
            are a guess, the least of them or for a device the most; the rest is exact.
        block_work: describes the work of a configuration's blocks for the cost model.
        launch_plan: plans the launches of a configuration on operands of an alignment.
        summation: tells how long the sums of products are; takes the arguments of a rule.
        summation_order: tells in which order products are added up; None if the order depends on M
            or on the place in C. Takes the arguments of a rule.
        tensor_cores: whether it computes on tensor cores.
        search_order: its place among those that `--family auto` tries; None leaves it out.
        on_ladder: whether the ladder shows it.
        narrow: whether it serves few shapes, with few configurations each, so that all of them can
            be predicted where those that serve any shape do not suit.
    """

    name: str
    params: type[P]
    sources: tuple[str, ...]
    precisions: tuple[str, ...]
    order: int
    rules: tuple[Rule, ...]
    resources: Callable[[P, Problem, Device | None], Resources]
    block_work: Callable[[P, Problem], Work]
    launch_plan: Callable[[Config, P, Problem, Alignment], LaunchPlan]
    summation: Callable[..., Summation]
    summation_order: Callable[..., SummationOrder | None]
    tensor_cores: bool = False
    search_order: int | None = None
    on_ladder: bool = False
    narrow: bool = False

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter, in the order in which they are chosen."""
        return domain(self.params, problem, device)

    def decode(self, config: Config) -> P:
        """The typed parameters of a configuration of this family.

        Raises:
            ConfigError: if a parameter is missing or unknown.
        """
        values = dict(config.params)
        if values.keys() != self._names:
            wrong = ", ".join(sorted(values.keys() ^ self._names))
            raise ConfigError(f"{config}: missing or unknown: {wrong}")
        # The cost model decodes some 10^5 configurations; a frozen __init__ takes five times this.
        params = object.__new__(self.params)
        params.__dict__.update(values)
        return params

    def estimate(self, config: Config, problem: Problem, device: Device | None = None) -> Resources:
        """Estimates what a configuration takes of an SM before it is compiled: at least, or for a
        device as much as its compiler is likely to take."""
        return self.resources(self.decode(config), problem, device)

    def work(self, config: Config, problem: Problem) -> Work:
        """Describes the work of a configuration's blocks for the cost model."""
        return self.block_work(self.decode(config), problem)

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """Plans the launches of a configuration on operands of an alignment."""
        return self.launch_plan(config, self.decode(config), problem, alignment)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(names(self.params))


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


CUDA_CORES = ("f32", "tf32", "tf32x3")
"""Precisions of families with IEEE fp32 products: all that are stored as fp32."""
TENSOR_CORES = ("tf32", "tf32x3", "f16", "bf16")
"""Precisions of families on tensor cores."""
EIGHT_BITS = ("f8", "f8e5", "i8")
"""Precisions of 8-bit operands."""
