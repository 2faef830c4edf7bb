"""The launches of a `simt` configuration: packing, the product, the sum over its shares."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
from autotune.families.legacy import Params
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared import packing
from autotune.families.shared.arguments import epilogue, operands
from autotune.families.shared.layout import along_k
from autotune.families.simt.terms import (
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
from autotune.problem import Problem

SUM_THREADS = 256
FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Operand:
    """A or B as the product reads it.

    Attributes:
        name: `a` or `b`.
        along_k: whether its rows run along K.
        width: the widest vectors that it comes in, in floats.
        copied: where it is in the workspace; None if it is read where the caller has it.
    """

    name: str
    along_k: bool
    width: int
    copied: packing.Copy | None = None

    @property
    def start(self) -> int:
        """Where it starts in the workspace, in floats, if it is packed."""
        return self.copied.start // FLOAT_BYTES if self.copied else 0

    @property
    def arguments(self) -> dict[str, Argument]:
        """What the product takes instead of the operand itself, if it is packed."""
        if self.copied is None:
            return {}
        return {
            self.name: Argument("pointer", "workspace"),
            f"ld{self.name}": Argument("i64", self.copied.pitch),
            f"stride_{self.name}": Argument("i64", self.copied.stride),
        }


def plan(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """What packs, the product, and what adds up its shares, on operands of that alignment."""
    p: Params = config.values
    a = _operand("a", p, problem, alignment.a, 0)
    b = _operand("b", p, problem, alignment.b, a.copied.bytes if a.copied else 0)
    copies = [one.copied for one in (a, b) if one.copied is not None]
    packs = (packing.launch(copies),) if copies else ()
    copied = sum(one.bytes for one in copies) // FLOAT_BYTES
    product = _product(p, problem, alignment, (a, b), copied)
    sums = (_sum(p, problem, alignment, copied),) if p["reduction"] == "separate" else ()
    counted = p["reduction"] in ("fused", "stream")
    return LaunchPlan(
        config,
        (*packs, product, *sums),
        workspace=FLOAT_BYTES * (copied + partial_floats(p, problem)),
        counters=problem.batch * tiles(p, problem) if counted else 0,
        product=len(packs),
    )


def _operand(name: str, p: Params, problem: Problem, alignment: int, start: int) -> _Operand:
    extent, runs = problem.m if name == "a" else problem.n, along_k(problem, name)
    if packed(p, name):
        # The product wants rows along M or N.
        copied = packing.copy(problem, name, transposed=runs, start=start)
        return _Operand(name, False, 4, copied)
    # cp.async cannot transpose vectors: an operand that runs along K comes float by float.
    single = runs and p["copy"] == "async"
    width = 1 if single else gcd(alignment, problem.k if runs else extent)
    return _Operand(name, runs, width)


def _product(
    p: Params, problem: Problem, alignment: Alignment, pair: tuple[_Operand, _Operand], start: int
) -> Launch:
    a, b = pair
    instead = a.arguments | b.arguments
    return Launch(
        template=_template(p, problem, alignment, pair),
        grid=grid(p, problem),
        block=(thread_count(p), 1, 1),
        shared=shared_bytes(p, a.along_k + b.along_k),
        arguments=(
            *(instead.get(str(one.value), one) for one in operands(problem)),
            Argument("i64", a.start),
            Argument("i64", b.start),
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
        shared=FLOAT_BYTES * SUM_THREADS * vector,
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
