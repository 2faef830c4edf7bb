"""A kernel family: its parameters, its rules, its cost and the launches it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import parameters
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.rules import Rule
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
        return parameters.domain(self.params, problem, device)

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
        return frozenset(parameters.names(self.params))
