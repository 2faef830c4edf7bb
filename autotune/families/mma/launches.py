"""The launches of an `mma` configuration: a copy of operands, the product."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
from autotune.families.legacy import Params
from autotune.families.mma.terms import (
    form_of,
    packed,
    partial_bytes,
    shared_bytes,
    split,
    thread_count,
    tiles,
    vector,
)
from autotune.families.plan import VECTOR_BYTES, Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared import packing
from autotune.families.shared.arguments import epilogue, operands, transposes, type_arguments
from autotune.problem import Problem


@dataclass(frozen=True)
class _Operand:
    """A or B of the problem as the product reads it.

    Attributes:
        name: `a` or `b`.
        width: elements of the vectors in which it comes.
        copy: what is read instead, if it is packed.
    """

    name: str
    width: int
    copy: packing.Copy | None

    @property
    def arguments(self) -> tuple[Argument, Argument, Argument, Argument]:
        """Pointer, leading dimension, stride of the batch, and elements to where it starts."""
        if self.copy is None:
            return (
                Argument("pointer", self.name),
                Argument("i64", f"ld{self.name}"),
                Argument("i64", f"stride_{self.name}"),
                Argument("i64", 0),
            )
        return (
            Argument("pointer", "workspace"),
            Argument("i64", self.copy.pitch),
            Argument("i64", self.copy.stride),
            Argument("i64", self.copy.start // self.copy.element_bytes),
        )


def plan(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """What packs, and the product, on operands of that alignment."""
    p: Params = config.values
    a = _operand("a", p, problem, alignment.a, 0)
    b = _operand("b", p, problem, alignment.b, a.copy.bytes if a.copy else 0)
    copies = [one.copy for one in (a, b) if one.copy]
    copied = sum(one.bytes for one in copies)
    packs = (packing.launch(copies),) if copies else ()
    return LaunchPlan(
        config,
        (*packs, _product(p, problem, alignment, (a, b), copied)),
        workspace=copied + partial_bytes(p, problem),
        counters=problem.batch * tiles(p, problem) if p["split_k"] > 1 else 0,
        product=len(packs),
    )


def _operand(name: str, p: Params, problem: Problem, alignment: int, start: int) -> _Operand:
    copied = packing.copy(problem, name, start=start) if packed(p, name) else None
    widest = VECTOR_BYTES // problem.element_bytes if copied else alignment
    return _Operand(name, vector(problem, name, widest, p["copy"] == "async"), copied)


def _product(
    p: Params, problem: Problem, alignment: Alignment, pair: tuple[_Operand, _Operand], start: int
) -> Launch:
    form = form_of(p, problem)
    first, second = reversed(pair) if p["swap"] else pair
    (a, lda, stride_a, start_a), (b, ldb, stride_b, start_b) = first.arguments, second.arguments
    instead = {
        "a": a,
        "lda": lda,
        "stride_a": stride_a,
        "b": b,
        "ldb": ldb,
        "stride_b": stride_b,
    }
    return Launch(
        template=_template(p, form, alignment.c, (first.width, second.width)),
        grid=(tiles(p, problem), p["split_k"], problem.batch),
        block=(thread_count(p), 1, 1),
        shared=shared_bytes(p),
        arguments=(
            *(instead.get(str(one.value), one) for one in operands(form)),
            start_a,
            start_b,
            Argument("i32", p["group"]),
            Argument("pointer", "workspace"),
            Argument("i64", start // 4),
            Argument("pointer", "counters"),
        ),
    )


def _template(p: Params, form: Problem, alignment: int, widths: tuple[int, int]) -> Template:
    names = ("bm", "bn", "bk", "wm", "wn", "slices", "stages", "promote")
    return Template(
        "mma.cu",
        "mma",
        (
            *type_arguments(form),
            ("PRODUCTS", 3 if split(p) else 1),
            *((name.upper(), p[name]) for name in names),
            ("ASYNC", int(p["copy"] == "async")),
            ("MIN_BLOCKS", p["min_blocks"]),
            ("FUSED", int(p["split_k"] > 1)),
            ("STAGED", int(p["store"] == "staged")),
            ("EXCHANGED", p["swap"]),
            *transposes(form),
            epilogue(form),
            ("VA", widths[0]),
            ("VB", widths[1]),
            ("VC", 1 if p["swap"] else gcd(alignment, form.n)),
        ),
    )
