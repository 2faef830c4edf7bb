"""The kernel `gemv`: its parameters, the work of its blocks, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from autotune.families.config import Config
from autotune.families.family import Work, parameter
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import (
    along_k,
    call_struct,
    constants,
    read_as,
    sizes_and_factors,
    struct,
    transposed,
    variants,
)
from autotune.families.shared.tiling import WARP
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

ROWS = (1, 2, 4, 8, 16)
VECTOR = 4
"""Floats of a vector."""
OTHER_REGISTERS = 32
"""Registers besides the sums and operands."""
PADDED_ROWS = 8
"""Rows of the smaller operand from which on its rows in shared memory are padded by a vector."""
SPLITS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64),
    *(80, 96, 128, 160, 192, 256, 320, 384, 512),
)


def is_transposed(problem: Problem) -> bool:
    """Whether C^T is computed instead of C: C has fewer columns than rows."""
    return problem.m > problem.n


def oriented(problem: Problem) -> Problem:
    """The problem that the kernel computes, with no more rows than columns."""
    return transposed(problem) if is_transposed(problem) else problem


@dataclass
class GemvParams:
    """Parameters of `gemv`, which computes C, or C^T if C has fewer columns than rows.

    Attributes:
        rows: rows of C; a thread has a sum for each of them in each of its columns.
        columns: columns of a thread.
        depth: steps of K that a thread loads at a time.
        across: threads of a block along N.
        ways: threads of a block along K.
        split_k: blocks that share K; the last to finish a strip adds up the sums.
        stages: 1 loads batches through registers; with more, cp.async loads `stages` - 1 of them
            ahead.
    """

    rows: int = parameter(*ROWS)
    columns: int = parameter(1, 2, 4, 8)
    depth: int = parameter(4, 8, 16, 32)
    across: int = parameter(1, 2, 4, 8, 16, 32, 64)
    ways: int = parameter(1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    split_k: int = parameter(*SPLITS)
    stages: int = parameter(1, 2, 3, 4)

    @property
    def width(self) -> int:
        """Columns of a strip."""
        return self.columns * self.across

    def strips(self, oriented: Problem) -> int:
        """Blocks side by side along N."""
        return ceil_div(oriented.n, self.width)

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.across * self.ways

    @property
    def batch_steps(self) -> int:
        """Steps of K of a batch, by all `ways`."""
        return self.ways * self.depth

    def steps(self, oriented: Problem) -> int:
        """Steps of K of a block: whole vectors, except for the last block."""
        return min(oriented.k, round_up(ceil_div(oriented.k, self.split_k), VECTOR))

    @property
    def tile(self) -> int:
        """Elements of C that a block computes."""
        return self.rows * self.width

    @property
    def registers(self) -> int:
        """Estimated registers a thread: sums, the values of a step or of a batch, and others."""
        values_ahead = self.depth if self.stages == 1 else VECTOR
        return self.columns * (self.rows + values_ahead) + self.rows + OTHER_REGISTERS

    def shared_bytes(self, b_along_k: bool) -> int:
        """Shared memory of the batches, and later of the sums of all threads.

        Args:
            b_along_k: whether the rows of B run along K as it is stored.
        """
        rows, steps = self.rows, self.batch_steps
        padded = rows + VECTOR if rows >= PADDED_ROWS else rows
        small = rows * (steps + VECTOR) if b_along_k else steps * padded
        large = self.threads * self.columns * self.depth if self.stages > 1 else 0
        batches = max(2, self.stages) * (small + large)
        sums = self.threads * rows * self.columns
        return 4 * max(batches, sums)

    def blocks(self, oriented: Problem) -> int:
        """Blocks over the whole batch."""
        return self.strips(oriented) * self.split_k * oriented.batch


SPLITS_AT_ONCE = 8
"""Partial sums along K that a thread loads together (`gemv.cu`)."""


def work(p: GemvParams, problem: Problem) -> Work:
    """The work of a block; an iteration is a batch: `depth` steps of each of the `ways`."""
    form, steps = oriented(problem), p.batch_steps
    warps = p.threads / WARP
    # Vectors of a thread: of the larger operand, which cp.async takes through shared memory, and of
    # the smaller one, which all lanes read.
    large, small = p.depth * p.columns / VECTOR, p.depth * p.rows / VECTOR
    through = 2 * large if p.stages > 1 else 0
    # Partial sums that the threads of the last block of a strip load together.
    together = SPLITS_AT_ONCE * p.threads / (p.tile / VECTOR)
    return Work(
        blocks=p.blocks(form),
        rows=p.rows,
        columns=p.width,
        warps=ceil_div(p.threads, WARP),
        iterations=ceil_div(p.steps(form), steps),
        issue=warps * (p.depth * p.rows * p.columns + small + through / 2),
        copies=warps * large + steps * p.rows / WARP,
        shared=warps * (small + VECTOR * (large + through)) + steps * p.rows / WARP,
        bytes=problem.element_bytes * steps * (form.m + p.width),
        ahead=p.stages - 1,
        end=2 * p.ways * p.tile / WARP,
        gathers=max(1.0, p.split_k / together) if p.split_k > 1 else 0,
        traits=("gemv", f"gemv {'async' if p.stages > 1 else 'staged'}"),
    )


def plan(config: Config, p: GemvParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch; the last block of each strip of C adds up the sums of the others."""
    form, swap = oriented(problem), is_transposed(problem)
    read = ("b", "a") if swap else ("a", "b")
    aligned = replace(alignment, a=alignment.b, b=alignment.a) if swap else alignment
    launch = Launch(
        template=_template(p, form, aligned, swap),
        grid=(p.strips(form), p.split_k, problem.batch),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes(along_k(form, "b")),
        arguments=(
            call_struct(**read_as("a", read[0]), **read_as("b", read[1])),
            struct("GemvSchedule", share=Argument("i32", p.steps(form))),
            *sizes_and_factors(form),
        ),
    )
    if p.split_k == 1:
        return LaunchPlan(config, (launch,))
    workspace = form.element_bytes * p.tile * p.blocks(form)
    return LaunchPlan(config, (launch,), workspace, p.strips(form) * problem.batch)


def _template(p: GemvParams, form: Problem, alignment: Alignment, swap: bool) -> Template:
    a_along_k, b_along_k = along_k(form, "a"), along_k(form, "b")
    # Vectors of the smaller operand are not transposed on the way.
    va = gcd(alignment.a, form.k if a_along_k else form.m) if a_along_k == b_along_k else 1
    vb = gcd(alignment.b, form.k) if b_along_k else gcd(alignment.b, form.n, p.columns)
    return Template(
        "gemv.cu",
        "gemv",
        (
            *constants(p, "rows", "columns", "depth", "across", "ways", "stages"),
            *variants(form),
            ("VA", va),
            ("VB", vb),
            ("TRANSPOSED", swap),
        ),
        named=True,
    )
