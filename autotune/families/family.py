"""A kernel family: its parameters, its rules, its cost and the launches it plans.

The parameters are a dataclass whose fields carry the values that may be chosen:

    @dataclass
    class TiledParams:
        tile_width: int = parameter(8, 16, 32)
        workers: int = parameter_from(worker_counts)

The order of the fields is the order in which values are chosen and the order of a `Config`. A class
that inherits some of its parameters declares every one again, so that its own order counts. The
class is not frozen: to build a frozen one takes four times as long, of each of some 10^5 predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.summation import ACCURACY, Summation, SummationOrder, possible_limit
from autotune.problem import Problem

P = TypeVar("P")
T_co = TypeVar("T_co", covariant=True)

CUDA_CORES = ("f32", "tf32", "tf32x3")
"""Precisions of families with IEEE fp32 products: all that are stored as fp32."""
TENSOR_CORES = ("tf32", "tf32x3", "f16", "bf16")
"""Precisions of families on tensor cores."""
EIGHT_BITS = ("f8", "f8e5", "i8")
"""Precisions of 8-bit operands."""

Values = tuple[Value, ...]
ValuesFrom = Callable[[Problem, Device], Values]

_DOMAIN, _FOR_SPEED = "domain", "for_speed"


class _Unchosen:
    """The value of a parameter that is not chosen yet, which refuses to be compared."""

    __hash__ = object.__hash__

    def __eq__(self, _value: object) -> NoReturn:
        raise TypeError("a rule uses a parameter that it does not list among its needs")

    def __bool__(self) -> NoReturn:
        raise TypeError("a rule uses a parameter that it does not list among its needs")


_UNCHOSEN = _Unchosen()


def parameter(*allowed: Value) -> Any:
    """A field for a parameter with its values, in the order in which they are tried."""
    return field(default=_UNCHOSEN, metadata={_DOMAIN: allowed})


def parameter_from(function: ValuesFrom, *, for_speed: bool = False) -> Any:
    """A field for a parameter whose values are a function of the problem and the device.

    With `for_speed` the kernel takes others too, within the family's rules.
    """
    return field(default=_UNCHOSEN, metadata={_DOMAIN: function, _FOR_SPEED: for_speed})


@dataclass(frozen=True)
class Rule:
    """A reason to reject a candidate before it is compiled.

    Attributes:
        reason: a short name that rejections are counted under, such as `shared memory`.
        check: returns None if the parameters are fine, else what is wrong with their numbers, such
            as `needs 294912 bytes a block, H100 allows 232448`. The enumeration asks as soon as all
            parameters of `needs` are chosen; a rule may rely on those before it.
        needs: the parameters that the check reads.
        for_speed: whether the kernel runs all the same, only not fast or accurate as a rule.
            Recorded configurations may break it: a measurement overrules it.
        for_shape: whether it only weighs how K is shared or how large tiles are against M and N. A
            prescribed order of summation, which has to serve every M, overrules it.
    """

    reason: str
    check: Callable[[Any, Problem, Device], str | None]
    needs: tuple[str, ...] = ()
    for_speed: bool = False
    for_shape: bool = False


@dataclass(frozen=True)
class ParameterFunction(Generic[T_co]):
    """A function of some of a family's parameters and the problem.

    Attributes:
        function: the function.
        needs: the parameters that it reads.
    """

    function: Callable[[Any, Problem], T_co]
    needs: tuple[str, ...] = ()


def accuracy_rule(summation: ParameterFunction[Summation]) -> Rule:
    """The rule on the error that sums predict; a recorded kernel was verified, which overrules
    it."""

    def check(p: object, problem: Problem, device: Device) -> str | None:
        return possible_limit(problem, device).fault(summation.function(p, problem), problem)

    return Rule(ACCURACY, check, summation.needs, for_speed=True)


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


@dataclass(frozen=True, eq=False)
class Family(Generic[P]):
    """A kernel family: what it declares, and functions of its typed parameters.

    A configuration that breaks no rule has a plan for every alignment.

    Attributes:
        name: the word before the colon of a configuration's text.
        params: the dataclass of its parameters.
        sources: the files of `cuda_src/` that its launches are compiled from.
        precisions: the values of `Problem.compute` that it serves.
        order: its place among the families, from the plainest to the fastest.
        rules: the reasons to reject a combination of parameters, cheapest first.
        resources: estimates what a configuration takes of an SM before it is compiled: registers
            are a guess, the least of them or for a device the most; the rest is exact.
        block_work: describes the work of a configuration's blocks for the cost model.
        launch_plan: plans the launches of a configuration on operands of an alignment.
        summation: tells how long the sums of products are.
        summation_order: tells in which order products are added up; None if the order depends on M
            or on the place in C.
        tensor_cores: whether it computes on tensor cores.
        search_order: its place among the families that `--family auto` tries; None leaves it out.
        for_reading: whether its kernels are for reading (the ladder's rungs): no look-up chooses
            them, so that their sources do not count for it.
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
    summation: ParameterFunction[Summation]
    summation_order: ParameterFunction[SummationOrder | None]
    tensor_cores: bool = False
    search_order: int | None = None
    for_reading: bool = False
    narrow: bool = False

    @cached_property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The metadata of each parameter's field, in the order in which the class declares them."""
        declared = {field.name: field.metadata for field in fields(self.params)}  # type: ignore[arg-type]
        return {name: declared[name] for name in self.params.__annotations__}

    def domain(self, problem: Problem, device: Device) -> dict[str, Values]:
        """The values of each parameter, in the order in which they are chosen."""
        declared = {name: carried[_DOMAIN] for name, carried in self.parameters.items()}
        return {
            name: values(problem, device) if callable(values) else values
            for name, values in declared.items()
        }

    @cached_property
    def chosen_for_speed(self) -> frozenset[str]:
        """The parameters whose domain leaves out values that the kernel takes."""
        return frozenset(name for name, row in self.parameters.items() if row.get(_FOR_SPEED))

    def decode(self, config: Config) -> P:
        """The typed parameters of a configuration of this family.

        Raises:
            ConfigError: if a parameter is missing or unknown.
        """
        values = dict(config.params)
        if values.keys() != self._names:
            wrong = ", ".join(sorted(values.keys() ^ self._names))
            raise ConfigError(f"{config}: missing or unknown: {wrong}")
        return self.chosen(values)

    def chosen(self, values: Mapping[str, Value]) -> P:
        """The typed parameters with the values chosen so far; others may not be used."""
        make: Callable[..., P] = self.params
        return make(**values)

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
        return frozenset(self.parameters)
