"""The launches of an `mma` configuration: the packing, the GEMM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from autotune.families.config import Config
from autotune.families.mma.parameters import MmaParams
from autotune.families.plan import (
    VECTOR_BYTES,
    Alignment,
    Argument,
    Constant,
    Launch,
    LaunchPlan,
    Template,
)
from autotune.families.shared import packing
from autotune.families.shared.arguments import (
    call_struct,
    each_type,
    epilogue,
    scale,
    sizes_and_factors,
    struct,
    transposes,
    words,
)
from autotune.families.shared.layout import along_k
from autotune.problem import Problem
from autotune.problem.call import BY_NAME

PAIR = 2
"""Elements that change places together where columns are interleaved."""


@dataclass(frozen=True)
class _Operand:
    """A or B of the caller as the kernel reads it.

    Attributes:
        name: `a` or `b`.
        width: elements of the vectors that it is copied in.
        copy: its packed copy, if it is packed.
    """

    name: str
    width: int
    copy: packing.Copy | None

    @property
    def arguments(self) -> tuple[Argument, Argument, Argument, Argument]:
        """Pointer, leading dimension, stride of the batch, and elements to its start."""
        if self.copy is None:
            operand = BY_NAME[self.name]
            pointer, pitch, stride = words(operand.name, operand.pitch, operand.stride)
            return pointer, pitch, stride, Argument("i64", 0)
        return (
            Argument("pointer", "workspace"),
            Argument("i64", self.copy.pitch),
            Argument("i64", self.copy.stride),
            Argument("i64", self.copy.start // self.copy.element_bytes),
        )


def plan(config: Config, p: MmaParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The packing, if any, and the GEMM on operands of that alignment."""
    a = _operand("a", p, problem, alignment, 0)
    b = _operand("b", p, problem, alignment, a.copy.bytes if a.copy else 0)
    copies = [operand.copy for operand in (a, b) if operand.copy]
    copied = sum(copy.bytes for copy in copies)
    packs = (packing.launch(copies),) if copies else ()
    return LaunchPlan(
        config,
        (*packs, _gemm(p, problem, alignment, (a, b), copied)),
        workspace=copied + p.partial_bytes(problem),
        counters=p.count(problem) if p.split_k > 1 else 0,
        product=len(packs),
    )


def _operand(
    name: str, p: MmaParams, problem: Problem, alignment: Alignment, start: int
) -> _Operand:
    transposed = packing.must_transpose(problem, name)
    copy = (
        packing.copy(problem, name, transposed=transposed, start=start) if p.packs(name) else None
    )
    own = alignment.a if name == "a" else alignment.b
    width = p.width(problem, name, VECTOR_BYTES // problem.element_bytes if copy else own)
    if name == "b" and p.interleaved(problem, alignment.c) > 1 and not along_k(problem, name):
        width = min(width, PAIR)
    return _Operand(name, width, copy)


def _gemm(
    p: MmaParams,
    problem: Problem,
    alignment: Alignment,
    pair: tuple[_Operand, _Operand],
    start: int,
) -> Launch:
    form = p.oriented(problem)
    first, second = reversed(pair) if p.swap else pair
    (a, lda, stride_a, start_a), (b, ldb, stride_b, start_b) = first.arguments, second.arguments
    schedule = struct(
        "MmaSchedule",
        start_a=start_a,
        start_b=start_b,
        start_partials=Argument("i64", start // 4),
        group=Argument("i32", p.group),
    )
    return Launch(
        template=_template(p, problem, alignment.c, (first.width, second.width)),
        grid=p.grid(problem),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes,
        arguments=(
            call_struct(a=a, lda=lda, stride_a=stride_a, b=b, ldb=ldb, stride_b=stride_b),
            schedule,
            *sizes_and_factors(form),
        ),
    )


def _layout(form: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the layout that the kernel reads: 8-bit operands run along K."""
    return transposes(replace(form, layout="nt") if form.precision.eight_bit else form)


def _template(p: MmaParams, problem: Problem, alignment: int, widths: tuple[int, int]) -> Template:
    form = p.oriented(problem)
    warp_columns = p.wn // (2 if problem.gated else 1)
    return Template(
        "mma.cu",
        "mma_column" if p.copy == "ahead" else "mma",
        (
            *each_type(form),
            scale(form),
            ("PRODUCTS", p.precision.products),
            ("BM", p.bm),
            ("BN", p.bn),
            ("BK", p.bk),
            ("WM", p.wm),
            ("WN", p.wn),
            ("SLICES", p.slices),
            ("STAGES", p.stages),
            ("PROMOTE", p.promote),
            ("ASYNC", p.is_async),
            ("MIN_BLOCKS", p.min_blocks),
            ("FUSED", p.split_k > 1),
            ("STAGED", p.store == "staged"),
            ("TRANSPOSED", bool(p.swap)),
            *_layout(form),
            epilogue(problem),
            ("VA", widths[0]),
            ("VB", widths[1]),
            ("VC", 1 if p.swap else gcd(alignment, problem.width, warp_columns)),
            ("INTERLEAVED", p.interleaved(form, alignment)),
        ),
        named=True,
    )
