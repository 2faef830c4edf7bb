"""The rungs of the ladder (`cuda_src/ladder/`): kernels for reading, each a change of the one
before, with fixed tiles. Everything that shows or runs them follows from the table `RUNGS`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families.config import Config
from autotune.families.family import Family, ParameterFunction, Rule, Work, parameter_from
from autotune.families.plan import (
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Resources,
    Template,
    TensorMap,
)
from autotune.families.shared.arguments import sizes_and_factors, words
from autotune.families.shared.limits import LARGEST_GRID_YZ, capability_fault
from autotune.families.summation import sequential, unordered
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

LAYOUTS = {"f32": "nn", "bf16": "nt"}
"""The precisions of the ladder, with the layout of their rungs: in nt both operands run along K."""
HOPPER = (9, 0)
"""Compute capability of rungs with wgmma, TMA and clusters, which run on no other."""
LINE = 64
"""Elements of bf16 in a line of 128 bytes, the span of the swizzle."""


@dataclass(frozen=True)
class Rung:
    """A step of the ladder.

    Attributes:
        number: its place, from 1 on.
        kernel: the name of the kernel and of its file.
        change: what is new since the rung before.
        removed: what that removed.
        compute: the precision.
        tile: rows and columns of C that a block computes, and its steps of K at a time.
        threads: threads a block, along x and y.
        registers: registers a thread, as compiled for sm_90.
        loads: reads of shared memory (without tiles: of L1) for each multiply-add of a warp; 0 on
            tensor cores.
        shared: bytes of shared memory a block.
        static: whether they are static.
        edges: whether tiles may cross the edges of the matrices.
        capability: the least compute capability, or `HOPPER` alone.
        vector: elements whose multiples rows of A, B and C have to start at.
        boxes: rows of the boxes of the tensor maps of A, B and C, as far as it takes them.
        cluster: blocks of a cluster, along M.
        persistent: whether blocks take several tiles.
        traits: the `Work.traits` of the tuned kernels whose inner loop is alike.
    """

    number: int
    kernel: str
    change: str
    removed: str
    compute: str
    tile: tuple[int, int, int]
    threads: tuple[int, int]
    registers: int
    loads: float = 0.0
    shared: int = 0
    static: bool = False
    edges: bool = False
    capability: tuple[int, int] = (5, 0)
    vector: int = 1
    boxes: tuple[int, ...] = ()
    cluster: int = 1
    persistent: bool = False
    traits: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The number and the kernel, as the ladder prints them."""
        return f"{self.number} {self.kernel}"

    @property
    def source(self) -> str:
        """The file in `cuda_src/`."""
        return f"ladder/{self.number:02}_{self.kernel}.cu"

    def config(self, device: Device) -> Config:
        """The configuration that runs it on a device."""
        return Config.of("ladder", {"rung": self.number, "workers": self.workers(device)})

    def workers(self, device: Device) -> int:
        """Blocks of a persistent grid, in whole clusters; 0 for a block a tile."""
        return device.sms // self.cluster * self.cluster if self.persistent else 0


_Plain = partial(Rung, compute="f32", tile=(32, 32, 32), threads=(32, 32), registers=32, edges=True)
_Block = partial(
    Rung,
    compute="f32",
    tile=(128, 128, 8),
    threads=(256, 1),
    shared=8192,
    static=True,
    traits=("8x8",),
)
_Warps = partial(
    Rung,
    compute="bf16",
    tile=(128, 128, 64),
    threads=(256, 1),
    capability=(8, 0),
    vector=8,
)
_Group = partial(
    Rung, compute="bf16", tile=(128, 128, 64), threads=(128, 1), capability=HOPPER, vector=8
)
_Roles = partial(_Group, tile=(128, 256, 64), threads=(384, 1), registers=168)

