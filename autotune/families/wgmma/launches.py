"""The launches of a `wgmma` configuration: a copy of operands, where it needs one, the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
from autotune.families.legacy import Params
from autotune.families.plan import (
    VECTOR_BYTES,
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Template,
    TensorMap,
)
from autotune.families.shared import packing
from autotune.families.shared.arguments import epilogue, operands, type_arguments
from autotune.families.wgmma.terms import (
    INSTRUCTION_ROWS,
    REDUCTIONS,
    SCHEDULES,
    SPAN,
    block_count,
    cluster,
    counters,
    inner_shares,
    operand_names,
    outer_shares,
    packed,
    partial_floats,
    rounded,
    runs_along_k,
    shared_bytes,
    sides,
    streamed,
    summers,
    thread_count,
    transposed,
)
from autotune.problem import Problem

PART_BYTES = 256
"""What each part of the workspace starts at a multiple of."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Operand:
    """P or Q as the product reads it.

    Attributes:
        name: `a` or `b`.
        along_k: whether its rows run along K as they are read.
        side: rows of x or y that a block's tile has.
        sharing: blocks of a cluster that each bring a part of it for all.
        copied: where in the workspace it is; None if it is read where the caller has it.
    """

    name: str
    along_k: bool
    side: int
    sharing: int
    copied: packing.Copy | None

    @property
    def stride(self) -> Argument:
        """Elements from one matrix of the batch to the next."""
        return Argument("i64", self.copied.stride if self.copied else f"stride_{self.name}")

    def tensor_map(self, p: Params, problem: Problem, *, low: bool = False) -> Argument:
        """How bulk copies read it, or the low part of its copy."""
        extent = problem.m if self.name == "a" else problem.n
        columns, rows = (problem.k, extent) if self.along_k else (extent, problem.k)
        box_rows = (self.side if self.along_k else int(p["bk"])) // self.sharing
        copied = self.copied
        start = (copied.low_start if low else copied.start) if copied else 0
        return Argument(
            "tensor_map",
            TensorMap(
                base="workspace" if copied else self.name,
                offset=start,
                type=_type(problem),
                columns=columns,
                rows=rows,
                batch=problem.batch,
                pitch=copied.pitch if copied else f"ld{self.name}",
                stride=copied.stride if copied else f"stride_{self.name}",
                box=(SPAN // problem.element_bytes, box_rows),
                swizzle=SPAN,
            ),
        )


def plan(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """What packs and the product, on operands of that alignment."""
    p: Params = config.values
    copies = _copies(p, problem, alignment)
    ends = [rounded(one.start + one.bytes, PART_BYTES) for one in copies]
    start = max(ends, default=0)
    product = _product(p, problem, alignment, copies, start // FLOAT_BYTES)
    return LaunchPlan(
        config,
        (*([packing.launch(copies)] if copies else ()), product),
        workspace=start + FLOAT_BYTES * partial_floats(p, problem),
        counters=counters(p, problem),
        product=1 if copies else 0,
    )


def _copies(p: Params, problem: Problem, alignment: Alignment) -> list[packing.Copy]:
    """The operands that bulk copies cannot read as they are, one behind the other."""
    copies: list[packing.Copy] = []
    start = 0
    _, q = operand_names(p)
    for name in ("a", "b"):
        if packed(p, problem, alignment, name):
            one = packing.copy(
                problem,
                name,
                transposed=transposed(p, problem, name),
                low=name == q and p["low"] == "pass",
                start=start,
                line=SPAN,
            )
            copies.append(one)
            start = rounded(start + one.bytes, PART_BYTES)
    return copies


def _product(
    p: Params, problem: Problem, alignment: Alignment, copies: Sequence[packing.Copy], start: int
) -> Launch:
    one_p, one_q = _operands(p, problem, copies)
    store = _store(p, problem, alignment)
    map_q = one_q.tensor_map(p, problem)
    by_pass = p["low"] == "pass"
    return Launch(
        template=_template(p, problem, alignment, (one_p, one_q), store),
        grid=(block_count(p, problem), 1, 1),
        block=(thread_count(p), 1, 1),
        shared=shared_bytes(p, problem),
        arguments=(
            one_p.tensor_map(p, problem),
            map_q,
            one_q.tensor_map(p, problem, low=True) if by_pass else map_q,
            _map_c(p, problem) if store == 2 else map_q,
            # C and what is done to it; the strides of P and Q take the place of those of A and B.
            *operands(problem)[4:-3],
            one_p.stride,
            one_q.stride,
            Argument("i64", "stride_c"),
            Argument("i32", outer_shares(p)),
            Argument("i32", streamed(p, problem)),
            Argument("i32", p["group"]),
            Argument("i32", problem.batch),
            Argument("pointer", "workspace"),
            Argument("i64", start),
            Argument("pointer", "counters"),
        ),
    )


def _operands(
    p: Params, problem: Problem, copies: Sequence[packing.Copy]
) -> tuple[_Operand, _Operand]:
    at = {one.operand: one for one in copies}
    along_x, along_y = cluster(p)
    # All blocks along y of a cluster read the same P, those along x the same Q.
    one_p, one_q = (
        _Operand(name, runs_along_k(p, problem, name), side, sharing, at.get(name))
        for name, side, sharing in zip(operand_names(p), sides(p), (along_y, along_x), strict=True)
    )
    return one_p, one_q


def _store(p: Params, problem: Problem, alignment: Alignment) -> int:
    """How the kernel stores: 0 from registers, 1 through shared memory, 2 from there by TMA."""
    if p["store"] == "direct":
        return 0
    _, along_y = sides(p)
    part = along_y // summers(p)
    whole = p["swap"] or part * problem.output_bytes % SPAN == 0
    # Bulk stores write past the last column where a row does not end with a whole vector.
    vector = gcd(alignment.c, problem.n) * problem.output_bytes
    return 2 if whole and vector == VECTOR_BYTES else 1


def _map_c(p: Params, problem: Problem) -> Argument:
    _, along_y = sides(p)
    rows = along_y // summers(p) if p["swap"] else INSTRUCTION_ROWS
    output = problem.output_type
    return Argument(
        "tensor_map",
        TensorMap(
            base="c",
            offset=0,
            type=output,
            columns=problem.n,
            rows=problem.m,
            batch=problem.batch,
            pitch="ldc",
            stride="stride_c",
            box=(SPAN // problem.output_bytes, rows),
            swizzle=SPAN,
        ),
    )


def _type(problem: Problem) -> str:
    """What bulk copies take the elements of A and B for."""
    return "tf32" if problem.compute == "tf32" else problem.operand_type


def _template(
    p: Params,
    problem: Problem,
    alignment: Alignment,
    pair: tuple[_Operand, _Operand],
    store: int,
) -> Template:
    (one_p, one_q), (along_x, along_y) = pair, sides(p)
    cluster_x, cluster_y = cluster(p)
    return Template(
        "wgmma.cu",
        "wgmma",
        (
            *type_arguments(problem),
            ("PRODUCTS", problem.products),
            ("BX", along_x),
            ("BY", along_y),
            ("BK", p["bk"]),
            ("STAGES", p["stages"]),
            ("CONSUMERS", p["consumers"]),
            ("PINGPONG", SCHEDULES.index(p["schedule"])),
            ("CLUSTER_X", cluster_x),
            ("CLUSTER_Y", cluster_y),
            ("CLUSTER_K", inner_shares(p)),
            ("MIN_BLOCKS", p["min_blocks"]),
            ("REGISTERS", int(p["source"] == "registers")),
            ("ALONG_K_P", int(one_p.along_k)),
            ("ALONG_K_Q", int(one_q.along_k)),
            ("SWAPPED", p["swap"]),
            ("PASS", int(p["low"] == "pass")),
            ("PROMOTE", p["promote"]),
            ("REDUCTION", REDUCTIONS.index(p["reduction"])),
            ("STORE", store),
            epilogue(problem),
            ("VC", gcd(alignment.c, problem.n)),
        ),
        specific=True,
    )
