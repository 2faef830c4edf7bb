"""What a kernel family is: its parameters, its rules and the launches it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.problem import Problem

# Chosen parameters; each family knows the types of its own.
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """One reason for which a candidate is illegal, checked before compilation.

    Attributes:
        reason: a short name that rejections are counted under, such as `shared memory`.
        needs: the parameters that the check reads; it is made as soon as all are chosen.
        check: takes the chosen values and returns None if they are fine, else what is wrong
            with its numbers, such as `needs 294912 bytes a block, H100 allows 232448`.
    """

    reason: str
    needs: tuple[str, ...]
    check: Callable[[Params], str | None]


class Work(NamedTuple):
    """What the blocks of a configuration do, as far as the cost model looks.

    A turn is one round of a block's loop, from a barrier to the next.

    Attributes:
        blocks: blocks of the product's launch, over the whole batch.
        rows, columns: of C that a block computes at a time.
        warps: of a block.
        turns: that a block makes.
        starts: how often a block begins anew, without anything in its buffers.
        issue: instructions that the warps of a block issue in a turn, without those of `copies`.
        copies: of which so many bring operands to where they are multiplied.
        shared: cycles in a turn for which a block keeps the one path to shared memory busy.
        waits: how often in a turn a warp waits for what it has just asked of shared memory.
        bytes: that a block asks of L2 in a turn.
        ahead: turns that pass between asking for operands and multiplying them.
        end: cycles, besides its turns, in which a block adds up what its warps have and stores it.
        group: rows of tiles that are walked together.
        gathers: loads that a thread of the last block of a tile waits for, one after the other, to
            add up what other blocks left.
        passes: launches besides the product's.
        moved: bytes that those read, and that were written for them or by them.
        tensor: fused multiply-adds of a block's turn on the tensor cores, each product of `tf32x3`
            counted: BM x BN x BK x `Problem.products`. The device's rate makes cycles of them.
        traits: what the time of an instruction, also of one of the tensor cores, depends on
            besides; each has a fitted factor.
    """

    blocks: int
    rows: int
    columns: int
    warps: int
    turns: float
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
    traits: tuple[str, ...] = ()

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that a block computes at a time."""
        return self.rows, self.columns


class Family(Protocol):
    """A kernel family. Implementations hold no state.

    `computes` are those of `Problem.compute` that it serves: nothing else is asked of it. `domain`
    gives the parameters and their possible values in the order in which they are chosen; `rules`
    the reasons to reject a combination; `estimate` the resources of a configuration before
    compilation (registers are a guess, the rest is exact); `work` what the cost model reads; `plan`
    the launches. A configuration that breaks no rule has a plan for every alignment.
    """

    @property
    def name(self) -> str: ...

    @property
    def computes(self) -> tuple[str, ...]: ...

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]: ...

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]: ...

    def estimate(self, config: Config) -> Resources: ...

    def work(self, config: Config, problem: Problem) -> Work: ...

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan: ...