RUNGS = (
    _Plain(
        1,
        "naive",
        "a thread computes an element of C from global memory",
        "",
        loads=33,
    ),
    _Plain(
        2,
        "coalesced",
        "neighbouring threads compute neighbours in a row of C",
        "31 of the 32 cache lines that a load of A touches",
        loads=2,
    ),
    _Plain(
        3,
        "tiled",
        "a block copies tiles of A and B into shared memory",
        "31 of 32 loads from global memory",
        loads=1.25,
        shared=8192,
        static=True,
    ),
    _Plain(
        4,
        "dynamic",
        "the launch chooses the width of the tiles, which one kernel serves",
        "the fixed width, and with it the unrolled loop over a tile",
        loads=2,
        shared=8192,
    ),
    _Block(
        5,
        "registers",
        "a thread keeps 8 x 8 sums in registers",
        "7 of 8 loads from shared memory",
        registers=128,
        loads=0.16,
    ),
    _Block(
        6,
        "vectors",
        "loads and stores take four floats, and A lies transposed in shared memory",
        "3 of 4 loads from global memory, and of stores",
        registers=117,
        loads=0.125,
        vector=4,
    ),
    _Block(
        7,
        "warps",
        "a warp has a tile, in which its threads' pieces lie side by side",
        "bank conflicts of loads from shared memory",
        registers=117,
        loads=0.0625,
        vector=4,
    ),
    _Block(
        8,
        "async",
        "asynchronous copies fill three tiles ahead",
        "waits for global memory, and one barrier of two",
        registers=121,
        loads=0.0625,
        shared=33280,
        capability=(8, 0),
        vector=4,
    ),
    _Block(
        9,
        "fragments",
        "a thread keeps 8 x 16 sums and loads operands a step ahead",
        "waits for shared memory, and a quarter of its loads",
        tile=(128, 256, 16),
        registers=190,
        loads=0.047,
        shared=74496,
        static=False,
        capability=(8, 0),
        vector=4,
        traits=("8x16",),
    ),
    _Warps(
        10,
        "mma",
        "warps multiply on the tensor cores, from fragments in registers",
        "63 of 64 instructions that multiply",
        registers=122,
        shared=32768,
        static=True,
    ),
    _Warps(
        11,
        "swizzle",
        "the 16-byte pieces of a row change places in shared memory",
        "bank conflicts of ldmatrix: 8 cycles a read become 1",
        registers=125,
        shared=32768,
        static=True,
    ),
    _Warps(
        12,
        "ring",
        "asynchronous copies fill a ring of three stages",
        "waits for global memory, and one barrier of two",
        registers=128,
        shared=98304,
    ),
    _Group(
        13,
        "wgmma",
        "a warpgroup multiplies from shared memory",
        "fragments: their loads and their registers",
        registers=158,
        shared=98304,
    ),
    _Group(
        14,
        "tma",
        "one thread copies whole tiles with the tensor memory accelerator",
        "address arithmetic and copy instructions of all other threads",
        registers=154,
        shared=98304 + 3 * 8,
        boxes=(128, 128),
    ),
    _Roles(
        15,
        "roles",
        "a producer copies while two consumers multiply a tile twice as wide",
        "barriers of the whole block in the loop",
        shared=196608 + 2 * 4 * 8,
        boxes=(128, 256),
    ),
    _Roles(
        16,
        "cluster",
        "two blocks load a tile of B together, each half of it into both",
        "one of two orders of each tile of B",
        shared=196608 + 2 * 4 * 8,
        boxes=(128, 128),
        cluster=2,
    ),
    _Roles(
        17,
        "persistent",
        "blocks stay for several tiles, and store one while the next is loaded",
        "the start of a block a tile, and half-filled sectors of C",
        shared=196608 + 32768 + 2 * 4 * 8,
        boxes=(128, 128, 64),
        cluster=2,
        persistent=True,
    ),
)


@dataclass
class LadderParams:
    """Parameters of a rung.

    Attributes:
        rung: its number.
        workers: blocks of a persistent grid; 0 for a block a tile.
    """

    rung: int = parameter_from(
        lambda problem, _: tuple(row.number for row in RUNGS if row.compute == problem.compute)
    )
    workers: int = parameter_from(
        lambda _, device: tuple(dict.fromkeys(rung.workers(device) for rung in RUNGS))
    )

    @property
    def row(self) -> Rung:
        """The rung."""
        return RUNGS[self.rung - 1]


def _operation_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    plain = Problem(problem.m, problem.n, problem.k, problem.compute, LAYOUTS[p.row.compute])
    return None if problem == plain else f"computes alpha A B + beta C as in {plain} alone"


def _capability_fault(p: LadderParams, _problem: Problem, device: Device) -> str | None:
    needed = p.row.capability
    return capability_fault("the kernel", needed, device, alone=needed == HOPPER)


def _tiles_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    """Whole tiles of whole clusters, unless the rung is about edges."""
    rows, columns, steps = p.row.tile
    sides = {"m": rows * p.row.cluster, "n": columns, "k": steps}
    odd = [f"{name} of {side}" for name, side in sides.items() if getattr(problem, name) % side]
    if p.row.edges or not odd:
        return None
    return f"takes whole tiles: give a multiple for {', '.join(odd)}"


