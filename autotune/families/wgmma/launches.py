"""The launches of a `wgmma` configuration: packing of operands, if it needs any, and the GEMM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
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
from autotune.families.shared.arguments import (
    call_struct,
    each_type,
    epilogue,
    scale,
    sizes_and_factors,
)
from autotune.families.shared.cuda_enums import Store, enumerator
from autotune.families.shared.layout import transposed
from autotune.families.wgmma.operands import LINE_BYTES, copies_end, kernel_operands
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.resources import INSTRUCTION_ROWS, thread_count
from autotune.families.wgmma.schedule import schedule_struct
from autotune.problem import Problem
from autotune.problem.integers import round_up

FLOAT_BYTES = 4


@dataclass(frozen=True)
class _TmaOperand:
    """The kernel's A or B as it reads it.

    Attributes:
        name: the problem's operand, `a` or `b`.
        k_contiguous: whether the rows that the kernel reads run along K.
        box_rows: rows of a TMA box, which is a block's part of what its cluster shares.
        copy: its packed copy; None if it is read in place.
    """

    name: str
    k_contiguous: bool
    box_rows: int
    copy: packing.Copy | None

    @property
    def stride(self) -> Argument:
        """Elements from one matrix of the batch to the next."""
        return Argument("i64", self.copy.stride if self.copy else f"stride_{self.name}")

    def tensor_map(self, problem: Problem, *, low: bool = False) -> Argument:
        """How TMA reads the operand, or the low part of its copy."""
        extent = problem.m if self.name == "a" else problem.n
        columns, rows = (problem.k, extent) if self.k_contiguous else (extent, problem.k)
        copy = self.copy
        start = (copy.low_start if low else copy.start) if copy else 0
        return Argument(
            "tensor_map",
            TensorMap(
                base="workspace" if copy else self.name,
                offset=start,
                type=_element_type(problem),
                columns=columns,
                rows=rows,
                batch=problem.batch,
                pitch=copy.pitch if copy else f"ld{self.name}",
                stride=copy.stride if copy else f"stride_{self.name}",
                box=(LINE_BYTES // problem.element_bytes, self.box_rows),
                swizzle=LINE_BYTES,
            ),
        )


def plan(config: Config, p: WgmmaParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The launches on operands of an alignment."""
    copies = p.copies(problem, alignment)
    start = copies_end(copies)
    gemm = _gemm(p, problem, alignment, copies)
    return LaunchPlan(
        config,
        (*([packing.launch(copies)] if copies else ()), gemm),
        workspace=start + FLOAT_BYTES * p.partial_floats(problem),
        counters=p.counters(problem),
        product=1 if copies else 0,
    )


