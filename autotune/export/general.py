"""General kernels for shapes that were not exported: a launch whose grid follows from the sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.mma.parameters import COPY_BYTES
from autotune.families.plan import Alignment, Launch, LaunchPlan
from autotune.families.shared.launch_limits import LARGEST_GRID_X, has_cp_async
from autotune.families.shared.tiles import tile_count
from autotune.problem import GATE_SPAN, Problem
from autotune.problem.precision import F32

_SIMT = (
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy={copy},stages={stages},"
    "fragments=2,min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,"
    "fence=0,order=rows"
)
_MMA = (
    "mma:compute={compute},swap=0,bm=64,bn=64,bk=32,wm=32,wn=32,slices=1,copy={copy},pack=none,"
    "stages={stages},split_k=1,promote=0,min_blocks=1,store=direct,group=1"
)
_SAMPLE = 1112, 1136, 1144
"""Sizes that are multiples of whole vectors but of no tile: a plan for them fits every shape."""


@dataclass(frozen=True)
class General:
    """A launch that serves every m, n, k and batch of one kind of problem.

    Attributes:
        problem: the compute, layout, epilogue and output; its sizes are placeholders.
        config: the configuration.
        alignment: the least alignment of the operands and of their row lengths.
        tile: rows and columns of C that a block computes; the grid has a block for each tile along
            x and for each matrix of the batch along z.
        launch: the launch, with the words `m`, `n` and `k` for the sizes and a placeholder for the
            grid.
    """

    problem: Problem
    config: Config
    alignment: Alignment
    tile: tuple[int, int]
    launch: Launch

    def serves(self, problem: Problem) -> bool:
        """Whether the problem is of this kind, has rows of whole vectors and fits a grid."""
        kind = replace(self.problem, m=problem.m, n=problem.n, k=problem.k, batch=problem.batch)
        wanted = self.alignment.a, self.alignment.b, self.alignment.c
        rows = zip(problem.leading_dimensions, wanted, strict=True)
        whole = all(length % width == 0 for length, width in rows)
        return kind == problem and whole and self._tiles(problem) <= LARGEST_GRID_X

    def plan(self, problem: Problem) -> LaunchPlan:
        """The launches of a problem that it serves."""
        sizes = {"m": problem.m, "n": problem.n, "k": problem.k}
        arguments = (
            replace(argument, value=sizes.get(str(argument.value), argument.value))
            for argument in self.launch.arguments
        )
        grid = self._tiles(problem), 1, problem.batch
        return LaunchPlan(
            self.config, (replace(self.launch, grid=grid, arguments=tuple(arguments)),)
        )

    def _tiles(self, problem: Problem) -> int:
        return tile_count(problem, *self.tile)


def generals(problem: Problem, device: Device) -> tuple[General, ...]:
    """The general kernels for the problem's kind on a device, that for whole vectors first.

    Tensor cores serve `f16`, `bf16` and, where the device has them for it, `tf32`; IEEE products
    serve the other precisions of 16 and 32 bits. Those of 8 bits have none.
    """
    if problem.precision.eight_bit:
        return ()
    m, n, k = _SAMPLE
    sample = replace(problem, m=m, n=n, k=k, batch=1)
    return tuple(
        _general(sample, _config(problem, device, alignment), alignment)
        for alignment in (Alignment.dense(sample), Alignment(1, 1, 1))
    )


def _general(sample: Problem, config: Config, alignment: Alignment) -> General:
    (launch,) = registry.plan(config, sample, alignment).launches
    words: dict[object, str] = {sample.m: "m", sample.n: "n", sample.k: "k"}
    arguments = tuple(
        replace(argument, value=words[argument.value])
        if argument.type == "i32" and argument.value in words
        else argument
        for argument in launch.arguments
    )
    tile = registry.find(config.family).work(config, sample).tile
    launch = replace(launch, grid=(1, 1, 1), arguments=arguments)
    n = 2 * GATE_SPAN if sample.gated else 1
    return General(replace(sample, m=1, n=n, k=1), config, alignment, tile, launch)


def _config(problem: Problem, device: Device, alignment: Alignment) -> Config:
    modern, precision = has_cp_async(device), problem.precision
    copy, stages = ("async", 3) if modern else ("staged", 2)
    # The tensor-core kernel neither promotes sums nor runs tf32 before cp.async.
    if precision.sums != "tensor" or (precision.operand is F32 and not modern):
        return Config.parse(_SIMT.format(copy=copy, stages=stages))
    if alignment.a * problem.element_bytes < COPY_BYTES:
        stages = 2  # narrower vectors than cp.async copies go through registers, a buffer ahead
    return Config.parse(_MMA.format(compute=precision.name, copy=copy, stages=stages))