def _grid_fault(p: LadderParams, problem: Problem, _device: Device) -> str | None:
    _, down, _ = _grid(p, problem)
    if down <= LARGEST_GRID_YZ:
        return None
    return f"needs {down} blocks along y, a grid allows {LARGEST_GRID_YZ}"


def _workers_fault(p: LadderParams, _problem: Problem, device: Device) -> str | None:
    needed = p.row.workers(device)
    return None if p.workers == needed else f"runs with {needed} workers on {device.name}"


def _grid(p: LadderParams, problem: Problem) -> tuple[int, int, int]:
    """Blocks along x and y; the neighbours of a cluster lie along M."""
    rows, columns = ceil_div(problem.m, p.row.tile[0]), ceil_div(problem.n, p.row.tile[1])
    if p.row.persistent:
        return p.workers, 1, 1
    return (columns, rows, 1) if p.row.compute == "f32" else (rows, columns, 1)


def _resources(p: LadderParams, _problem: Problem, _device: Device | None) -> Resources:
    return Resources(p.row.threads[0] * p.row.threads[1], p.row.registers, p.row.shared)


def _work(p: LadderParams, problem: Problem) -> Work:
    """The work of a block, whose loads take as long as its multiply-adds do."""
    rung = p.row
    rows, columns, steps = rung.tile
    products = rows * columns * steps
    tensor = products if rung.compute != "f32" else 0
    added = 0 if tensor else products / 32
    return Work(
        blocks=ceil_div(problem.m, rows) * ceil_div(problem.n, columns),
        rows=rows,
        columns=columns,
        warps=rung.threads[0] * rung.threads[1] // 32,
        iterations=problem.k / steps,
        issue=added * (1 + rung.loads),
        shared=added * rung.loads,
        bytes=(rows + columns) * steps * problem.element_bytes,
        tensor=tensor,
        cluster=rung.cluster,
        traits=rung.traits,
    )


def _plan(config: Config, p: LadderParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch.

    Raises:
        ConfigError: if rows do not start where the rung's vectors do.
    """
    rung = p.row
    if min(alignment.a, alignment.b, alignment.c) < rung.vector:
        raise ConfigError(
            f"{config} loads vectors of {rung.vector} elements; give matrices whose addresses and "
            "leading dimensions are multiples of them"
        )
    maps = tuple(_map(name, problem, box) for name, box in zip("abc", rung.boxes, strict=False))
    pointers = words("c", "ldc") if maps else words("a", "lda", "b", "ldb", "c", "ldc")
    launch = Launch(
        template=Template(rung.source, rung.kernel, specific=rung.capability == HOPPER),
        grid=_grid(p, problem),
        block=(*rung.threads, 1),
        shared=0 if rung.static else rung.shared,
        arguments=(*maps, *pointers, *sizes_and_factors(problem)),
        cluster=rung.cluster,
    )
    return LaunchPlan(config, (launch,), dependent=False)


def _map(name: str, problem: Problem, rows: int) -> Argument:
    """The tensor map of an operand, whose boxes are `rows` lines."""
    columns = problem.n if name == "c" else problem.k
    map = TensorMap(
        base=name,
        offset=0,
        type=problem.compute,
        columns=columns,
        rows=problem.n if name == "b" else problem.m,
        batch=1,
        pitch=f"ld{name}",
        stride=0,
        box=(LINE, rows),
        swizzle=2 * LINE,
    )
    return Argument("tensor_map", map)


LADDER = Family(
    name="ladder",
    params=LadderParams,
    sources=tuple(rung.source for rung in RUNGS),
    precisions=tuple(LAYOUTS),
    order=0,
    rules=(
        Rule("operation", _operation_fault, ("rung",)),
        Rule("capability", _capability_fault, ("rung",)),
        Rule("tiles", _tiles_fault, ("rung",)),
        Rule("workers", _workers_fault, ("rung", "workers")),
        Rule("grid", _grid_fault, ("rung", "workers")),
    ),
    resources=_resources,
    block_work=_work,
    launch_plan=_plan,
    summation=ParameterFunction(sequential),
    summation_order=ParameterFunction(unordered),
    tensor_cores=True,
    for_reading=True,
)

FAMILIES = (LADDER,)
