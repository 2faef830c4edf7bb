"""Problem cases in every precision: odd shapes, layouts, gaps, batches, epilogues, scales."""

from __future__ import annotations

from dataclasses import dataclass

from support.served_precisions import SERVED

from autotune.problem import (
    ELEMENTWISE,
    EPILOGUES,
    GATE_SPAN,
    LAYOUTS,
    PRECISIONS,
    SWIGLU,
    Problem,
)
from autotune.problem.integers import round_up


@dataclass(frozen=True)
class Case:
    """A problem and the layout of its operands.

    Attributes:
        problem: the problem.
        gaps: elements after the rows of A, B and C.
        between: elements between the matrices of a batch.
        shared: letters of the operands that a batch shares.
    """

    problem: Problem
    gaps: tuple[int, int, int] = (0, 0, 0)
    between: tuple[int, int, int] = (0, 0, 0)
    shared: str = ""

    def __str__(self) -> str:
        laid = "".join(map(str, (*self.gaps, *self.between))) + self.shared
        return f"{self.problem.slug}-{laid}"

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        lda, ldb, ldc = self.problem.leading_dimensions
        return lda + self.gaps[0], ldb + self.gaps[1], ldc + self.gaps[2]

    @property
    def strides(self) -> tuple[int, int, int]:
        stored = zip(
            *("abc", self.problem.stored_rows, self.leading_dimensions, self.between),
            strict=True,
        )
        a, b, c = (0 if name in self.shared else rows * ld + gap for name, rows, ld, gap in stored)
        return a, b, c


_PRIMES = [(2, 3, 5), (7, 11, 13), (17, 19, 23), (31, 37, 41), (53, 61, 67), (71, 73, 79)]
_PRIMES += [(97, 101, 103), (127, 131, 137), (251, 257, 263), (509, 521, 523), (1021, 1031, 1033)]
_ONES = [(1, 1, 1), (1, 1, 97), (1, 97, 1), (97, 1, 1), (1, 89, 97), (89, 1, 97), (89, 97, 1)]
_ONES += [(1, 4096, 33), (4096, 1, 33), (1, 1, 65537)]
_TALL = [(4097, 3, 5), (8191, 16, 17), (10007, 31, 8), (2049, 64, 63), (3001, 129, 4)]
_WIDE = [(3, 4097, 5), (16, 8191, 17), (31, 10007, 8), (64, 2049, 63), (129, 3001, 4)]
_DEEP = [(3, 5, 4097), (16, 17, 8191), (31, 8, 10007), (64, 64, 16384), (63, 65, 30011)]
_EDGES = [(31, 31, 31), (32, 32, 32), (33, 33, 33), (63, 64, 65), (64, 64, 64), (65, 64, 63)]
_EDGES += [(127, 128, 129), (128, 128, 128), (129, 127, 128), (255, 256, 257), (256, 256, 256)]
_EDGES += [(257, 255, 256), (384, 192, 96), (512, 512, 512), (1023, 1025, 1027), (1024, 1024, 1024)]
_ROUND = [(100, 100, 100), (200, 300, 400), (1000, 1000, 1000), (250, 750, 50), (640, 480, 320)]
_ROUND += [(96, 1536, 384), (768, 768, 12), (333, 444, 555), (128, 4096, 144)]
SHAPES = (*_PRIMES, *_ONES, *_TALL, *_WIDE, *_DEEP, *_EDGES, *_ROUND)
_GAPS = ((0, 0, 0), (1, 2, 3), (4, 4, 4), (0, 0, 0), (8, 0, 1))

_FIRST_LAYOUT = {"f32": 0, "tf32": 0, "tf32x3": 0, "f16": 1, "bf16": 2, "f8": 0, "f8e5": 1, "i8": 2}
"""Index of the first layout by precision. Precisions of one operand type share their kernels."""


def _problem(
    shape: tuple[int, int, int],
    compute: str,
    i: int,
    *,
    layout: str,
    wide: bool,
    batch: int = 1,
    epilogue: str = "none",
) -> Problem:
    """Problem `i` of a list; those of 8 bits go through their scales, outputs and types. SwiGLU has
    whole pairs of columns."""
    m, n, k = shape
    shape = m, round_up(n, 2 * GATE_SPAN) if epilogue == SWIGLU else n, k
    row = PRECISIONS[compute]
    if not row.eight_bit:
        output = "f32" if wide else "same"
        return Problem(*shape, compute, layout, batch, epilogue, output)
    scale = row.scales[(i + i // len(LAYOUTS)) % len(row.scales)]
    plain = scale == epilogue == "none"
    outputs = [
        element.name
        for element in row.outputs
        if (plain or not element.integer) and not ("residual" in epilogue and element.bytes == 1)
    ]
    return Problem(
        *(*shape, compute, layout, batch, epilogue),
        output=outputs[i % len(outputs)],
        scale=scale,
        accumulate="fast" if row.fast_sum_error and i % 3 == 2 else "exact",
        e5m2=("a", "b", "ab")[i % 3] if row.second else "a",
    )


def _layout(compute: str, i: int) -> str:
    return LAYOUTS[(_FIRST_LAYOUT[compute] + i) % len(LAYOUTS)]


def _epilogues(compute: str) -> tuple[str, ...]:
    return EPILOGUES if PRECISIONS[compute].operand.bytes <= 2 else ELEMENTWISE


CASES = tuple(
    Case(
        _problem(shape, compute, i, layout=_layout(compute, i), wide=i % 3 == 1),
        _GAPS[i % len(_GAPS)],
    )
    for compute in SERVED
    for i, shape in enumerate(SHAPES)
)

_BATCHES = [(1, 1, 1, 2), (33, 65, 17, 3), (64, 64, 64, 7), (128, 96, 256, 5), (1, 129, 100, 64)]
_BATCHES += [(5, 3, 2, 65535), (257, 255, 8, 2), (16, 16, 4099, 4), (200, 100, 50, 11)]
_BATCHES += [(127, 129, 131, 3), (96, 1536, 384, 2), (333, 444, 55, 2)]
_APART = [((0, 0, 0), (0, 0, 0), ""), ((4, 4, 4), (8, 4, 12), ""), ((1, 2, 3), (5, 0, 7), "")]
_APART += [((0, 0, 0), (0, 0, 0), "b"), ((0, 1, 0), (0, 0, 1), "a")]

BATCHED = tuple(
    Case(
        _problem(
            *((m, n, k), compute, i),
            layout=_layout(compute, i),
            wide=i % 4 == 1,
            batch=batch,
            epilogue=_epilogues(compute)[i % len(_epilogues(compute))],
        ),
        *_APART[i % len(_APART)],
    )
    for compute in SERVED
    for i, (m, n, k, batch) in enumerate(_BATCHES)
)
FINISHED = tuple(
    Case(_problem(shape, compute, i + place, layout=layout, wide=wide, epilogue=epilogue), gaps)
    for compute in SERVED
    for i, epilogue in enumerate(_epilogues(compute)[1:])
    for place, (shape, layout, wide, gaps) in enumerate(
        (
            ((129, 257, 65), "nn", False, (0, 0, 0)),
            ((64, 128, 4096), "tn", True, (0, 0, 0)),
            ((31, 33, 512), "nt", False, (1, 2, 3)),
        )
    )
)
