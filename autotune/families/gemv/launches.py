"""The launch of a `gemv` configuration."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from autotune.families.config import Config
from autotune.families.gemv.parameters import GemvParams, is_transposed, oriented
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import (
    call_struct,
    sizes_and_factors,
    struct,
    variants,
    words,
)
from autotune.families.shared.layout import along_k
from autotune.problem import Problem


def plan(config: Config, p: GemvParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch; the last block of each strip of C adds up the sums of the others."""
    form, swap = oriented(problem), is_transposed(problem)
    aligned = replace(alignment, a=alignment.b, b=alignment.a) if swap else alignment
    launch = Launch(
        template=_template(p, form, aligned, swap),
        grid=(p.strips(form), p.split_k, problem.batch),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes(along_k(form, "b")),
        arguments=(
            call_struct(**(_exchanged() if swap else {})),
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
            ("ROWS", p.rows),
            ("COLUMNS", p.columns),
            ("DEPTH", p.depth),
            ("ACROSS", p.across),
            ("WAYS", p.ways),
            ("STAGES", p.stages),
            *variants(form),
            ("VA", va),
            ("VB", vb),
            ("TRANSPOSED", swap),
        ),
        named=True,
    )


def _exchanged() -> dict[str, Argument]:
    """The members of `Call` for C^T: the kernel's A is the caller's B."""
    names = ("a", "lda", "stride_a"), ("b", "ldb", "stride_b")
    pairs = zip((*names[0], *names[1]), words(*names[1], *names[0]), strict=True)
    return dict(pairs)
