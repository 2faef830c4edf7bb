"""The launches of a `simt` configuration: packing, the product, the sum over its shares."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from autotune.config import Config
from autotune.families.base import Params
from autotune.families.conventions import LARGEST_GRID_YZ, along_k, epilogue, operands
from autotune.families.simt_terms import (
    ORDERS,
    REDUCTIONS,
    grid,
    packed,
    partial_floats,
    pitch,
    shared_bytes,
    streamed,
    thread_count,
    tiles,
)
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import Problem

SUM_THREADS = 256
PACK_TILE, PACK_ROWS = 32, 8  # as in pack.cu


@dataclass(frozen=True)
class _Operand:
    """A or B as the product reads it.

    Attributes:
        name: `a` or `b`.
        extent: M or N.
        along_k: whether its rows run along K.
        width: the widest vectors that it comes in, in floats.
        start: where it starts in the workspace, in floats; None if it is read where it is.
    """

    name: str
    extent: int
    along_k: bool
    width: int
    start: int | None = None

    @property
    def floats(self) -> int:
        """Floats of workspace for each step of K."""
        return 0 if self.start is None else pitch(self.extent)

    def arguments(self, problem: Problem) -> dict[str, Argument]:
        """What the product takes instead of the operand itself, if it is packed."""
        if self.start is None:
            return {}
        return {
            self.name: Argument("pointer", "workspace"),
            f"ld{self.name}": Argument("i64", self.floats),
            f"stride_{self.name}": Argument("i64", self.floats * problem.k),
        }


def plan(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """What packs, the product, and what adds up its shares, on operands of that alignment."""
    p: Params = config.values
    each = problem.batch * problem.k
    a = _operand("a", p, problem, alignment.a, 0)
    b = _operand("b", p, problem, alignment.b, each * a.floats)
    copied = each * (a.floats + b.floats)
    packs = tuple(_pack(one, problem) for one in (a, b) if one.start is not None)
    product = _product(p, problem, alignment, (a, b), copied)
    sums = (_sum(p, problem, alignment, copied),) if p["reduction"] == "separate" else ()
    counted = p["reduction"] in ("fused", "stream")
    return LaunchPlan(
        problem,
        config,
        alignment,
        (*packs, product, *sums),
        workspace=problem.element_bytes * (copied + partial_floats(p, problem)),
        counters=problem.batch * tiles(p, problem) if counted else 0,
        product=len(packs),
    )


def _operand(name: str, p: Params, problem: Problem, alignment: int, start: int) -> _Operand:
    extent, runs = problem.m if name == "a" else problem.n, along_k(problem, name)
    if packed(p, name):
        return _Operand(name, extent, False, 4, start)
    # cp.async cannot transpose vectors: an operand that runs along K comes float by float.
    single = runs and p["copy"] == "async"
    width = 1 if single else gcd(alignment, problem.k if runs else extent)
    return _Operand(name, extent, runs, width)


def _pack(operand: _Operand, problem: Problem) -> Launch:
    rows = -(-operand.extent // PACK_TILE)
    runs = along_k(problem, operand.name)
    return Launch(
        template=Template("pack.cu", "pack", (("ALONG_K", int(runs)),)),
        grid=(-(-problem.k // PACK_TILE), min(rows, LARGEST_GRID_YZ), problem.batch),
        block=(PACK_TILE, PACK_ROWS, 1),
        shared=problem.element_bytes * PACK_TILE * (PACK_TILE + 1),
        arguments=(
            Argument("pointer", operand.name),
            Argument("i64", f"ld{operand.name}"),
            Argument("i64", f"stride_{operand.name}"),
            Argument("pointer", "workspace"),
            Argument("i64", operand.start or 0),
            Argument("i32", operand.floats),
            Argument("i32", operand.extent),
            Argument("i32", problem.k),
        ),
    )


def _product(
    p: Params, problem: Problem, alignment: Alignment, pair: tuple[_Operand, _Operand], start: int
) -> Launch:
    a, b = pair
    instead = a.arguments(problem) | b.arguments(problem)
    return Launch(
        template=_template(p, problem, alignment, pair),
        grid=grid(p, problem),
        block=(thread_count(p), 1, 1),
        shared=shared_bytes(p, a.along_k + b.along_k),
        arguments=(
            *(instead.get(str(one.value), one) for one in operands(problem)),
            Argument("i64", a.start or 0),
            Argument("i64", b.start or 0),
            Argument("i32", p["group"]),
            Argument("i32", streamed(p, problem)),
            Argument("i32", p["workers"]),
            Argument("pointer", "workspace"),
            Argument("i64", start),
            Argument("pointer", "counters"),
        ),
    )


def _template(
    p: Params, problem: Problem, alignment: Alignment, pair: tuple[_Operand, _Operand]
) -> Template:
    a, b = pair
    whole = all(
        size % p[tile] == 0
        for size, tile in ((problem.m, "bm"), (problem.n, "bn"), (problem.k, "bk"))
    )
    names = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "slices", "chunks", "stages")
    return Template(
        "simt.cu",
        "simt",
        (
            *((name.upper(), p[name]) for name in names),
            ("ASYNC", int(p["copy"] == "async")),
            ("FRAGMENTS", p["fragments"]),
            ("FENCE", p["fence"]),
            ("ORDER", ORDERS.index(p["order"])),
            ("MIN_BLOCKS", p["min_blocks"]),
            ("REDUCTION", REDUCTIONS.index(p["reduction"])),
            ("TRANS_A", int(not a.along_k)),
            ("TRANS_B", int(b.along_k)),
            epilogue(problem),
            ("VA", a.width),
            ("VB", b.width),
            ("VC", gcd(alignment.c, problem.n)),
            ("CHECK", int(not whole)),
        ),
    )


def _sum(p: Params, problem: Problem, alignment: Alignment, start: int) -> Launch:
    vector = gcd(alignment.c, problem.n)
    splits: int = p["split_k"]
    rows = min(8, 1 << (splits.bit_length() - 1))
    columns = SUM_THREADS // rows
    vectors = problem.m * problem.n // vector
    return Launch(
        template=Template("split_k.cu", "split_k", (("VECTOR", vector), epilogue(problem))),
        grid=(-(-vectors // columns), 1, problem.batch),
        block=(columns, rows, 1),
        shared=problem.element_bytes * SUM_THREADS * vector,
        arguments=(
            Argument("pointer", "workspace"),
            Argument("i64", start),
            Argument("i32", splits),
            Argument("pointer", "c"),
            Argument("i64", "ldc"),
            Argument("i64", "stride_c"),
            Argument("i32", problem.m),
            Argument("i32", problem.n),
            Argument("i32", pitch(problem.n)),
            Argument("f32", "alpha"),
            Argument("f32", "beta"),
            Argument("pointer", "bias"),
        ),
    )
