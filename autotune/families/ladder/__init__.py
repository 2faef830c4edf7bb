"""The rungs of the ladder (`cuda_src/ladder/`): kernels for reading, each a change of the one
before, with fixed tiles. Everything that shows or runs them follows from the table `RUNGS`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families.config import Config
from autotune.families.family import Family, ParameterFunction, Rule, Work, parameter_from
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Resources, Template
from autotune.families.plan import TensorMap
from autotune.families.shared.arguments import sizes_and_factors, words
from autotune.families.shared.limits import LARGEST_GRID_YZ, shared_fault, threads_fault
from autotune.families.summation import sequential, unordered
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

LAYOUTS = {"f32": "nn", "bf16": "nt"}
"""The precisions of the ladder, with the layout that their rungs take: wgmma reads rows along K."""


@dataclass(frozen=True)
class Rung:
    """A step of the ladder.

    Attributes:
        number: its place, from 1 on.
        kernel: the name of the kernel and of its file.
        change: what changed since the rung before, as a sentence.
        removed: what the change removed.
        compute: the precision.
        tile: rows and columns of C that a block computes, and the steps of K between barriers.
        threads: threads a block, as the block's (x, y).
        registers: registers a thread, as compiled for sm_90.
        loads: reads of shared memory (without tiles: of L1) for each multiply-add, in a warp.
        shared: bytes of shared memory a block, and the part of them that is dynamic.
        edges: whether tiles may cross the edges of the matrices.
        capability: the least compute capability.
        vector: elements of A, B and C that rows have to start at multiples of.
    """

    number: int
    kernel: str
    change: str
    removed: str
    compute: str
    tile: tuple[int, int, int]
    threads: tuple[int, int]
    registers: int
    loads: float
    shared: tuple[int, int] = (0, 0)
    edges: bool = False
    capability: tuple[int, int] = (5, 0)
    vector: int = 1

    @property
    def name(self) -> str:
        """The number and the kernel, as the ladder prints them."""
        return f"{self.number} {self.kernel}"

    @property
    def source(self) -> str:
        """The file in `cuda_src/`."""
        return f"ladder/{self.number:02}_{self.kernel}.cu"

    def config(self, device: Device) -> Config:
        """The configuration that runs it."""
        return Config.of(LADDER.name, {"rung": self.number})


_F32 = partial(Rung, compute="f32")

RUNGS = (
    _F32(
        1,
        "naive",
        "a thread computes an element of C from global memory",
        "",
        tile=(32, 32, 4),
        threads=(32, 32),
        registers=32,
        loads=33,
        edges=True,
    ),
    _F32(
        2,
        "coalesced",
        "neighbouring threads compute neighbours in a row of C",
        "31 of 32 cache lines of each load of A",
        tile=(32, 32, 4),
        threads=(32, 32),
        registers=32,
        loads=2,
        edges=True,
    ),
    _F32(
        3,
        "tiled",
        "a block copies tiles of A and B into shared memory",
        "31 of 32 loads from global memory",
        tile=(32, 32, 32),
        threads=(32, 32),
        registers=32,
        loads=1.25,
        shared=(8192, 0),
        edges=True,
    ),
    _F32(
        4,
        "dynamic",
        "the launch chooses the width of the tiles",
        "the fixed width, and with it unrolled loops",
        tile=(32, 32, 32),
        threads=(32, 32),
        registers=32,
        loads=2,
        shared=(8192, 8192),
        edges=True,
    ),
    _F32(
        5,
        "registers",
        "a thread keeps 8 x 8 sums in registers",
        "7 of 8 loads from shared memory",
        tile=(128, 128, 8),
        threads=(256, 1),
        registers=162,
        loads=0.16,
        shared=(8192, 0),
    ),
    _F32(
        6,
        "vectors",
        "loads take four floats, and A lies transposed in shared memory",
        "3 of 4 load instructions",
        tile=(128, 128, 8),
        threads=(256, 1),
        registers=117,
        loads=0.125,
        shared=(8192, 0),
        vector=4,
    ),
    _F32(
        7,
        "warps",
        "a warp has a tile, in which threads lie side by side",
        "conflicts in the banks of shared memory",
        tile=(128, 128, 8),
        threads=(256, 1),
        registers=117,
        loads=0.0625,
        shared=(8192, 0),
        vector=4,
    ),
    _F32(
        8,
        "async",
        "asynchronous copies fill three tiles ahead",
        "waits for global memory, and one barrier of two",
        tile=(128, 128, 8),
        threads=(256, 1),
        registers=127,
        loads=0.0625,
        shared=(33280, 0),
        capability=(8, 0),
        vector=4,
    ),
    _F32(
        9,
        "fragments",
        "16 x 8 sums a thread, operands loaded a step ahead",
        "waits for shared memory, and a quarter of its loads",
        tile=(128, 256, 8),
        threads=(256, 1),
        registers=201,
        loads=0.047,
        shared=(49664, 49664),
        capability=(8, 0),
        vector=4,
    ),
)


def _rungs(problem: Problem, _device: Device) -> tuple[int, ...]:
    return tuple(rung.number for rung in RUNGS if rung.compute == problem.compute)


@dataclass
class LadderParams:
    """Parameters of a rung: only its number.

    Attributes:
        rung: number of the rung.
    """

    rung: int = parameter_from(_rungs)

    @property
    def row(self) -> Rung:
        """The rung."""
        return RUNGS[self.rung - 1]


def _operation_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    plain = Problem(problem.m, problem.n, problem.k, problem.compute, LAYOUTS[p.row.compute])
    return None if problem == plain else f"computes alpha A B + beta C of {plain} alone"


def _edges_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    sizes = zip("mnk", (problem.m, problem.n, problem.k), p.row.tile, strict=True)
    odd = [f"{name} = {size} of {side}" for name, size, side in sizes if size % side]
    return f"takes whole tiles; no multiple is {', '.join(odd)}" if odd and not p.row.edges else None


def _capability_fault(p: LadderParams, _problem: Problem, device: Device) -> str | None:
    if device.compute_capability >= p.row.capability:
        return None
    needed, own = ("{}.{}".format(*each) for each in (p.row.capability, device.compute_capability))
    return f"needs compute capability {needed}; {device.name} has {own}"


def _threads_fault(p: LadderParams, _problem: Problem, device: Device) -> str | None:
    return threads_fault(p.row.threads[0] * p.row.threads[1], device)


def _shared_fault(p: LadderParams, _problem: Problem, device: Device) -> str | None:
    return shared_fault(p.row.shared[0], 1, device)


def _grid_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    rows = ceil_div(problem.m, p.row.tile[0])
    return f"needs {rows} rows of blocks of {LARGEST_GRID_YZ}" if rows > LARGEST_GRID_YZ else None


def _resources(p: LadderParams, _problem: Problem, _device: Device | None) -> Resources:
    return Resources(p.row.threads[0] * p.row.threads[1], p.row.registers, p.row.shared[0])


def _work(p: LadderParams, problem: Problem) -> Work:
    """The work of a block; loads count as multiply-adds."""
    rung = p.row
    rows, columns, steps = rung.tile
    warps = rung.threads[0] * rung.threads[1] // 32
    products = rows * columns * steps / 32
    return Work(
        blocks=ceil_div(problem.m, rows) * ceil_div(problem.n, columns),
        rows=rows,
        columns=columns,
        warps=warps,
        iterations=problem.k / steps,
        issue=products * (1 + rung.loads),
        shared=products * rung.loads,
        bytes=(rows + columns) * steps * problem.element_bytes,
    )


def _plan(config: Config, p: LadderParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch with one block for each tile of C.

    Raises:
        ConfigError: if rows do not start where the rung's vectors do.
    """
    rung = p.row
    if min(alignment.a, alignment.b, alignment.c) < rung.vector:
        raise ConfigError(
            f"{config} loads vectors of {rung.vector} elements; give matrices whose addresses and "
            "leading dimensions are multiples of them"
        )
    launch = Launch(
        template=Template(rung.source, rung.kernel),
        grid=(ceil_div(problem.n, rung.tile[1]), ceil_div(problem.m, rung.tile[0]), 1),
        block=(*rung.threads, 1),
        shared=rung.shared[1],
        arguments=(*words("a", "lda", "b", "ldb", "c", "ldc"), *sizes_and_factors(problem)),
    )
    return LaunchPlan(config, (launch,), dependent=False)


LADDER = Family(
    name="ladder",
    params=LadderParams,
    sources=tuple(rung.source for rung in RUNGS),
    precisions=tuple(LAYOUTS),
    order=0,
    rules=(
        Rule("operation", _operation_fault, ("rung",)),
        Rule("capability", _capability_fault, ("rung",)),
        Rule("edges", _edges_fault, ("rung",)),
        Rule("threads", _threads_fault, ("rung",)),
        Rule("shared memory", _shared_fault, ("rung",)),
        Rule("grid", _grid_fault, ("rung",)),
    ),
    resources=_resources,
    block_work=_work,
    launch_plan=_plan,
    summation=ParameterFunction(sequential),
    summation_order=ParameterFunction(unordered),
)

FAMILIES = (LADDER,)