def _gemm(
    p: WgmmaParams, problem: Problem, alignment: Alignment, copies: Sequence[packing.Copy]
) -> Launch:
    a, b = _operands(p, problem, copies)
    store = _store(p, problem, alignment)
    map_b = b.tensor_map(problem)
    return Launch(
        template=_template(p, problem, alignment, (a, b), store),
        grid=p.launch_grid(problem),
        block=(thread_count(p.consumers), 1, 1),
        shared=p.shared_bytes(p.stages, problem),
        arguments=(
            a.tensor_map(problem),
            map_b,
            b.tensor_map(problem, low=True) if p.low == "pass" else map_b,
            _map_c(p, problem) if store == "tma" else map_b,
            # Tensor maps stand for the pointers and pitches of A and B.
            call_struct(**{f"stride_{operand.name}": operand.stride for operand in (a, b)}),
            schedule_struct(p, p.bk, p.group, problem, copies_end(copies) // FLOAT_BYTES),
            *sizes_and_factors(problem),
        ),
        cluster=p.shape.blocks,
    )


def _operands(
    p: WgmmaParams, problem: Problem, copies: Sequence[packing.Copy]
) -> tuple[_TmaOperand, _TmaOperand]:
    """The kernel's A and B."""
    by_name = {copy.operand: copy for copy in copies}

    span = LINE_BYTES // problem.element_bytes

    def operand(name: str, side: int, sharing: int) -> _TmaOperand:
        contiguous = p.k_contiguous(problem, name)
        spans = (p.bk if contiguous else round_up(side, span)) // span
        box_rows = (side if contiguous else p.bk) // (sharing // gcd(spans, sharing))
        return _TmaOperand(name, contiguous, box_rows, by_name.get(name))

    name_a, name_b = kernel_operands(p.swap)
    # The blocks of a cluster along N read the same A, those along M the same B.
    return operand(name_a, p.tile_m, p.shape.n), operand(name_b, p.tile_n, p.shape.m)


def _store(p: WgmmaParams, problem: Problem, alignment: Alignment) -> Store:
    """How the kernel stores C."""
    if p.store == "direct":
        return "direct"
    whole = _stored_columns(p, problem) * problem.output_bytes % LINE_BYTES == 0
    # TMA stores write past the last column if a row does not end with a whole vector.
    vector = gcd(alignment.c, problem.width) * problem.output_bytes
    return "tma" if whole and vector == VECTOR_BYTES else "staged"


def _stored_columns(p: WgmmaParams, problem: Problem) -> int:
    """Columns of C that a block stores of a row at a time; blocks start at multiples of them."""
    # Of a transposed tile a strip has the rows of an instruction as columns.
    columns = INSTRUCTION_ROWS if p.swap else p.tile_n // p.reducers
    return columns // (2 if problem.gated else 1)


def _map_c(p: WgmmaParams, problem: Problem) -> Argument:
    """How TMA stores C."""
    rows = p.tile_n // p.reducers if p.swap else INSTRUCTION_ROWS
    return Argument(
        "tensor_map",
        TensorMap(
            base="c",
            offset=0,
            type=problem.output_type if problem.output_bytes > 1 else "u8",
            columns=problem.width,
            rows=problem.m,
            batch=problem.batch,
            pitch="ldc",
            stride="stride_c",
            box=(LINE_BYTES // problem.output_bytes, rows),
            swizzle=LINE_BYTES,
        ),
    )


def _element_type(problem: Problem) -> str:
    """The type of the elements of A and B in a tensor map: TMA rounds to tf32 on the way."""
    return problem.precision.tensor_map.name


def _template(
    p: WgmmaParams,
    problem: Problem,
    alignment: Alignment,
    pair: tuple[_TmaOperand, _TmaOperand],
    store: Store,
) -> Template:
    """The instance of the kernel."""
    return Template(
        "wgmma.cu",
        "wgmma",
        (
            *each_type(transposed(problem) if p.swap else problem),
            ("PRODUCTS", problem.products),
            scale(problem),
            ("TILE_M", p.tile_m),
            ("TILE_N", p.tile_n),
            ("TILE_K", p.bk),
            ("STAGES", p.stages),
            ("CONSUMERS", p.consumers),
            ("PINGPONG", p.schedule == "pingpong"),
            ("PERSISTENT", p.workers > 0),
            ("CLUSTER_M", p.shape.m),
            ("CLUSTER_N", p.shape.n),
            ("CLUSTER_K", p.shape.k),
            ("MIN_BLOCKS", p.min_blocks),
            ("A_IN_REGISTERS", p.source == "registers"),
            ("A_STREAMED", p.source == "streamed"),
            ("A_ALONG_K", pair[0].k_contiguous),
            ("B_ALONG_K", pair[1].k_contiguous),
            ("TRANSPOSED", bool(p.swap)),
            ("LOW_PACKED", p.low == "pass"),
            ("PROMOTE", p.promote),
            ("REDUCTION", enumerator("Reduction", p.reduction)),
            ("STORE", enumerator("Store", store)),
            epilogue(problem),
            ("VC", gcd(alignment.c, problem.width, _stored_columns(p, problem))),
        ),
        specific=True,
        named=True,
    )
