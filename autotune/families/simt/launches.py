"""The launches of a `simt` configuration: packing, the GEMM, and the reduction of its splits."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared import packing
from autotune.families.shared.arguments import (
    call_struct,
    epilogue,
    sizes_and_factors,
    struct,
    words,
)
from autotune.families.shared.cuda_enums import enumerator
from autotune.families.shared.layout import along_k
from autotune.families.simt.parameters import FLOAT_BYTES, SimtParams, reduction_rows
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SUM_THREADS = 256
VECTOR = 4


@dataclass(frozen=True)
class _FloatOperand:
    """A or B as the GEMM reads it.

    Attributes:
        name: `a` or `b`.
        along_k: whether it is K-contiguous.
        width: floats of its vectors.
        copy: its packed copy; None if it is read in place.
    """

    name: str
    along_k: bool
    width: int
    copy: packing.Copy | None = None

    @property
    def start(self) -> int:
        """Where its packed copy starts in the workspace, in floats."""
        return self.copy.start // FLOAT_BYTES if self.copy else 0

    @property
    def arguments(self) -> dict[str, Argument]:
        """The members of `Call` that its packed copy replaces."""
        if self.copy is None:
            return {}
        return {
            self.name: Argument("pointer", "workspace"),
            f"ld{self.name}": Argument("i64", self.copy.pitch),
            f"stride_{self.name}": Argument("i64", self.copy.stride),
        }


def plan(config: Config, p: SimtParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The launches on operands of an alignment."""
    a = _operand("a", p, problem, alignment.a, 0)
    b = _operand("b", p, problem, alignment.b, a.copy.bytes if a.copy else 0)
    copies = [operand.copy for operand in (a, b) if operand.copy is not None]
    packed = sum(copy.bytes for copy in copies) // FLOAT_BYTES
    launches = [_gemm(p, problem, alignment, (a, b), packed)]
    if copies:
        launches.insert(0, packing.launch(copies))
    if p.reduction == "separate":
        launches.append(_reduction(p, problem, alignment, packed))
    return LaunchPlan(
        config,
        tuple(launches),
        workspace=FLOAT_BYTES * (packed + p.partial_floats(problem)),
        counters=p.count(problem) if p.reduction in ("fused", "stream") else 0,
        product=1 if copies else 0,
    )


def _operand(
    name: str, p: SimtParams, problem: Problem, alignment: int, start: int
) -> _FloatOperand:
    extent, transposed = problem.m if name == "a" else problem.n, along_k(problem, name)
    if p.packs(name):
        # The copy's rows run along M or N, so that vectors need no transposition.
        copy = packing.copy(problem, name, transposed=transposed, start=start)
        return _FloatOperand(name, False, VECTOR, copy)
    # cp.async cannot transpose vectors: it copies a K-contiguous operand float by float.
    single = transposed and p.copy == "async"
    width = 1 if single else gcd(alignment, problem.k if transposed else extent)
    return _FloatOperand(name, transposed, width)


def _gemm(
    p: SimtParams,
    problem: Problem,
    alignment: Alignment,
    pair: tuple[_FloatOperand, _FloatOperand],
    start: int,
) -> Launch:
    """The GEMM, whose partial sums start `start` floats into the workspace."""
    a, b = pair
    schedule = struct(
        "SimtSchedule",
        start_a=Argument("i64", a.start),
        start_b=Argument("i64", b.start),
        start_partials=Argument("i64", start),
        group=Argument("i32", p.group),
        streamed=Argument("i32", p.streamed(problem)),
        workers=Argument("i32", p.workers),
    )
    return Launch(
        template=_template(p, problem, alignment, pair),
        grid=p.grid(problem),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes(a.along_k + b.along_k),
        arguments=(
            call_struct(**a.arguments, **b.arguments),
            schedule,
            *sizes_and_factors(problem),
        ),
    )


def _template(
    p: SimtParams, problem: Problem, alignment: Alignment, pair: tuple[_FloatOperand, _FloatOperand]
) -> Template:
    a, b = pair
    whole = problem.m % p.bm == problem.n % p.bn == problem.k % p.bk == 0
    return Template(
        "simt.cu",
        "simt",
        (
            ("BM", p.bm),
            ("BN", p.bn),
            ("BK", p.bk),
            ("WM", p.wm),
            ("WN", p.wn),
            ("TM", p.tm),
            ("TN", p.tn),
            ("SLICES", p.slices),
            ("CHUNKS", p.chunks),
            ("STAGES", p.stages),
            ("ASYNC", p.copy == "async"),
            ("FRAGMENTS", p.fragments),
            ("FENCE", bool(p.fence)),
            ("ORDER", enumerator("Order", p.order)),
            ("MIN_BLOCKS", p.min_blocks),
            ("REDUCTION", enumerator("Reduction", p.reduction)),
            ("TRANS_A", not a.along_k),
            ("TRANS_B", b.along_k),
            epilogue(problem),
            ("VA", a.width),
            ("VB", b.width),
            ("VC", gcd(alignment.c, problem.n)),
            ("CHECK", not whole),
        ),
        named=True,
    )


def _reduction(p: SimtParams, problem: Problem, alignment: Alignment, start: int) -> Launch:
    """The launch that adds up the splits, which start `start` floats into the workspace."""
    vector = gcd(alignment.c, problem.n)
    rows = reduction_rows(p.split_k)
    columns = SUM_THREADS // rows
    return Launch(
        template=Template(
            "split_k.cu", "split_k", (("VECTOR", vector), epilogue(problem)), named=True
        ),
        grid=(ceil_div(problem.m * problem.n // vector, columns), 1, problem.batch),
        block=(columns, rows, 1),
        shared=FLOAT_BYTES * SUM_THREADS * vector,
        arguments=(
            *words("workspace"),
            Argument("i64", start),
            Argument("i32", p.split_k),
            *words("c", "ldc", "stride_c"),
            Argument("i32", problem.m),
            Argument("i32", problem.n),
            Argument("i32", packing.pitch(problem.n, FLOAT_BYTES)),
            *words("alpha", "beta", "bias"),
        ),
    )
